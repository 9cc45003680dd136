"""The bytes of a real `SELECT 1` at revision 54464, and hand-made ones: whole, in single bytes, with more behind."""

import pytest

from netlab.errors import RemoteProtocolError, UsageError
from netlab.native import server
from netlab.native.blocks import Block, Column, Dialect, Values
from netlab.native.connection import Connection, Login, quoted
from netlab.native.messages import (
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerHello,
    ServerSignal,
)
from netlab.native.types import UnsupportedError
from netlab.wire import ServerPacket

HEADER = bytes.fromhex("0100010002ffffffff00010001310555496e743800")
ROW = bytes.fromhex("0100010002ffffffff00010101310555496e74380001")
PROFILE = bytes.fromhex("0601018820000001")
PROGRESS = bytes.fromhex("03010101000000cca177")
LAST = bytes.fromhex("0100010002ffffffff000000")
END = b"\x05"
GOLDEN = HEADER + ROW + PROFILE + PROGRESS + LAST + END

EXPECTED = [
    ServerBlock(block=Block(columns=(Column(name="1", type="UInt8", values=()),))),
    ServerBlock(block=Block(columns=(Column(name="1", type="UInt8", values=[1]),), rows=1)),
    ProfileInfo(rows=1, blocks=1, bytes=4104, calculated_rows_before_limit=True),
    Progress(rows=1, bytes=1, total_rows=1, elapsed=1_953_996),
    ServerBlock(),
    ServerSignal(kind=ServerPacket.END_OF_STREAM),
]
SIZES = [len(HEADER), len(ROW), len(PROFILE), len(PROGRESS), len(LAST), len(END)]


def connected(values: Values = Values.READ, revision: int = 54464) -> Connection:
    """Return a connection past its handshake."""
    connection = Connection(Login(revision=revision), values)
    connection.hello_bytes()
    hello = ServerHello(name="ClickHouse", major=26, minor=7, revision=54488)
    (event,) = connection.receive(server.encode(hello, Dialect(revision=revision)))
    assert event.packet == hello
    connection.addendum_bytes()
    return connection


def test_golden_whole():
    events = list(connected().receive(GOLDEN))
    assert [event.packet for event in events] == EXPECTED
    assert [event.size for event in events] == SIZES


def test_golden_byte_by_byte():
    connection = connected()
    events = [event for at in range(len(GOLDEN)) for event in connection.receive(GOLDEN[at : at + 1])]
    assert [event.packet for event in events] == EXPECTED
    assert [event.size for event in events] == SIZES


@pytest.mark.parametrize("tail", [b"\x01", b"\x03\x01\x01", HEADER[:-1]])
def test_golden_with_the_start_of_a_packet_behind(tail):
    connection = connected()
    assert [event.packet for event in connection.receive(GOLDEN + tail)] == EXPECTED
    with pytest.raises(RemoteProtocolError, match="closed the connection inside a"):
        connection.receive(b"")


def test_skipping_counts_rows_without_values():
    blocks = [event.packet for event in connected(Values.SKIP).receive(GOLDEN)][:2]
    assert [block.rows for block in blocks] == [0, 1]
    assert [block.block.columns[0].values for block in blocks] == [None, None]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(HEADER, 0), (ROW, 1), (PROFILE, 2), (PROGRESS, 3), (LAST, 4), (END, 5)],
)
def test_encoders_give_the_golden_bytes(raw, expected):
    assert server.encode(EXPECTED[expected], Dialect(revision=54464)) == raw


def test_end_between_packets_is_no_error():
    connection = connected()
    list(connection.receive(GOLDEN))
    assert list(connection.receive(b"")) == []


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x48TTP/1.1", "no packet has type 72"),
        (b"\x01" + b"\xff" * 10, "exceeds 64 bits"),
        (b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "a String's length is 9223372036854775807"),
        (LAST[:-2] + b"\x80\x80\x80\x80\x80\x80\x80\x80\x10", "number of columns is 1152921504606846976"),
        (LAST[:-2] + b"\x01\x80\x80\x80\x80\x80\x80\x80\x80\x10", "number of rows is 1152921504606846976"),
        (b"\x01\x00\x09", "unknown field 9"),
        (b"\x01\x00\x01\x07", "a flag is 0 or 1, got 7"),
        (b"\x00\x00\x00\x00\x00", "a second Hello"),
        (HEADER[:10] + b"\x01\x01\x01v\x041234\x00", "not a data type"),
    ],
)
def test_what_is_not_the_protocol_is_an_error_at_once(raw, message):
    with pytest.raises(RemoteProtocolError, match=message):
        list(connected().receive(raw))


def test_an_unknown_type_is_named():
    block = HEADER[:10] + b"\x01\x01\x01v" + b"\x04JSON" + b"\x00"
    with pytest.raises(UnsupportedError, match='data type "JSON"'):
        list(connected().receive(block))


def test_an_error_stays():
    connection = connected()
    with pytest.raises(RemoteProtocolError):
        list(connection.receive(b"\x60"))
    with pytest.raises(RemoteProtocolError, match="type 96"):
        list(connection.receive(GOLDEN))


def test_packets_before_an_error_are_given_out():
    events = []
    with pytest.raises(RemoteProtocolError):
        for event in connected().receive(GOLDEN + b"\x60"):
            events.append(event.packet)
    assert events == EXPECTED


def test_a_data_packet_before_the_handshake_is_an_error():
    connection = Connection(Login())
    connection.hello_bytes()
    with pytest.raises(RemoteProtocolError, match="Data packet before the handshake"):
        list(connection.receive(GOLDEN))


def test_an_exception_answers_a_login():
    connection = Connection(Login(password="hunter2"))
    assert b"\x07hunter2" in connection.hello_bytes()
    refused = ServerException(code=516, name="DB::Exception", message="Authentication failed")
    (event,) = connection.receive(server.encode(refused, Dialect(revision=54464)))
    assert event.packet == refused
    assert "hunter2" not in repr(connection.login)


def test_nested_exceptions_are_a_chain():
    raw = b"\x02" + (b"\x01\0\0\0\x01a\x01b\x00" + b"\x01") + (b"\xff\xff\xff\xff\x01c\x01d\x00" + b"\x00")
    (event,) = connected().receive(raw)
    assert event.packet.code == 1
    assert event.packet.nested == (ServerException(code=-1, name="c", message="d"),)


def test_query_and_its_empty_block_are_one_piece():
    raw = connected().query_bytes("SELECT 1", settings={"max_threads": "1"}, query_id="q")
    assert raw.startswith(b"\x01\x01q\x01")
    assert raw.endswith(b"\x08SELECT 1\x00" + bytes.fromhex("0200010002ffffffff000000"))
    assert b"\x0bmax_threads\x01\x011\x00" in raw


def test_parameters_are_quoted():
    raw = connected().query_bytes("SELECT {x:String}", parameters={"x": "it's"})
    assert b"\x01x\x02\x07'it\\'s'\x00" in raw
    assert quoted("a\\'") == "'a\\\\\\''"


def test_queries_wait_for_the_handshake():
    with pytest.raises(UsageError, match="handshake"):
        Connection(Login()).query_bytes("SELECT 1")


def test_the_flat_reader_holds_little_of_a_large_block():
    connection = connected(Values.SKIP)
    rows = 1 << 24
    head = HEADER[:10] + b"\x01" + b"\x80\x80\x80\x08" + b"\x01v" + b"\x06UInt64" + b"\x00"
    assert list(connection.receive(head)) == []
    piece = bytes(1 << 16)
    for _ in range(8 * rows // len(piece) - 1):
        assert list(connection.receive(piece)) == []
        assert len(connection._decoder._reader.buffer) <= len(piece)
    (event,) = connection.receive(piece)
    assert event.packet.rows == rows
    assert event.size == 8 * rows + len(head)

"""clickhouse-driver against our encoders and decoders, over a socket pair: what one writes, the other reads."""

import datetime as dt
import socket
import threading
from decimal import Decimal
from uuid import UUID

import pytest
from clickhouse_cityhash.cityhash import CityHash128
from clickhouse_driver import Client
from clickhouse_driver.connection import Connection as DriverConnection
from clickhouse_driver.errors import ServerException as DriverException

from netlab.native import server
from netlab.native.blocks import Block, Column, Dialect, Values
from netlab.native.cityhash import checksum
from netlab.native.client import ClientBlock, ClientHello, ClientSignal, Query
from netlab.native.compression import Method
from netlab.native.messages import (
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerHello,
    ServerSignal,
    TableColumns,
)
from netlab.native.stream import ClientDecoder, Link
from netlab.wire import ClientPacket, ServerPacket

COLUMNS = (
    Column(name="n", type="UInt64", values=[1, 2, 3]),
    Column(name="s", type="String", values=["a", "ü", ""]),
    Column(name="l", type="LowCardinality(Nullable(String))", values=["x", None, "x"]),
    Column(name="a", type="Array(Nullable(Int16))", values=[[1, None], [], [3]]),
    Column(name="t", type="Tuple(Int8, String)", values=[(1, "p"), (2, "q"), (3, "r")]),
    Column(name="m", type="Map(String, UInt8)", values=[{"k": 1}, {}, {"k": 2, "j": 3}]),
    Column(name="d", type="Decimal(18, 4)", values=[Decimal("1.5"), Decimal("-2.25"), Decimal("0.0001")]),
    Column(name="u", type="UUID", values=[UUID(int=5), UUID(int=1 << 127), UUID(int=0)]),
    Column(name="e", type="Enum8('on' = 1, 'off' = 2)", values=["on", "off", "on"]),
    Column(name="f", type="FixedString(3)", values=[b"abc", b"de", b""]),
    Column(name="w", type="Date", values=[0, 1, 2]),
)
ROWS = [
    (1, "a", "x", [1, None], (1, "p"), {"k": 1}, Decimal("1.5"), UUID(int=5), "on", "abc", dt.date(1970, 1, 1)),
    (2, "ü", None, [], (2, "q"), {}, Decimal("-2.25"), UUID(int=1 << 127), "off", "de", dt.date(1970, 1, 2)),
    (3, "", "x", [3], (3, "r"), {"k": 2, "j": 3}, Decimal("0.0001"), UUID(int=0), "on", "", dt.date(1970, 1, 3)),
]
BODY = Block(columns=COLUMNS, rows=3)


EVENTS = ServerBlock(kind=ServerPacket.PROFILE_EVENTS, block=Block(columns=COLUMNS[:1], rows=3))


class Peer(threading.Thread):
    """A server made of our encoders and decoders, for one connection."""

    def __init__(self, near, revision):
        super().__init__(daemon=True)
        self.near = near
        self.revision = revision
        self.link = Link()
        self.decoder = ClientDecoder(self.link, Values.READ)
        self.seen = []

    def run(self):
        with self.near:
            while data := self.near.recv(1 << 16):
                self.decoder.feed(data)
                for event in self.decoder.packets():
                    self.seen.append(event.packet)
                    self.answer(event.packet)

    def answer(self, packet):
        if isinstance(packet, ClientHello):
            hello = ServerHello(name="ClickHouse", major=26, minor=7, revision=self.revision, timezone="UTC")
            self.near.sendall(server.encode(hello, Dialect(revision=packet.revision)))
            self.link.server_sent(hello)
        elif isinstance(packet, ClientSignal) and packet.kind is ClientPacket.PING:
            self.near.sendall(server.encode(ServerSignal(kind=ServerPacket.PONG), Dialect(revision=0)))
        elif isinstance(packet, ClientBlock):
            self.respond(final=not packet.block.columns)

    def respond(self, *, final):
        query = next(each for each in reversed(self.seen) if isinstance(each, Query))
        method = Method.LZ4 if query.compression else None
        dialect = Dialect(revision=self.link.revision, compression=method)
        inserted = any(isinstance(each, ClientBlock) and each.rows for each in self.seen)
        # From 54456 on the driver waits for ProfileEvents after each inserted block, the empty one too.
        messages = [EVENTS] if inserted and self.link.revision >= 54456 else []
        for message in messages + (script(query.sql, inserted) if final else []):
            self.near.sendall(server.encode(message, dialect))
            self.link.server_sent(message)


def script(sql, inserted):
    """Return what the server says to `sql`."""
    end = ServerSignal(kind=ServerPacket.END_OF_STREAM)
    header = tuple(Column(name=each.name, type=each.type, values=()) for each in COLUMNS)
    if sql == "SELECT fail":
        nested = (ServerException(code=47, name="DB::Exception", message="inner"),)
        return [ServerException(code=60, name="DB::Exception", message="no such table", stack="st", nested=nested)]
    if sql.startswith("INSERT") and not inserted:
        return [TableColumns(description="columns"), ServerBlock(block=Block(columns=header))]
    if sql.startswith("INSERT"):
        return [end]
    return [
        ServerBlock(block=Block(columns=header)),
        ServerBlock(block=BODY),
        ServerBlock(kind=ServerPacket.TOTALS, block=Block(columns=COLUMNS[:1], rows=3)),
        ProfileInfo(rows=3, blocks=1, bytes=99, rows_before_limit=17, calculated_rows_before_limit=True),
        Progress(rows=3, bytes=99, total_rows=3, total_bytes=99, elapsed=7),
        ServerBlock(),
        end,
    ]


@pytest.fixture
def talk(monkeypatch):
    """Return a maker of (driver client, our peer) pairs over socket pairs."""
    made = []

    def make(revision=54485, driver_revision=None, compression=False):
        far, near = socket.socketpair()
        monkeypatch.setattr(DriverConnection, "_create_socket", lambda self, host, port: far)
        peer = Peer(near, revision)
        peer.start()
        client = Client("unused", client_revision=driver_revision, compression=compression, password="hunter2")
        made.append((client, peer))
        # AF_UNIX knows no TCP_NODELAY.
        monkeypatch.setattr(DriverConnection, "_init_connection", _init_without_nodelay)
        return client, peer

    yield make
    for client, peer in made:
        client.disconnect()
        peer.join(5)
        assert not peer.is_alive()


def _init_without_nodelay(self, host, port, *, real=DriverConnection._init_connection):
    class Quiet(socket.socket):
        def setsockopt(self, *args):
            return None

    made = self._create_socket(host, port)
    quiet = Quiet(fileno=made.detach())
    self._create_socket = lambda host, port: quiet
    real(self, host, port)


REVISIONS = [54058, 54372, 54401, 54412, 54420, 54441, 54448, 54453, 54454, 54459, 54463, 54464, 54468]


@pytest.mark.parametrize("driver_revision", REVISIONS)
@pytest.mark.parametrize("compression", [False, True])
def test_the_driver_reads_our_answer(talk, driver_revision, compression):
    client, peer = talk(driver_revision=driver_revision, compression=compression)
    rows, columns = client.execute("SELECT 1", with_column_types=True, query_id="mine")
    assert columns == [(each.name, each.type) for each in COLUMNS]
    assert rows[:3] == ROWS
    assert client.last_query.progress.rows == 3
    assert client.last_query.profile_info.rows_before_limit == 17
    query = next(each for each in peer.seen if isinstance(each, Query))
    assert (query.sql, query.query_id, query.compression) == ("SELECT 1", "mine", bool(compression))
    assert query.info.client_name.startswith("ClickHouse")
    assert query.info.revision == driver_revision
    assert peer.link.revision == driver_revision


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_driver_follows_our_lower_revision(talk, revision):
    client, peer = talk(revision=revision)
    assert client.execute("SELECT 1")[:1] == ROWS[:1]
    assert client.execute("SELECT 1")[1:2] == ROWS[1:2]
    kinds = [each.kind for each in peer.seen if isinstance(each, ClientSignal)]
    assert kinds == [ClientPacket.PING]  # its own, before every query but the first
    assert peer.link.revision == revision


@pytest.mark.parametrize("revision", [54412, 54464, 54468])
@pytest.mark.parametrize("compression", [False, True])
def test_we_read_the_drivers_insert(talk, revision, compression):
    client, peer = talk(revision=revision, compression=compression)
    assert client.execute("INSERT INTO t VALUES", [list(row) for row in ROWS]) == 3
    (sent,) = [each for each in peer.seen if isinstance(each, ClientBlock) and each.rows]
    got = {column.name: column.values for column in sent.block.columns}
    for column in COLUMNS:
        padded = [b"abc", b"de\0", b"\0\0\0"] if column.name == "f" else column.values
        assert list(got[column.name]) == list(padded), column.name


def test_the_driver_reads_our_exception_and_goes_on(talk):
    client, _ = talk()
    with pytest.raises(DriverException) as error:
        client.execute("SELECT fail")
    assert (error.value.code, error.value.nested.code) == (60, 47)
    assert "no such table" in error.value.message


@pytest.mark.parametrize("revision", [54412, 54428, 54429, 54459, 54468])
def test_we_read_the_drivers_settings(talk, revision):
    client, peer = talk(revision=revision)
    client.execute("SELECT 1", settings={"max_threads": 3, "send_logs_level": "trace", "max_block_size": 7})
    query = next(each for each in peer.seen if isinstance(each, Query))
    assert {each.name: each.value for each in query.settings} == {
        "max_threads": "3",
        "send_logs_level": "trace",
        "max_block_size": "7",
    }


def test_the_password_is_in_no_repr(talk):
    client, peer = talk()
    client.execute("SELECT 1")
    hello = peer.seen[0]
    assert hello.password == "hunter2"
    assert "hunter2" not in repr(peer.seen)


@pytest.mark.parametrize("size", [*range(0, 40), 63, 64, 65, 127, 128, 129, 143, 144, 145, 255, 256, 257, 1000, 65_537])
def test_our_checksum_is_the_librarys(size):
    data = bytes((at * 131 + size) % 251 for at in range(size))
    hashed = CityHash128(data)
    high, low = hashed >> 64, hashed & (1 << 64) - 1
    assert checksum(data) == high.to_bytes(8, "little") + low.to_bytes(8, "little")

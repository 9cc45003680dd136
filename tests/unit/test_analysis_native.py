"""ClickHouse Native in the diagnosis: labels, kinds, first row and EndOfStream, and what can break them."""

from dataclasses import replace

import pytest
from tcpsim import CLIENT, MS, SERVER, Net, Path, Side, Turn, converse

from netlab.analysis import diagnose
from netlab.diagnosis import CaptureDiagnosis, Cause, ExchangeKind, Protocol
from netlab.native.blocks import Dialect
from netlab.native.client import Addendum, ClientBlock, ClientHello, ClientSignal, Query
from netlab.native.client import encode as encode_client
from netlab.native.client_info import ClientInfo
from netlab.native.messages import ServerException, ServerHello
from netlab.native.server import encode
from netlab.segments import CaptureSummary, Direction, Segment
from netlab.wire import ClientPacket

EMPTY = CaptureSummary(packets=0, tcp_segments=0, interfaces=(), truncated=False, comment=None)
REVISION = 54464
SPEAK = Dialect(revision=REVISION)
HEADER = bytes.fromhex("0100010002ffffffff00010001310555496e743800")
ROWS = bytes.fromhex("0100010002ffffffff00010101310555496e74380001")
INFO = bytes.fromhex("0601018820000001")
PROGRESS = bytes.fromhex("03010101000000cca177")
LAST = bytes.fromhex("0100010002ffffffff000000")
END = b"\x05"
ANSWER = [HEADER, ROWS, INFO, PROGRESS, PROGRESS, PROGRESS, LAST, PROGRESS, END]


def client_hello() -> bytes:
    return encode_client(ClientHello(name="test", major=1, minor=0, revision=REVISION, password="hunter2"), SPEAK)


def server_hello() -> bytes:
    hello = ServerHello(name="ClickHouse", major=26, minor=7, revision=54488, timezone="UTC", display_name="x", patch=2)
    return encode(hello, SPEAK)


def query(sql: str) -> bytes:
    return encode_client(Query(sql=sql, info=ClientInfo(revision=REVISION)), SPEAK) + encode_client(
        ClientBlock(), SPEAK
    )


def writes(*parts: bytes) -> list[tuple[int, bytes]]:
    return [(0, part) for part in parts]


GREETING = Turn(0, writes(client_hello()), writes(server_hello()))
ADDENDUM = encode_client(Addendum(), SPEAK)
PING = Turn(20 * MS, writes(encode_client(ClientSignal(kind=ClientPacket.PING), SPEAK)), writes(b"\x04"))


def ask(idle: int, *answer: bytes) -> Turn:
    return Turn(idle, writes(query("SELECT 1")), writes(*answer))


def capture(turns: list[Turn], *, rtt: int = 32, server: Side | None = None) -> Net:
    net = Net(up=Path(), down=Path(delay=rtt * MS), server=server or Side(initcwnd=8, isn=5000))
    converse(net, turns)
    return net


def read(segments: list[Segment]) -> CaptureDiagnosis:
    return diagnose(segments, file="test", summary=EMPTY)


def with_addendum(turns: list[Turn]) -> list[Turn]:
    """The addendum travels with the first request, as a client that does not wait sends it."""
    first, second, *rest = turns
    joined = replace(second, asks=[(0, ADDENDUM + second.asks[0][1]), *second.asks[1:]])
    return [first, joined, *rest]


STORY = with_addendum(
    [GREETING, *[ask(0, b"".join(ANSWER) * 1)], *[ask(0, *ANSWER)] * 2, *[ask(2000 * MS, *ANSWER)] * 2]
)


@pytest.mark.parametrize("tap", ["server", "client"])
def test_idle_restart_of_a_native_response_is_told_in_its_own_words(tap: str) -> None:
    diagnosis = read(capture(STORY).taps[tap])
    connection = diagnosis.connections[0]
    assert (connection.protocol, connection.revision) == (Protocol.CLICKHOUSE_NATIVE, REVISION)
    first, *queries = diagnosis.exchanges
    assert (first.kind, first.index) == (ExchangeKind.HANDSHAKE, None)
    assert [exchange.index for exchange in queries] == [0, 1, 2, 3, 4]
    for exchange in queries[3:]:
        assert exchange.cause is Cause.IDLE_WINDOW_RESTART
        assert exchange.extra_round_trips == 1
        assert exchange.query == "SELECT 1"
        assert exchange.first_flight_segments == 8
        assert "1 byte was left (EndOfStream)" in exchange.findings[0].evidence.text
        assert 31 * MS < (exchange.tail or 0) < 34 * MS
    assert queries[0].cause is Cause.HEALTHY


def test_each_segment_says_which_packets_it_carries() -> None:
    exchange = read(capture(STORY).taps["client"]).exchanges[-1]
    data = [each for each in exchange.segments if each.length]
    assert data[0].labels == ("Query", "Data")
    labels = [each.labels for each in data[1:]]
    assert labels[0] == labels[1] == ("Data",)
    assert labels[-1] == ("EndOfStream",)
    assert [each.flight for each in data] == [None, *[0] * 8, 1]
    assert all(each.acked_at is not None for each in data)


def test_one_segment_may_carry_many_packets_and_one_packet_many_segments() -> None:
    joined = read(capture(STORY).taps["client"]).exchanges[1]
    data = [each for each in joined.segments if each.length and each.direction is Direction.TO_CLIENT]
    assert data[0].labels == ("Data", "Data", "ProfileInfo", *["Progress"] * 3, "Data", "Progress", "EndOfStream")
    long = query("SELECT " + "1," * 3000 + "1")
    turns = with_addendum([GREETING, Turn(0, writes(long), writes(*ANSWER))])
    up = [each for each in read(capture(turns).taps["server"]).exchanges[1].segments if each.length][:5]
    assert [each.labels for each in up] == [("Addendum", "Query"), *[("Query",)] * 3, ("Query", "Data")]


def test_an_addendum_of_its_own_belongs_to_the_handshake() -> None:
    net = Net(up=Path(), down=Path(delay=20 * MS), server=Side(isn=5000))
    net.connect()
    net.after(50 * MS, lambda: net.write("client", client_hello()))
    net.after(51 * MS, lambda: net.write("server", server_hello()))
    net.after(100 * MS, lambda: net.write("client", ADDENDUM))
    net.after(2000 * MS, lambda: net.write("client", query("SELECT 1")))
    net.after(2010 * MS, lambda: [net.write("server", part) for part in ANSWER])
    net.run()
    handshake, first = read(net.taps["client"]).exchanges
    assert (handshake.kind, handshake.cause) == (ExchangeKind.HANDSHAKE, Cause.HEALTHY)
    assert first.index == 0
    assert first.request_end_at == first.sent_at
    assert (first.idle_before or 0) > 1800 * MS


def test_a_ping_before_each_query_is_the_clients_own_round_trip() -> None:
    turns = with_addendum([GREETING, ask(0, b"".join(ANSWER)), PING, ask(0, b"".join(ANSWER))])
    exchanges = read(capture(turns).taps["client"]).exchanges
    assert [(e.kind, e.index) for e in exchanges] == [
        (ExchangeKind.HANDSHAKE, None),
        (ExchangeKind.QUERY, 0),
        (ExchangeKind.PING, None),
        (ExchangeKind.QUERY, 1),
    ]
    assert exchanges[3].cause is Cause.CLIENT_DELAY
    assert abs(exchanges[3].findings[0].cost - 32 * MS) < MS
    assert exchanges[1].cause is Cause.HEALTHY


def test_an_exception_ends_the_response_and_has_no_tail() -> None:
    error = encode(ServerException(code=60, name="DB::Exception", message="no such table", stack=""), SPEAK)
    turns = with_addendum([GREETING, ask(0, error), ask(0, b"".join(ANSWER))])
    _, failed, fine = read(capture(turns).taps["client"]).exchanges
    assert "no such table" in (failed.exception or "")
    assert (failed.tail, failed.eos_at) == (None, None)
    assert (fine.index, fine.cause, fine.exception) == (1, Cause.HEALTHY, None)


def test_an_insert_is_one_exchange_although_the_client_speaks_twice() -> None:
    block = encode_client(ClientBlock(), SPEAK)
    net = Net(up=Path(), down=Path(delay=20 * MS), server=Side(isn=5000))
    net.connect()
    net.after(50 * MS, lambda: net.write("client", client_hello()))
    net.after(51 * MS, lambda: net.write("server", server_hello()))
    net.after(100 * MS, lambda: net.write("client", ADDENDUM + query("INSERT INTO t VALUES")))
    net.after(105 * MS, lambda: net.write("server", HEADER))
    net.after(150 * MS, lambda: net.write("client", block))
    net.after(160 * MS, lambda: net.write("server", END))
    net.after(400 * MS, lambda: net.write("client", query("SELECT 1")))
    net.after(410 * MS, lambda: [net.write("server", part) for part in ANSWER])
    net.run()
    exchanges = read(net.taps["server"]).exchanges
    assert [exchange.index for exchange in exchanges] == [None, 0, 1]


def test_a_capture_without_the_handshake_is_labelled_all_the_same() -> None:
    segments = capture(STORY).taps["server"]
    queries = [n for n, s in enumerate(segments) if s.source == CLIENT and s.length > 60]
    diagnosis = read(segments[queries[1] :])
    assert diagnosis.connections[0].protocol is Protocol.CLICKHOUSE_NATIVE
    assert [e.index for e in diagnosis.exchanges] == [0, 1, 2, 3]
    assert diagnosis.exchanges[-1].cause is Cause.IDLE_WINDOW_RESTART
    assert diagnosis.exchanges[-1].query == "SELECT 1"
    assert diagnosis.exchanges[-1].eos_at is not None


def test_a_snapped_capture_is_turn_taking_and_still_named() -> None:
    segments = [s._replace(payload=s.payload[:10]) for s in capture(STORY).taps["server"]]
    diagnosis = read(segments)
    assert diagnosis.exchanges[-1].cause is Cause.IDLE_WINDOW_RESTART
    assert len(diagnosis.exchanges) == len(STORY)


def test_garbage_inside_the_stream_ends_labels_not_the_diagnosis() -> None:
    turns = with_addendum([GREETING, ask(0, b"".join(ANSWER)), ask(0, b"\xff" * 500), ask(0, b"".join(ANSWER))])
    diagnosis = read(capture(turns).taps["server"])
    assert diagnosis.exchanges[1].eos_at is not None
    assert all(exchange.cause is not None for exchange in diagnosis.exchanges)
    assert sum(exchange.response_bytes for exchange in diagnosis.exchanges[1:]) == 500 + 2 * len(b"".join(ANSWER))


def test_a_hostile_length_waits_without_growing() -> None:
    hostile = b"\x02" + b"\x3c\0\0\0" + b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x" * 200
    turns = with_addendum([GREETING, ask(0, hostile), ask(0, b"".join(ANSWER))])
    assert len(read(capture(turns).taps["server"]).exchanges) >= 2


def test_reordered_segments_are_read_in_order() -> None:
    segments = list(capture(STORY).taps["server"])
    places = [n for n, s in enumerate(segments) if s.source == SERVER and s.length]
    a, b = places[-5], places[-4]
    first, second = segments[a], segments[b]
    segments[a] = second._replace(at=first.at, frame=first.frame)
    segments[b] = first._replace(at=second.at, frame=second.frame)
    exchange = read(segments).exchanges[-1]
    assert exchange.eos_at is not None
    assert exchange.cause is Cause.IDLE_WINDOW_RESTART
    assert not any(each.retransmission for each in exchange.segments)

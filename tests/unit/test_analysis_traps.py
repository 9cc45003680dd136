"""Real-world traps: what looks like a cause and is another, and captures that lack a part."""

import pytest
from tcpsim import CLIENT, MS, SERVER, START, Net, Path, Side, Turn, converse, serve

from netlab.analysis import Detail, Options, diagnose, stream
from netlab.diagnosis import CaptureDiagnosis, Cause, ExchangeKind, Protocol, Vantage
from netlab.segments import CaptureSummary, Endpoint, Flag, Segment
from netlab.segments import Options as TcpOptions

NATIVE = [(0, 28), (0, 36), (0, 8), (0, 11), (0, 2016), (0, 12), (0, 10), (0, 1)]
BULK = [(0, 20_000)]
EMPTY = CaptureSummary(packets=0, tcp_segments=0, interfaces=(), truncated=False, comment=None)
IDLE = [(0, BULK), (0, BULK), (2000 * MS, NATIVE), (2000 * MS, NATIVE)]


def read(segments: list[Segment], **options: object) -> CaptureDiagnosis:
    return diagnose(segments, file="test", summary=lambda: EMPTY, options=Options(**options))


def net_of(queries: list[tuple[int, list[tuple[int, int]]]], rtt: int = 32, **how: object) -> Net:
    net = Net(up=Path(), down=Path(delay=rtt * MS), **how)
    serve(net, queries)
    return net


@pytest.mark.parametrize("tap", ["server", "client"])
@pytest.mark.parametrize("pause", [28, 30, 34, 40])
def test_a_pause_near_one_round_trip_is_no_confident_window(pause: int, tap: str) -> None:
    train = [*NATIVE[:4], (pause * MS, 700)]
    net = net_of([(0, NATIVE), (2000 * MS, train), (2000 * MS, train)], server=Side(initcwnd=20))
    for exchange in read(net.taps[tap]).exchanges[1:]:
        windows = {Cause.IDLE_WINDOW_RESTART, Cause.FRESH_SLOW_START}
        assert exchange.cause not in windows or exchange.confidence < 0.6
        if exchange.cause is Cause.UNDETERMINED:
            assert exchange.settle
            assert exchange.extra_round_trips is None


@pytest.mark.parametrize("tap", ["server", "client"])
def test_a_pause_of_one_round_trip_on_a_young_connection_is_no_confident_window(tap: str) -> None:
    net = net_of([(0, [*NATIVE[:4], (32 * MS, 700)])], server=Side(initcwnd=20))
    exchange = read(net.taps[tap]).exchanges[0]
    assert exchange.cause is not Cause.FRESH_SLOW_START or exchange.confidence < 0.8


@pytest.mark.parametrize("tap", ["server", "client"])
def test_a_header_sent_early_frees_the_window_early(tap: str) -> None:
    late_rows = [NATIVE[0], (10 * MS, 36), *NATIVE[2:]]
    net = net_of([(0, BULK), (0, BULK), (2000 * MS, late_rows)], server=Side(initcwnd=8))
    last = read(net.taps[tap]).exchanges[-1]
    assert last.cause is Cause.IDLE_WINDOW_RESTART
    assert last.extra_round_trips == 1
    assert last.stalls[-1].duration < 24 * MS


@pytest.mark.parametrize("tap", ["server", "client"])
def test_delayed_acks_at_the_client_do_not_hide_the_restart(tap: str) -> None:
    net = net_of(IDLE, server=Side(initcwnd=8), client=Side(delayed_ack=True))
    exchanges = read(net.taps[tap]).exchanges
    assert [exchange.cause for exchange in exchanges[2:]] == [Cause.IDLE_WINDOW_RESTART] * 2


@pytest.mark.parametrize("tap", ["server", "client"])
@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize("split", [0.0, 0.5])
def test_restart_with_and_without_timestamps_on_any_split(tap: str, timestamps: bool, split: float) -> None:
    up, down = int(32 * MS * split), int(32 * MS * (1 - split))
    net = Net(up=Path(delay=up), down=Path(delay=down), server=Side(initcwnd=8), timestamps=timestamps)
    serve(net, IDLE)
    diagnosis = read(net.taps[tap])
    assert diagnosis.vantage.value == tap
    assert [exchange.cause for exchange in diagnosis.exchanges[2:]] == [Cause.IDLE_WINDOW_RESTART] * 2


def test_a_partial_decay_of_the_window_is_not_an_initial_window() -> None:
    """One RTO of idleness halves the window; it does not reset it."""
    net = net_of([(0, [(0, 60_000)]), (0, [(0, 60_000)]), (300 * MS, NATIVE)], server=Side(initcwnd=4))
    assert read(net.taps["server"]).exchanges[-1].cause is Cause.HEALTHY


def test_in_the_middle() -> None:
    """A tap halfway sees the server's half and the client's half of the round trip."""
    net = Net(up=Path(delay=10 * MS), down=Path(delay=22 * MS), server=Side(initcwnd=8))
    serve(net, IDLE)
    shift = {CLIENT: 5 * MS, SERVER: 11 * MS}
    sent = [segment for name in ("client", "server") for segment in net.taps[name] if segment.source == _end(name)]
    middle = sorted((s._replace(at=s.at + shift[s.source]) for s in sent), key=lambda s: s.at)
    diagnosis = read([s._replace(frame=number) for number, s in enumerate(middle, 1)])
    assert diagnosis.vantage is Vantage.MIDDLE
    assert [exchange.cause for exchange in diagnosis.exchanges[2:]] == [Cause.IDLE_WINDOW_RESTART] * 2


def _end(name: str) -> Endpoint:
    return CLIENT if name == "client" else SERVER


def test_sequence_numbers_wrap() -> None:
    plain = read(net_of(IDLE, server=Side(initcwnd=8)).taps["server"])
    wrapped = read(net_of(IDLE, server=Side(initcwnd=8, isn=(1 << 32) - 20_500)).taps["server"])
    assert plain.exchanges == wrapped.exchanges


def test_a_capture_begun_mid_connection() -> None:
    net = net_of(IDLE, server=Side(initcwnd=8))
    cut = [segment for segment in net.taps["server"] if segment.at > START + 200 * MS]
    diagnosis = read(cut)
    assert not diagnosis.connections[0].complete
    first, second = diagnosis.exchanges
    assert first.cause in (Cause.UNDETERMINED, Cause.IDLE_WINDOW_RESTART)
    assert first.confidence < 0.8
    assert second.cause is Cause.IDLE_WINDOW_RESTART


def test_a_window_story_that_the_capture_does_not_hold_is_undetermined() -> None:
    net = net_of([(0, BULK), (0, BULK), (2000 * MS, NATIVE)], server=Side(initcwnd=8))
    cut = [segment for segment in net.taps["server"] if segment.at > START + 200 * MS]
    only = read(cut).exchanges[0]
    assert only.cause is Cause.UNDETERMINED
    assert "begins before the connection" in (only.settle or "")


def test_a_reused_port_is_a_new_connection() -> None:
    first = net_of([(0, NATIVE)]).taps["server"]
    again = net_of([(0, NATIVE)], client=Side(isn=777_000), server=Side(isn=99_000)).taps["server"]
    later = [s._replace(frame=s.frame + len(first), at=s.at + 10_000 * MS) for s in again]
    diagnosis = read([*first, *later])
    assert [(e.connection, e.index) for e in diagnosis.exchanges] == [(0, 0), (1, 0)]


def test_a_resent_syn_is_the_same_connection() -> None:
    segments = net_of([(0, NATIVE)]).taps["server"]
    earlier = segments[0]._replace(at=segments[0].at - 1000 * MS)
    diagnosis = read([s._replace(frame=n) for n, s in enumerate([earlier, *segments], 1)])
    assert len(diagnosis.connections) == 1
    assert any("SYN 2 times" in note for note in diagnosis.connections[0].notes)


def test_the_same_connection_on_two_interfaces_is_two_vantages() -> None:
    net = net_of(IDLE, server=Side(initcwnd=8))
    taps = (net.taps["client"], net.taps["server"])
    both = sorted((s._replace(interface=n) for n, tap in enumerate(taps) for s in tap), key=lambda s: s.at)
    diagnosis = read([s._replace(frame=n) for n, s in enumerate(both, 1)])
    assert sorted(c.vantage for c in diagnosis.connections) == [Vantage.CLIENT, Vantage.SERVER]


def test_directions_on_two_interfaces_are_one_connection() -> None:
    segments = [s._replace(interface=int(s.source == SERVER)) for s in net_of(IDLE).taps["server"]]
    diagnosis = read(segments)
    assert len(diagnosis.connections) == 1
    assert len(diagnosis.exchanges) == len(IDLE)


def test_keep_alives_are_no_activity() -> None:
    segments = list(net_of(IDLE, server=Side(initcwnd=8)).taps["server"])
    gap = next(n for n, s in enumerate(segments) if n and s.at - segments[n - 1].at > 1000 * MS)
    before = segments[gap - 1]
    data = [s for s in segments[:gap] if s.source == CLIENT]
    probe = data[-1]._replace(
        at=before.at + 900 * MS, seq=(data[-1].seq + data[-1].length - 1) & 0xFFFFFFFF, length=1, payload=b"\0"
    )
    segments.insert(gap, probe)
    diagnosis = read([s._replace(frame=n) for n, s in enumerate(segments, 1)])
    assert len(diagnosis.exchanges) == len(IDLE)
    assert (diagnosis.exchanges[2].idle_before or 0) > 1900 * MS
    assert diagnosis.exchanges[2].cause is Cause.IDLE_WINDOW_RESTART


def test_super_segments_count_as_their_mss_units() -> None:
    """Offloads join full segments in a capture; a flight is still counted in segments."""
    segments = net_of([(0, [(0, 60_000)])], server=Side(initcwnd=10)).taps["server"]
    joined: list[Segment] = []
    for segment in segments:
        last = joined[-1] if joined else None
        follows = last is not None and last.source == segment.source == SERVER and last.length >= 1448
        if follows and last is not None and segment.length and last.seq + last.length == segment.seq:
            joined[-1] = last._replace(length=last.length + segment.length, payload=last.payload + segment.payload)
        else:
            joined.append(segment)
    diagnosis = read([s._replace(frame=n) for n, s in enumerate(joined, 1)])
    plain = read(segments)
    assert [f.segments for f in diagnosis.exchanges[0].flights] == [f.segments for f in plain.exchanges[0].flights]
    assert diagnosis.exchanges[0].cause is Cause.FRESH_SLOW_START


def test_a_request_in_two_halves_is_one_exchange() -> None:
    net = Net(up=Path(), down=Path(delay=32 * MS))
    serve(net, [(0, NATIVE)] * 3, halves=100 * MS)
    exchanges = read(net.taps["client"]).exchanges
    assert [exchange.index for exchange in exchanges] == [0, 1, 2]
    assert all(99 * MS < e.request_end_at - e.sent_at < 101 * MS for e in exchanges)


def test_tls_is_turn_taking_with_its_handshake_apart() -> None:
    hello = b"\x16\x03\x01" + bytes(300)
    flight = b"\x16\x03\x03" + bytes(3000)
    finished = b"\x14\x03\x03\x00\x01\x01" + bytes(58)
    request, answer = b"\x17\x03\x03" + bytes(200), b"\x17\x03\x03" + bytes(900)
    net = Net(up=Path(), down=Path(delay=20 * MS))
    turns = [
        Turn(0, [(0, hello)], [(0, flight)]),
        Turn(0, [(0, finished)], [(0, answer)]),
        Turn(50 * MS, [(0, request)], [(0, answer)]),
        Turn(50 * MS, [(0, request)], [(0, answer)]),
    ]
    converse(net, turns)
    diagnosis = read(net.taps["server"])
    assert diagnosis.connections[0].protocol is Protocol.TLS
    kinds = [(e.kind, e.index) for e in diagnosis.exchanges]
    handshake, query = ExchangeKind.HANDSHAKE, ExchangeKind.QUERY
    assert kinds == [(handshake, None), (handshake, None), (query, 0), (query, 1)]


def test_a_request_without_an_answer() -> None:
    segments = net_of([(0, NATIVE), (100 * MS, NATIVE)]).taps["server"]
    requests = [n for n, s in enumerate(segments) if s.source == CLIENT and s.length]
    diagnosis = read(segments[: requests[1] + 1])
    last = diagnosis.exchanges[-1]
    assert (last.cause, last.first_byte_at, last.tail) == (Cause.UNDETERMINED, None, None)
    assert last.settle


def test_detail_can_be_left_out() -> None:
    segments = net_of(IDLE, server=Side(initcwnd=8)).taps["server"]
    assert all(not e.segments for e in read(segments, detail=Detail.NONE).exchanges)
    causes = read(segments, detail=Detail.CAUSES).exchanges
    assert all(bool(e.segments) == (e.cause is not Cause.HEALTHY) for e in causes)


def test_a_long_response_keeps_its_ends() -> None:
    segments = net_of([(0, [(0, 2_000_000)])], rtt=4, server=Side(initcwnd=10)).taps["server"]
    whole = read(segments).exchanges[0]
    cut = read(segments, exchange_segments=600).exchanges[0]
    assert len(cut.segments) <= 600 < len(whole.segments)
    assert (cut.response_bytes, cut.first_byte_at, cut.last_byte_at) == (
        whole.response_bytes,
        whole.first_byte_at,
        whole.last_byte_at,
    )


def test_streaming_gives_the_same_exchanges() -> None:
    segments = net_of(IDLE, server=Side(initcwnd=8)).taps["client"]
    assert tuple(stream(segments)) == read(segments).exchanges


def test_ten_thousand_connections() -> None:
    one = net_of([(0, NATIVE)], rtt=8).taps["client"]
    segments = []
    for number in range(10_000):
        client = Endpoint(f"10.{number >> 14}.{(number >> 7) & 127}.{number & 127}", 1024 + number)
        for s in one[:5]:
            source = client if s.source == CLIENT else s.source
            destination = client if s.destination == CLIENT else s.destination
            at = s.at + number * 100 * MS
            segments.append(s._replace(frame=len(segments) + 1, at=at, source=source, destination=destination))
    diagnosis = read(segments, open_connections=500)
    assert len(diagnosis.connections) == 10_000
    assert len(diagnosis.exchanges) == 10_000


def test_no_segments_at_all() -> None:
    diagnosis = read([])
    assert (diagnosis.connections, diagnosis.exchanges, diagnosis.vantage) == ((), (), Vantage.UNKNOWN)


def test_a_lone_syn() -> None:
    syn = Segment(1, START, CLIENT, SERVER, 5, 0, int(Flag.SYN), 1000, 0, b"", TcpOptions(mss=1460))
    diagnosis = read([syn])
    assert len(diagnosis.connections) == 1
    assert diagnosis.exchanges == ()


def test_a_last_byte_sent_again_is_no_keep_alive() -> None:
    """EndOfStream is one byte: its retransmission looks like a keep-alive but for being unacknowledged."""
    whole = sum(size for _, size in NATIVE)
    lossy = Path(delay=32 * MS, lose=lambda start, _end, nth: nth == 0 and start == whole - 1)
    net = Net(up=Path(), down=lossy, server=Side(initcwnd=20))
    serve(net, [(0, NATIVE)])
    exchange = read(net.taps["server"]).exchanges[0]
    assert exchange.cause is Cause.TAIL_LOSS_PROBE
    assert any(segment.retransmission and segment.length == 1 for segment in exchange.segments)
    from_afar = read(net.taps["client"]).exchanges[0]
    assert from_afar.cause in (Cause.TAIL_LOSS_PROBE, Cause.UNDETERMINED)
    assert from_afar.confidence <= 0.6


def test_a_request_sent_twice_for_want_of_an_ack_is_no_loss_at_the_server() -> None:
    """The copy that comes late changes nothing where the first one had arrived."""
    segments = list(net_of([(0, NATIVE)], server=Side(initcwnd=20)).taps["server"])
    request = next(s for s in segments if s.source == CLIENT and s.length)
    segments.append(request._replace(at=segments[-1].at + 240 * MS))
    exchange = read([s._replace(frame=n) for n, s in enumerate(segments, 1)]).exchanges[0]
    assert (exchange.cause, exchange.extra_round_trips) == (Cause.HEALTHY, 0)

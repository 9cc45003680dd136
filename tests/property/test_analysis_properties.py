"""Whatever a capture holds, the diagnosis ends, is whole, and does not depend on what has no meaning."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tcpsim import CLIENT, MS, SERVER, START, Net, Path, Side, serve

from netlab.analysis import Options, WindowState, Write, diagnose, predict, restart_window
from netlab.diagnosis import CaptureDiagnosis, Cause
from netlab.segments import CaptureSummary, Segment
from netlab.segments import Options as TcpOptions

EMPTY = CaptureSummary(packets=0, tcp_segments=0, interfaces=(), truncated=False, comment=None)
TRAIN = [(0, 28), (0, 36), (0, 8), (0, 11), (0, 2016), (0, 12), (0, 10), (0, 1)]

numbers = st.integers(0, 0xFFFFFFFF)
near = st.integers(0, 5000) | numbers
options = st.none() | st.builds(
    TcpOptions,
    mss=st.none() | st.integers(0, 65535),
    window_scale=st.none() | st.integers(0, 255),
    sack_permitted=st.booleans(),
    sack=st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple),
    timestamp_value=st.none() | numbers,
    timestamp_echo=st.none() | numbers,
)
payloads = st.binary(max_size=40) | st.sampled_from(
    [b"\x00\x04test\x01\x00\xc0\xa9\x03", b"\x01", b"\x04", b"\x16\x03\x01\x02\x00", b"\x02\x00\xff" * 9]
)


@st.composite
def garbage(draw: st.DrawFn) -> list[Segment]:
    """Segments of two ends that fit no conversation."""
    segments = []
    at = START
    for frame in range(1, draw(st.integers(1, 40)) + 1):
        at += draw(st.integers(0, 400) | st.integers(-3 * MS, 5000 * MS))
        payload = draw(payloads)
        source, destination = draw(st.sampled_from([(CLIENT, SERVER), (SERVER, CLIENT)]))
        extra = draw(st.sampled_from([0, 0, 0, 1, 1448, 1 << 20]))
        segments.append(
            Segment(
                frame=frame,
                at=at,
                source=source,
                destination=destination,
                seq=draw(near),
                ack=draw(near),
                flags=draw(st.integers(0, 255)),
                window=draw(st.integers(0, 65535)),
                length=len(payload) + extra,
                payload=payload,
                options=draw(options),
                interface=draw(st.sampled_from([0, 0, 0, 1])),
            )
        )
    return segments


def read(segments: list[Segment], **how: int) -> CaptureDiagnosis:
    return diagnose(segments, file="x", summary=EMPTY, options=Options(**how))


def check(diagnosis: CaptureDiagnosis, frames: int) -> None:
    for exchange in diagnosis.exchanges:
        assert 0 <= exchange.connection < len(diagnosis.connections)
        assert 0 <= exchange.confidence <= 1
        assert isinstance(exchange.cause, Cause)
        assert exchange.cause not in exchange.also
        assert all(finding.cost >= 0 for finding in exchange.findings)
        assert all(1 <= frame <= frames for finding in exchange.findings for frame in finding.evidence.frames)
        assert (exchange.extra_round_trips is None) == (exchange.cause is Cause.UNDETERMINED)
        assert exchange.cause is not Cause.UNDETERMINED or exchange.settle
        assert all(s.flight is None or s.flight < len(exchange.flights) for s in exchange.segments)


@given(garbage())
@settings(max_examples=400, deadline=None)
def test_garbage_gives_a_diagnosis(segments: list[Segment]) -> None:
    check(read(segments), len(segments))


@given(garbage())
@settings(max_examples=100, deadline=None)
def test_tight_bounds_change_nothing_about_that(segments: list[Segment]) -> None:
    check(read(segments, exchange_segments=6, kept_segments=5, waiting_segments=3, open_connections=1), len(segments))


@st.composite
def conversations(draw: st.DrawFn) -> Net:
    """Any healthy or idle conversation over any path."""
    rtt = draw(st.sampled_from([4, 20, 32, 75, 150, 200]))
    split = draw(st.sampled_from([0.0, 0.3, 0.5]))
    up, down = int(rtt * MS * split), int(rtt * MS * (1 - split))
    server = Side(
        initcwnd=draw(st.integers(2, 14)),
        isn=draw(numbers),
        restart_after_idle=draw(st.booleans()),
    )
    client = Side(isn=draw(numbers), delayed_ack=draw(st.booleans()))
    net = Net(up=Path(delay=up), down=Path(delay=down), server=server, client=client, timestamps=draw(st.booleans()))
    idles = draw(st.lists(st.sampled_from([0, 1500 * MS, 2000 * MS]), min_size=1, max_size=4))
    serve(net, [(0, [(0, 40_000)]), (0, [(0, 40_000)]), *[(idle, TRAIN) for idle in idles]])
    return net


@given(conversations(), st.sampled_from(["client", "server"]))
@settings(max_examples=150, deadline=None)
def test_an_idle_restart_is_named_exactly_when_the_window_is_too_small(net: Net, tap: str) -> None:
    server = net.ends["server"].side
    diagnosis = read(net.taps[tap])
    check(diagnosis, len(net.taps[tap]))
    for exchange in diagnosis.exchanges[2:]:
        rested = (exchange.idle_before or 0) > 1000 * MS
        small = rested and server.restart_after_idle and server.initcwnd < 9
        if small:
            assert exchange.cause is Cause.IDLE_WINDOW_RESTART
            assert exchange.first_flight_segments == server.initcwnd
        elif rested or not server.restart_after_idle or server.initcwnd >= 9:
            assert (exchange.cause, exchange.extra_round_trips) == (Cause.HEALTHY, 0)
        else:
            # Right after a restart the window may not have grown back.
            assert exchange.cause in (Cause.HEALTHY, Cause.IDLE_WINDOW_RESTART)


@given(conversations(), st.sampled_from(["client", "server"]), st.integers(1, 30), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_a_capture_that_lacks_frames_still_gives_a_diagnosis(net: Net, tap: str, missing: int, random: object) -> None:
    segments = list(net.taps[tap])
    for _ in range(min(missing, len(segments) - 1)):
        segments.pop(random.randrange(len(segments)))  # type: ignore[attr-defined]
    check(read(segments), len(net.taps[tap]))


@given(conversations(), numbers, numbers)
@settings(max_examples=50, deadline=None)
def test_initial_sequence_numbers_mean_nothing(net: Net, up: int, down: int) -> None:
    shift = {CLIENT: (up, down), SERVER: (down, up)}
    moved = [
        s._replace(seq=(s.seq + shift[s.source][0]) & 0xFFFFFFFF, ack=(s.ack + shift[s.source][1]) & 0xFFFFFFFF)
        for s in net.taps["server"]
    ]
    assert read(moved).exchanges == read(net.taps["server"]).exchanges


@given(
    st.lists(st.builds(Write, size=st.integers(1, 9000), pause=st.integers(0, 3 * MS)), min_size=1, max_size=30),
    st.integers(1, 60),
    st.integers(1, 200),
)
@settings(deadline=None)
def test_a_larger_window_never_costs_a_round_trip(train: list[Write], window: int, rtt: int) -> None:
    def trips(initcwnd: int) -> int:
        state = WindowState(initcwnd=initcwnd, cwnd=initcwnd, idle=0, rto=232 * MS)
        got = predict(train, mss=1448, window=state, rtt=rtt * MS)
        assert sum(got.flights) == got.segments
        assert (got.stalls_at is None) == (got.extra_round_trips == 0)
        return got.extra_round_trips

    assert trips(window + 1) <= trips(window)
    assert trips(10_000) == 0


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 10**11), st.integers(1, 10**10))
def test_the_restart_window_lies_between_both(cwnd: int, initcwnd: int, idle: int, rto: int) -> None:
    window = restart_window(cwnd, initcwnd, idle, rto)
    assert min(cwnd, initcwnd) <= window <= cwnd
    assert restart_window(cwnd, initcwnd, idle + rto, rto) <= window

"""Each cause, made by a deterministic TCP at several round-trip times, is named at both vantage points."""

from collections.abc import Callable

import pytest
from tcpsim import MS, Net, Path, Side, serve

from netlab.analysis import diagnose
from netlab.diagnosis import CaptureDiagnosis, Cause, Exchange, Vantage
from netlab.segments import CaptureSummary, Segment

RTTS = (4, 13, 32, 80, 200)
NATIVE = [(0, 28), (0, 36), (0, 8), (0, 11), (0, 2016), (0, 12), (0, 10), (0, 1)]
BULK = [(0, 20_000)]
EMPTY = CaptureSummary(packets=0, tcp_segments=0, interfaces=(), truncated=False, comment=None)
Lose = Callable[[int, int, int], bool]


def read(segments: list[Segment]) -> CaptureDiagnosis:
    return diagnose(segments, file="test", summary=EMPTY)


def play(rtt: int, queries: list[tuple[int, list[tuple[int, int]]]], **how: object) -> Net:
    """Run exchanges over a path whose whole delay is towards the client."""
    options = dict(how)
    halves = options.pop("halves", 0)
    down = options.pop("down", None) or Path()
    down.delay = rtt * MS
    net = Net(up=Path(), down=down, **options)
    serve(net, queries, halves=halves)
    return net


def lossy(lose: Lose) -> Path:
    return Path(lose=lose)


def middle_lost(start: int, _end: int, nth: int) -> bool:
    return nth == 0 and start == 3 * 1448


def tail_lost(start: int, _end: int, nth: int) -> bool:
    return nth == 0 and start >= 12 * 1448


def tail_and_probe_lost(start: int, _end: int, nth: int) -> bool:
    return (nth == 0 and start >= 10 * 1448) or (nth == 1 and start >= 13 * 1448)


CASES: dict[str, tuple[Cause, Callable[[int], Net]]] = {
    "healthy": (Cause.HEALTHY, lambda rtt: play(rtt, [(0, NATIVE)] * 2, server=Side(initcwnd=12))),
    "idle": (
        Cause.IDLE_WINDOW_RESTART,
        lambda rtt: play(rtt, [(0, BULK), (0, BULK), (3000 * MS, NATIVE)], server=Side(initcwnd=6)),
    ),
    "fresh": (Cause.FRESH_SLOW_START, lambda rtt: play(rtt, [(0, [(0, 70_000)])], server=Side(initcwnd=4))),
    "fast retransmit": (
        Cause.FAST_RETRANSMIT,
        lambda rtt: play(rtt, [(0, BULK)], down=lossy(middle_lost), server=Side(initcwnd=20)),
    ),
    "tail loss probe": (
        Cause.TAIL_LOSS_PROBE,
        lambda rtt: play(rtt, [(0, BULK)], down=lossy(tail_lost), server=Side(initcwnd=20)),
    ),
    "timeout": (
        Cause.RTO_RETRANSMISSION,
        lambda rtt: play(rtt, [(0, BULK)], down=lossy(tail_and_probe_lost), server=Side(initcwnd=20)),
    ),
    "window after loss": (
        Cause.LOSS_REDUCED_WINDOW,
        lambda rtt: play(rtt, [(0, BULK)] * 2, down=lossy(middle_lost), server=Side(initcwnd=20)),
    ),
    "nagle": (
        Cause.NAGLE_DELAYED_ACK,
        lambda rtt: play(rtt, [(0, NATIVE)] * 2, server=Side(nagle=True), client=Side(delayed_ack=True)),
    ),
    "nagle in the request": (
        Cause.NAGLE_DELAYED_ACK,
        lambda rtt: play(
            rtt, [(0, NATIVE)] * 2, client=Side(nagle=True), server=Side(delayed_ack=True, isn=99), halves=15_000
        ),
    ),
    "cork": (Cause.CORK_TIMER, lambda rtt: play(rtt, [(0, [(0, 28), (0, 1500)])] * 2, server=Side(cork=True))),
    "small receive window": (
        Cause.RECEIVE_WINDOW,
        lambda rtt: play(rtt, [(0, BULK)] * 2, client=Side(receive_window=6 * 1448), server=Side(initcwnd=40)),
    ),
    "slow reader": (
        Cause.RECEIVE_WINDOW,
        lambda rtt: play(
            rtt,
            [(0, BULK)] * 2,
            client=Side(receive_window=8 * 1448, read_rate=100_000),
            server=Side(initcwnd=40),
        ),
    ),
    "send buffer": (
        Cause.SEND_BUFFER,
        lambda rtt: play(rtt, [(0, [(0, 40_000)])], server=Side(initcwnd=40, send_buffer=8_000)),
    ),
    "pause between rows and end": (
        Cause.SERVER_THINK_TIME,
        lambda rtt: play(rtt, [(0, [*NATIVE[:3], (60 * MS, 500)])] * 2),
    ),
    "pause before the first row": (
        Cause.SERVER_THINK_TIME,
        lambda rtt: play(rtt, [(0, NATIVE), (2000 * MS, [(70 * MS, 28), *NATIVE])], server=Side(initcwnd=20)),
    ),
    "bandwidth": (
        Cause.BANDWIDTH_SERIALISATION,
        lambda rtt: play(rtt, [(0, BULK)], down=Path(rate=4_000_000), server=Side(initcwnd=40)),
    ),
    "pacing": (
        Cause.PACING,
        lambda rtt: play(rtt, [(0, BULK)], server=Side(initcwnd=40, pace=2_000_000 if rtt < 100 else 1_000_000)),
    ),
    "client": (
        Cause.CLIENT_DELAY,
        lambda rtt: play(rtt, [(0, NATIVE)] * 2, halves=50 * MS, server=Side(initcwnd=20)),
    ),
}


@pytest.mark.parametrize("tap", ["server", "client"])
@pytest.mark.parametrize("rtt", RTTS)
@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named(case: str, rtt: int, tap: str) -> None:
    cause, build = CASES[case]
    diagnosis = read(build(rtt).taps[tap])
    last = diagnosis.exchanges[-1]
    assert last.cause is cause, (last.findings, last.flights)
    assert diagnosis.vantage is (Vantage.SERVER if tap == "server" else Vantage.CLIENT)
    assert abs((diagnosis.connections[0].min_rtt or 0) - rtt * MS) < MS // 5
    if cause is not Cause.HEALTHY:
        assert last.findings[0].cause is cause
        assert last.findings[0].evidence.frames
        assert last.findings[0].evidence.text


@pytest.mark.parametrize("tap", ["server", "client"])
def test_the_path_held_segments_back(tap: str) -> None:
    net = play(40, [(0, NATIVE[:3])] * 12, down=Path(jitter=18 * MS), server=Side(initcwnd=20))
    diagnosis = read(net.taps[tap])
    causes = [exchange.cause for exchange in diagnosis.exchanges]
    assert set(causes) <= {Cause.PATH_JITTER, Cause.HEALTHY}
    assert causes.count(Cause.PATH_JITTER) >= 3


@pytest.mark.parametrize("tap", ["server", "client"])
@pytest.mark.parametrize("initcwnd", [3, 5, 8])
def test_an_idle_restart_is_told_with_its_window_and_the_ack_it_waited_for(initcwnd: int, tap: str) -> None:
    net = play(32, [(0, BULK), (0, BULK), (2000 * MS, NATIVE)], server=Side(initcwnd=initcwnd))
    last: Exchange = read(net.taps[tap]).exchanges[-1]
    assert last.first_flight_segments == initcwnd
    assert (last.extra_round_trips or 0) >= 1
    stall = last.stalls[0]
    assert stall.outstanding_segments == initcwnd
    assert stall.ack_frame is not None
    assert stall.ack_frame in last.findings[0].evidence.frames
    assert f"{initcwnd} segments went out after the server had been silent" in last.findings[0].evidence.text
    assert last.confidence >= 0.85


def test_idle_without_a_restart_is_healthy() -> None:
    quiet = Side(initcwnd=6, restart_after_idle=False)
    net = play(32, [(0, BULK), (0, BULK), (3000 * MS, NATIVE)], server=quiet)
    for tap in ("server", "client"):
        last = read(net.taps[tap]).exchanges[-1]
        assert (last.cause, last.extra_round_trips) == (Cause.HEALTHY, 0)


@pytest.mark.parametrize(("case", "trips"), [("healthy", 0), ("nagle", 1), ("cork", 0), ("client", 0)])
def test_round_trips_beyond_the_first(case: str, trips: int) -> None:
    for tap in ("server", "client"):
        assert read(CASES[case][1](32).taps[tap]).exchanges[-1].extra_round_trips == trips


def test_slow_start_counts_its_round_trips() -> None:
    for tap in ("server", "client"):
        exchange = read(CASES["fresh"][1](80).taps[tap]).exchanges[0]
        assert [flight.segments for flight in exchange.flights] == [4, 8, 16, 21]
        assert exchange.extra_round_trips == 3

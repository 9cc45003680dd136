"""The prediction: windows after idleness, round trips, segments, and where a train stalls."""

import pytest
from tcpsim import MS, Net, Path, Side, serve

from netlab.analysis import Sending, WindowState, Write, diagnose, predict, restart_window, train_from_exchange
from netlab.segments import CaptureSummary

EMPTY = CaptureSummary(packets=0, tcp_segments=0, interfaces=(), truncated=False, comment=None)
MAX_ID = tuple(Write(size=size) for size in (28, 36, 8, 11, 2034, 12, 10, 1))
RTO = 232 * MS


def state(initcwnd: int, *, cwnd: int = 64, idle: int = 2000 * MS, restart: bool = True) -> WindowState:
    return WindowState(initcwnd=initcwnd, cwnd=cwnd, idle=idle, rto=RTO, restart_after_idle=restart)


@pytest.mark.parametrize(
    ("cwnd", "initcwnd", "idle", "window"),
    [
        (64, 8, 100 * MS, 64),  # not longer than the RTO
        (64, 8, 233 * MS, 32),
        (64, 8, 465 * MS, 16),
        (64, 8, 2000 * MS, 8),
        (5, 8, 2000 * MS, 5),  # never raised
        (9, 8, 300 * MS, 8),
    ],
)
def test_the_window_halves_once_per_timeout(cwnd: int, initcwnd: int, idle: int, window: int) -> None:
    assert restart_window(cwnd, initcwnd, idle, RTO) == window


@pytest.mark.parametrize(("initcwnd", "trips"), [(4, 1), (7, 1), (8, 1), (9, 0), (10, 0), (20, 0)])
def test_the_boundary_of_the_articles_query(initcwnd: int, trips: int) -> None:
    got = predict(MAX_ID, mss=1448, window=state(initcwnd), rtt=32 * MS)
    assert got.extra_round_trips == trips
    assert got.smallest_window == 9
    assert got.stalls_at == (initcwnd if trips else None)
    assert got.window == initcwnd


def test_what_waits_is_coalesced() -> None:
    got = predict(MAX_ID, mss=1448, window=state(4), rtt=32 * MS)
    assert got.flights == (4, 2)
    assert got.segments == 6


def test_a_batched_tail_needs_fewer_segments() -> None:
    batched = (Write(size=28), Write(size=36), Write(size=2076))
    got = predict(batched, mss=1448, window=state(8), rtt=32 * MS)
    assert (got.segments, got.extra_round_trips, got.smallest_window) == (4, 0, 4)


def test_cork_nagle_and_no_restart() -> None:
    assert predict(MAX_ID, mss=1448, window=state(8), rtt=32 * MS, sending=Sending.CORK).segments == 2
    nagle = predict(MAX_ID, mss=1448, window=state(8), rtt=32 * MS, sending=Sending.NAGLE)
    assert (nagle.segments, nagle.extra_round_trips) == (3, 1)
    assert predict(MAX_ID, mss=1448, window=state(8, restart=False), rtt=32 * MS).extra_round_trips == 0


def test_slow_start_of_a_large_response() -> None:
    got = predict([Write(size=70_000)], mss=1448, window=state(4, cwnd=4), rtt=32 * MS)
    assert got.flights == (4, 8, 16, 21)
    assert got.extra_round_trips == 3


def test_pauses_longer_than_a_round_trip_open_the_window() -> None:
    train = [Write(size=100), *[Write(size=100, pause=40 * MS)] * 10]
    assert predict(train, mss=1448, window=state(2, cwnd=2), rtt=32 * MS).extra_round_trips == 0


@pytest.mark.parametrize("bad", [[], [Write(size=0)]])
def test_no_train_no_prediction(bad: list[Write]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        predict(bad, mss=1448, window=state(8), rtt=32 * MS)


@pytest.mark.parametrize("initcwnd", [3, 6, 8, 9, 12])
@pytest.mark.parametrize("rtt", [8, 32, 120])
def test_prediction_and_simulation_agree(initcwnd: int, rtt: int) -> None:
    sizes = [(0, each.size) for each in MAX_ID]
    net = Net(up=Path(), down=Path(delay=rtt * MS), server=Side(initcwnd=initcwnd))
    serve(net, [(0, [(0, 40_000)]), (0, [(0, 40_000)]), (3000 * MS, sizes)])
    measured = diagnose(net.taps["server"], file="x", summary=EMPTY).exchanges[-1]
    got = predict(MAX_ID, mss=1448, window=state(initcwnd), rtt=rtt * MS)
    assert got.extra_round_trips == measured.extra_round_trips
    assert list(got.flights) == [flight.segments for flight in measured.flights]


def test_the_train_of_a_healthy_exchange_predicts_the_stalled_one() -> None:
    sizes = [(0, each.size) for each in MAX_ID]
    net = Net(up=Path(), down=Path(delay=32 * MS), server=Side(initcwnd=20))
    serve(net, [(0, sizes)])
    train = train_from_exchange(diagnose(net.taps["server"], file="x", summary=EMPTY).exchanges[0])
    assert [each.size for each in train] == [each.size for each in MAX_ID]
    assert predict(train, mss=1448, window=state(8), rtt=32 * MS).extra_round_trips == 1

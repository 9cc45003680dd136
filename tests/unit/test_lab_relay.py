"""The delay line's arithmetic: when a frame is due, what is lost, and what a clock that jumps does to it."""

import struct
from collections.abc import Iterator

import pytest

from netlab.lab import relay
from netlab.lab.lateness import Kind, Log
from netlab.lab.relay import Line, Relay
from netlab.units import ms, seconds

VNET = 10  # bytes in front of each frame that never travel
PLAIN = {"delay": ms(32), "jitter": 0, "loss": 0.0, "rate": 0, "limit": 3}


def line(seed: str = "1", **changed: float) -> Line:
    return Line(None, None, {**PLAIN, **changed}, seed)  # type: ignore[arg-type]


def frame(size: int = 1514) -> bytes:
    return bytes(VNET + size)


def test_a_frame_is_due_its_delay_after_it_arrived():
    assert line().due_for(seconds(5), frame()) == seconds(5) + ms(32)


def test_jitter_stays_in_its_bounds_and_keeps_the_order():
    shaped = line(jitter=ms(10))
    arrivals = range(0, 1000 * ms(5), ms(5))
    dues = [shaped.due_for(at, frame()) for at in arrivals]
    assert dues == sorted(dues)
    offsets = [due - at - ms(32) for at, due in zip(arrivals, dues, strict=True)]
    assert min(offsets) >= -ms(10) and max(offsets) <= ms(10)
    assert min(offsets) < -ms(8) and max(offsets) > ms(8)


def test_loss_is_a_fraction_and_the_same_for_the_same_seed():
    def lost(seed: str) -> list[int]:
        shaped = line(seed, loss=0.25)
        return [number for number in range(2000) if shaped.due_for(number, frame()) is None]

    assert 400 < len(lost("a")) < 600
    assert lost("a") == lost("a") != lost("b")


def test_a_rate_serialises_frames_by_what_travels():
    shaped = line(rate=8_000_000)  # one byte a microsecond
    dues = [shaped.due_for(seconds(1), frame(1000)) for _ in range(3)]
    assert dues == [seconds(1) + ms(number) + ms(32) for number in (1, 2, 3)]
    assert shaped.due_for(seconds(9), frame(500)) == seconds(9) + ms(0.5) + ms(32)  # the link had long been free


class Wire:
    """A packet socket that holds frames with the kernel's stamps, and sends to nowhere."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.frames: list[tuple[bytes, int]] = []
        self.drops = 0
        self.sent: list[bytes] = []
        self.broken = False

    def fileno(self) -> int:
        return self.number

    def recvmsg(self, _size: int, _room: int):
        if not self.frames:
            raise BlockingIOError
        data, stamp = self.frames.pop(0)
        ancillary = [(1, 35, struct.pack("=qq", *divmod(stamp, seconds(1))))]
        return data, ancillary, 0, None

    def getsockopt(self, _level: int, _option: int, _size: int) -> bytes:
        drops, self.drops = self.drops, 0
        return struct.pack("II", 0, drops)

    def send(self, data: bytes) -> None:
        if self.broken:
            raise OSError
        self.sent.append(data)


class Bench:
    """A relay between two wires, its log, and clocks that stand where they are put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Log, **changed: float) -> None:
        self.monkeypatch = monkeypatch
        self.log = log
        self.clocks(now=seconds(100), offset=seconds(1_000_000))
        self.source, self.target = Wire(10), Wire(11)
        config = {**PLAIN, **changed}
        self.line = Line(self.source, self.target, config, "1")  # type: ignore[arg-type]
        other = Line(self.target, self.source, config, "2")  # type: ignore[arg-type]
        self.relay = Relay((self.line, other), log)

    def clocks(self, *, now: int, offset: int) -> None:
        self.now, self.offset = now, offset
        self.monkeypatch.setattr(relay.time, "monotonic_ns", lambda: self.now)
        self.monkeypatch.setattr(relay, "clock_offset", lambda: self.offset)

    def arrive(self, age: int) -> None:
        """A frame that the kernel stamped `age` ns ago is read."""
        self.source.frames.append((frame(), self.now + self.offset - age))
        self.relay._read(self.line)

    def window(self):
        return self.log.read(0, 1 << 62)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    log, descriptor = Log.create()
    yield lambda **changed: Bench(monkeypatch, log, **changed)
    monkeypatch.undo()
    log.close()
    relay.os.close(descriptor)


def test_a_late_wake_up_is_not_added_to_the_delay(bench):
    made = bench()
    made.arrive(age=ms(3))
    assert made.line.queue[0][0] == made.now - ms(3) + ms(32)


def test_a_frame_is_sent_when_due_and_its_lateness_logged(bench):
    made = bench()
    made.arrive(age=0)
    made.clocks(now=made.now + ms(31), offset=made.offset)
    made.relay._send_due()
    assert made.target.sent == []
    made.clocks(now=made.now + ms(1.5), offset=made.offset)
    made.relay._send_due()
    assert len(made.target.sent) == 1
    assert made.window().latenesses == (ms(0.5),)


def test_drops_of_the_queue_the_kernel_and_the_far_end_are_counted(bench):
    made = bench()
    for _ in range(5):
        made.arrive(age=0)
    assert made.window().dropped == 2  # the limit is 3
    made.source.drops = 7
    made.arrive(age=0)
    assert made.window().dropped == 2 + 1 + 7
    made.target.broken = True
    made.clocks(now=made.now + ms(40), offset=made.offset)
    made.relay._send_due()
    assert made.window().dropped == 2 + 1 + 7 + 3
    assert made.window().lost == 0


def test_emulated_loss_is_no_drop(bench):
    made = bench(loss=1.0)
    made.arrive(age=0)
    assert (made.window().lost, made.window().dropped, len(made.line.queue)) == (1, 0, 0)


@pytest.mark.parametrize("jump", [seconds(3600), -seconds(3600), ms(5), -ms(5)])
def test_a_clock_that_is_set_is_noticed_and_delays_nothing_for_long(bench, jump: int):
    made = bench()
    made.arrive(age=0)
    assert not made.window().stepped
    made.clocks(now=made.now + ms(1), offset=made.offset + jump)
    # Stamped just before the clock was set: in the new clock it is `jump` old.
    made.arrive(age=jump)
    assert made.window().stepped
    dues = [due for due, _ in made.line.queue]
    assert dues == sorted(dues)
    assert dues[-1] <= made.now + ms(32)


def test_a_clock_that_is_slewed_is_no_step(bench):
    made = bench()
    made.clocks(now=made.now + ms(1), offset=made.offset + 20_000)
    made.arrive(age=0)
    assert not made.window().stepped


def test_the_offset_between_the_clocks_is_that_of_an_undisturbed_reading(monkeypatch: pytest.MonkeyPatch):
    offset, now = seconds(1000), [0]
    waits = iter([100, ms(4), 100, 100, 100, 100, 100, 100])  # the first reading loses its processor in between

    def monotonic() -> int:
        now[0] += 100
        return now[0]

    def real() -> int:
        now[0] += next(waits) + 100
        before = now[0] + offset
        now[0] += next(waits)
        return before

    monkeypatch.setattr(relay.time, "monotonic_ns", monotonic)
    monkeypatch.setattr(relay.time, "time_ns", real)
    assert abs(relay.clock_offset() - offset) < 1000


def test_entries_are_of_the_direction_that_they_name():
    assert (Kind.TO_CLIENT, Kind.TO_SERVER) == (0, 1)

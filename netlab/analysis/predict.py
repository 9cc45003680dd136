"""Predict a response: from a write train, the MSS and the window, how many segments, round trips, and where it stalls.

Pure arithmetic of what Linux does. Sources: RFC 5681 (slow start; 4.1 restart after idle), RFC 6928 (initial window
of 10), RFC 2861; net/ipv4/tcp_output.c: tcp_cwnd_restart (the window halves once per RTO of silence, not below
min(initcwnd, cwnd)), tcp_cwnd_validate, tcp_nagle_check, tcp_write_xmit; net/ipv4/tcp_input.c: tcp_slow_start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from netlab.diagnosis import Exchange
from netlab.segments import Direction
from netlab.units import ms, us

# Linux floors the variance part of the RTO (TCP_RTO_MIN).
RTO_FLOOR = ms(200)
_MOST_ROUNDS = 10_000
# Segments of one write leave together; a later write is at least this far away.
_ONE_WRITE = us(5)


class Sending(StrEnum):
    """How the kernel treats small writes."""

    NODELAY = "nodelay"
    NAGLE = "nagle"
    CORK = "cork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write of the server: its bytes, and the pause before it (ns)."""

    size: int
    pause: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowState:
    """The sender's window before the response, in segments; `idle` is its silence and `rto` its timeout (ns)."""

    initcwnd: int
    cwnd: int
    idle: int
    rto: int
    restart_after_idle: bool = True

    @property
    def at_start(self) -> int:
        """The window with which the response begins."""
        if not self.restart_after_idle:
            return self.cwnd
        return restart_window(self.cwnd, self.initcwnd, self.idle, self.rto)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What will happen. `stalls_at` is the 0-based segment that waits first; None if none does.

    `extra_round_trips` counts waits for an ACK; `duration` is from the first segment to the last (ns).
    """

    window: int
    segments: int
    flights: tuple[int, ...]
    extra_round_trips: int
    stalls_at: int | None
    duration: int
    smallest_window: int  # the least window at start with which nothing stalls


def restart_window(cwnd: int, initcwnd: int, idle: int, rto: int) -> int:
    """Return the window after `idle` ns of silence: halved once per RTO, not below min(initcwnd, cwnd).

    Linux tcp_cwnd_restart: `while ((delta -= rto) > 0 && cwnd > restart_cwnd) cwnd >>= 1`.
    """
    floor = min(initcwnd, cwnd)
    if rto <= 0 or idle <= rto:
        return cwnd
    left = idle - rto
    while left > 0 and cwnd > floor:
        cwnd >>= 1
        left -= rto
    return max(cwnd, floor)


def predict(
    train: Sequence[Write], *, mss: int, window: WindowState, rtt: int, sending: Sending = Sending.NODELAY
) -> Prediction:
    """Return what a response of these writes will do. Raises ValueError for a train, MSS or window that is not one."""
    if not train or mss < 1 or window.initcwnd < 1 or window.cwnd < 1 or any(each.size < 1 for each in train):
        raise ValueError("a prediction needs writes of at least 1 byte, an MSS and windows of at least 1 segment")
    writes = [Write(size=sum(each.size for each in train), pause=sum(each.pause for each in train))]
    writes = writes if sending is Sending.CORK else list(train)
    cwnd = window.at_start
    run = _Run(mss=mss, cwnd=cwnd, rtt=rtt, nagle=sending is Sending.NAGLE)
    run.play(writes)
    free = _Run(mss=mss, cwnd=1 << 30, rtt=rtt, nagle=sending is Sending.NAGLE)
    free.play(writes)
    return Prediction(
        window=cwnd,
        segments=run.segments,
        flights=tuple(run.flights()),
        extra_round_trips=run.waits,
        stalls_at=run.stalls_at,
        duration=(run.sent[-1][0] - run.sent[0][0]) if run.sent else 0,
        smallest_window=free.most_in_flight,
    )


def train_from_exchange(exchange: Exchange) -> tuple[Write, ...]:
    """Return the writes that an exchange's response segments show: one per segment, or one per packet where labelled.

    A stall's length is no pause of the server, and what came after it may be several writes in one segment: pauses
    that a stall explains are left out. Full segments that follow each other at once are one write.
    """
    stalled = {stall.resume_frame for stall in exchange.stalls if stall.ack_frame is not None}
    writes: list[Write] = []
    previous: int | None = None
    full = 0
    data = [each for each in exchange.segments if each.direction is Direction.TO_CLIENT and each.length]
    mss = max((each.length for each in data), default=1)
    for segment in data:
        if segment.retransmission:
            continue
        pause = 0 if previous is None or segment.frame in stalled else max(0, segment.at - previous)
        if full and writes and (pause <= _ONE_WRITE or segment.frame in stalled or not segment.push or full >= mss):
            last = writes.pop()
            writes.append(Write(size=last.size + segment.length, pause=last.pause))
        else:
            writes.append(Write(size=segment.length, pause=pause))
        full = segment.length if segment.length >= mss >= 536 else 0
        previous = segment.at
    return tuple(writes)


class _Run:
    """Play writes against a window: time passes in the sender's clock, ACKs come one RTT after each segment."""

    def __init__(self, *, mss: int, cwnd: int, rtt: int, nagle: bool) -> None:
        self.mss, self.cwnd, self.rtt, self.nagle = mss, cwnd, max(rtt, 1), nagle
        self.sent: list[tuple[int, int]] = []  # (sent at, size)
        self.acked = 0  # segments
        self.queue: list[int] = []  # sizes of segments not yet sent
        self.waits = 0
        self.stalls_at: int | None = None
        self.most_in_flight = 0
        self.round_first = 0  # the first segment that the last wait let go

    @property
    def segments(self) -> int:
        """Segments sent."""
        return len(self.sent)

    def play(self, writes: Sequence[Write]) -> None:
        """Send everything."""
        now = 0
        for write in writes:
            now = self._pass(now, now + write.pause)
            self._enqueue(write.size)
            self._send(now)
        for _ in range(_MOST_ROUNDS * 10):
            if not self.queue:
                return
            now = self._next_ack()
            self._take_acks(now)
            self._send(now, released=True)

    def flights(self) -> list[int]:
        """Segments per flight: a flight ends where an ACK of its first segment has come back."""
        out: list[int] = []
        start = 0
        for at, _ in self.sent:
            if not out or at >= start + self.rtt:
                out.append(0)
                start = at
            out[-1] += 1
        return out

    def _pass(self, now: int, until: int) -> int:
        """Let time pass; ACKs that arrive release what waits."""
        while self.acked < len(self.sent) and self._next_ack() <= until:
            at = self._next_ack()
            self._take_acks(at)
            self._send(at, released=True)
        return until

    def _enqueue(self, size: int) -> None:
        # A write that finds a small unsent segment at the queue's end is appended to it (tcp_sendmsg).
        if self.queue and self.queue[-1] < self.mss:
            size += self.queue.pop()
        while size > 0:
            self.queue.append(min(size, self.mss))
            size -= self.mss

    def _send(self, now: int, *, released: bool = False) -> None:
        first = True
        while self.queue and len(self.sent) - self.acked < self.cwnd:
            small_out = any(size < self.mss for _, size in self.sent[self.acked :])
            if self.nagle and self.queue[0] < self.mss and small_out:
                break
            if released and first and self.acked > self.round_first:
                # The ACK that lets this go covers what the last wait let go: one round trip more.
                self.waits += 1
                self.stalls_at = len(self.sent) if self.stalls_at is None else self.stalls_at
                self.round_first = len(self.sent)
            first = False
            self.sent.append((now, self.queue.pop(0)))
            self.most_in_flight = max(self.most_in_flight, len(self.sent) - self.acked)

    def _next_ack(self) -> int:
        return self.sent[self.acked][0] + self.rtt

    def _take_acks(self, now: int) -> None:
        limited = len(self.sent) - self.acked >= self.cwnd
        before = self.acked
        while self.acked < len(self.sent) and self.sent[self.acked][0] + self.rtt <= now:
            self.acked += 1
        if limited:
            self.cwnd += self.acked - before  # slow start: one segment more for each one acknowledged

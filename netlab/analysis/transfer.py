"""One direction of an exchange as its sender lived it: what was in flight, the silences, and what ended each.

A tap that is not at the sender sees an ACK before the sender does and the sender's reaction later; `lag` is that
time, so the same rules hold at either end and in the middle. Windows follow from sequence and ACK numbers alone.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from netlab.analysis.flow import REORDERING_WINDOW, Placed
from netlab.units import ms, us

# More lateness than this is a timestamp that wrapped or jumped, not a path.
_IMPLAUSIBLE = 60_000_000_000


class Ending(StrEnum):
    """What ended a silence of the sender."""

    ACK = "ack"  # new data right after an ACK of earlier data reached the sender
    RETRANSMISSION = "retransmission"
    SENDER = "sender"  # the sender went on by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A silence of the sender between two of its data segments. Times ns, sizes bytes."""

    before: Placed
    resume: Placed
    duration: int
    ending: Ending
    segments: int  # in flight when the gap began, less what was acknowledged before its first ACK
    bytes: int
    segments_left: int  # still in flight when the sender resumed
    ack: Placed | None  # the last ACK of new data, else duplicate ACK, that reached the sender within the gap
    first_ack: Placed | None
    acks: int  # ACKs of new data within the gap
    reaction: int  # ns from that ACK's reaching the sender to the resume; may be negative away from the sender
    duplicates: int  # duplicate ACKs and SACKs since new data was last acknowledged
    room: int | None  # receive window left when the gap began; None where it cannot be known
    small: int  # segments below the MSS in flight when the gap began
    small_left: int  # of these, still in flight when the sender resumed
    skips: bool  # the resume leaves a hole before it: bytes that never came by here
    position: int  # index of `resume` among the transfer's segments

    @property
    def promptness(self) -> int:
        """ns from the first ACK of the gap to the resume: a kernel that waits for window reacts to the first."""
        if self.ack is None or self.first_ack is None:
            return self.reaction
        return self.reaction + self.ack.at - self.first_ack.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A flight: segments sent without waiting for an ACK of the flight itself. Indices into Transfer.data."""

    first: int
    last: int
    segments: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A retransmission: of which bytes, how long after the original (or after the hole opened), and how it came."""

    packet: Placed
    wait: int  # ns since the original, or since the hole opened
    silence: int  # ns since the sender's segment before it
    quiet: int  # ns since anything moved: its last segment, or the last ACK that reached it
    duplicates: int
    is_last: bool  # the highest bytes sent so far
    is_first: bool  # the first unacknowledged byte
    repeats: int  # how often these bytes had been resent before
    in_flight: int  # segments
    top: int  # one past the highest byte sent so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """All of it. `peak` is the most segments ever in flight; `peak_bytes` likewise."""

    data: Sequence[Placed]
    acks: Sequence[Placed]
    gaps: tuple[Gap, ...]
    rounds: tuple[Round, ...]
    losses: tuple[Loss, ...]
    peak: int
    peak_bytes: int
    most_small: int  # most segments below the MSS in flight at once
    mss: int
    lag: int
    tolerance: int

    def gap_after(self, gap: Gap) -> Gap | None:
        """Return the gap right behind the segment that ended `gap`, if there is one."""
        at = bisect_right(self.gaps, gap.position, key=lambda other: other.position)
        following = self.gaps[at] if at < len(self.gaps) else None
        return following if following is not None and following.position == gap.position + 1 else None

    @property
    def retransmitted(self) -> bool:
        """Whether any byte was sent twice, or arrived to fill a hole."""
        return bool(self.losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderClock:
    """The sender's TCP timestamps against the tap's clock: how long the path held a segment beyond its least time.

    `tick` is ns per unit; `base` the least difference of capture time and timestamp. RFC 7323.
    """

    tick: int
    base: int

    def excess(self, packet: Placed) -> int:
        """Return ns above the least way here, rounded down to whole ticks; 0 without a timestamp."""
        if packet.tsval < 0:
            return 0
        late = packet.at - packet.tsval * self.tick - self.base
        # A timestamp is cut to its tick, so up to one tick of lateness is rounding.
        return late - self.tick if self.tick < late < _IMPLAUSIBLE else 0


def _newer(value: int, reference: int) -> bool:
    """Whether timestamp `value` is later than `reference`, modulo 2**32."""
    return 0 < (value - reference) & 0xFFFFFFFF < 1 << 31


def tolerance_for(lag: int) -> int:
    """Return how far an ACK's effect may stray from its due time: scheduling at the sender, jitter on the path."""
    return ms(2) if lag < ms(1) else max(ms(2), lag // 12)


# Segments, bytes, room and small segments in flight before the first ACK; the first and last ACK; how many.
_Heard = tuple[tuple[int, int, int, int], Placed | None, Placed | None, int]


class TransferBuilder:
    """Walks the segments of one direction and the ACKs of the other, in the sender's order of events."""

    def __init__(
        self, *, mss: int, lag: int, floor: int, knows_window: bool, clock: "SenderClock | None" = None
    ) -> None:
        self.mss = max(mss, 1)
        self.clock = clock
        self.lag = lag
        self.floor = floor
        self.knows_window = knows_window
        self.tolerance = tolerance_for(lag)
        # At the sender an effect never precedes its cause; elsewhere the lag is only an estimate.
        self.early = us(200) + lag // 16 if lag > us(500) else us(50)
        self.afar = lag > ms(1)
        self.pending: Sequence[Placed] = ()
        self.cursor = 0
        self.flying: deque[tuple[int, int, bool]] = deque()  # (end, segments, below the MSS)
        self.small = self.most_small = 0
        self.units = self.una = self.top = self.edge = 0
        self.duplicates = 0
        self.ack: Placed | None = None
        self.gaps: list[Gap] = []
        self.rounds: list[Round] = []
        self.losses: list[Loss] = []
        self.sent: dict[int, tuple[int, int]] = {}  # start -> (first sent at, times resent)
        self.peak = self.peak_bytes = 0

    def build(self, data: Sequence[Placed], acks: Sequence[Placed], una: int, edge: int) -> Transfer:
        """Return the transfer. `una` and `edge` are the ACK and the window's right edge before its first segment."""
        self.una = self.top = una
        if data:
            self.top = min(data[0].start, una) if una else data[0].start
            self.una = min(self.una, data[0].start) if self.una else data[0].start
        self.edge = edge
        self._walk(data, acks)
        return Transfer(
            data=data,
            acks=acks,
            gaps=tuple(self.gaps),
            rounds=tuple(self.rounds),
            losses=tuple(self.losses),
            peak=self.peak,
            peak_bytes=self.peak_bytes,
            most_small=self.most_small,
            mss=self.mss,
            lag=self.lag,
            tolerance=self.tolerance,
        )

    def _walk(self, data: Sequence[Placed], acks: Sequence[Placed]) -> None:
        previous: Placed | None = None
        mss, floor = self.mss, self.floor
        round_first = round_units = round_bytes = 0
        round_start = data[0].start if data else 0
        self.pending = acks
        for position, packet in enumerate(data):
            heard = self._hear(packet)
            again = packet.again or packet.filled_after > REORDERING_WINDOW
            if again:
                self._lose(packet, previous)
            if previous is not None and packet.at - previous.at > floor:
                self._gap(previous, packet, heard, position)
            if self.una > round_start and not again:
                self.rounds.append(Round(first=round_first, last=position - 1, segments=round_units, bytes=round_bytes))
                round_first, round_start, round_units, round_bytes = position, packet.start, 0, 0
            units = -(-packet.length // mss)
            round_units += units
            round_bytes += packet.length
            if packet.end > self.top:
                self._fly(packet, units)
            if not again:
                self.sent[packet.start] = (packet.at, 0)
            previous = packet
        if data:
            self.rounds.append(Round(first=round_first, last=len(data) - 1, segments=round_units, bytes=round_bytes))

    def _hear(self, packet: Placed) -> _Heard:
        """Take the ACKs that the sender held when it sent `packet`; return what they were, and the flight before."""
        first: Placed | None = None
        last: Placed | None = None
        flight = (self.units, self.top - self.una, self.edge - self.top, self.small)
        count, cursor, acks = 0, self.cursor, self.pending
        total, horizon = len(acks), packet.at - self.lag + self.early
        while cursor < total and acks[cursor].at <= horizon:
            ack = acks[cursor]
            if self.afar and ack.tsval >= 0 and packet.tsecr >= 0 and _newer(ack.tsval, packet.tsecr):
                break  # the segment echoes an older timestamp: the sender did not hold this ACK yet
            if not self.afar and count and ack.frame > packet.frame:
                break  # near the sender one ACK before the segment is enough: those captured after it came too late
            cursor += 1
            if ack.ack > self.una:
                if count == 0:
                    first = ack
                    flight = (self.units, self.top - self.una, self.edge - self.top, self.small)
                self._advance(ack)
                last = ack
                count += 1
            elif ack.dup or ack.sack:
                self.duplicates += 1
                last = ack if count == 0 else last
            self.edge = max(self.edge, ack.ack + ack.window)
        self.cursor = cursor
        return flight, first, last, count

    def _fly(self, packet: Placed, units: int) -> None:
        self.top = packet.end
        self.units += units
        tiny = packet.length < self.mss
        self.flying.append((packet.end, units, tiny))
        if tiny:
            self.small += 1
            self.most_small = max(self.most_small, self.small)
        if self.units > self.peak:
            self.peak = self.units
            self.peak_bytes = self.top - self.una

    def _advance(self, ack: Placed) -> None:
        self.una = una = ack.ack
        self.ack = ack
        self.duplicates = 0
        flying = self.flying
        while flying and flying[0][0] <= una:
            _, units, tiny = flying.popleft()
            self.units -= units
            self.small -= tiny

    def _lose(self, packet: Placed, previous: Placed | None) -> None:
        first_at, repeats = self.sent.get(packet.start, (-1, 0))
        wait = packet.filled_after if packet.filled_after >= 0 else packet.at - first_at if first_at >= 0 else -1
        moved = previous.at if previous is not None else packet.at
        silence = packet.at - moved
        if self.ack is not None:
            moved = max(moved, self.ack.at + self.lag)
        self.sent[packet.start] = (first_at if first_at >= 0 else packet.at, repeats + 1)
        self.losses.append(
            Loss(
                packet=packet,
                wait=max(wait, silence),
                silence=silence,
                quiet=max(0, packet.at - moved),
                duplicates=self.duplicates,
                is_last=packet.end >= self.top,
                is_first=packet.start <= self.una,
                repeats=repeats,
                in_flight=self.units,
                top=max(self.top, packet.end),
            )
        )

    def _gap(self, previous: Placed, packet: Placed, heard: _Heard, position: int) -> None:
        before, first_ack, last_ack, seen = heard
        reaction = packet.at - last_ack.at - self.lag if last_ack is not None else 0
        if self.clock is not None and reaction > self.tolerance:
            # The path held the segment back after it had left: judge by when it left.
            reaction = max(reaction - self.clock.excess(packet), 0)
        if packet.again or packet.filled_after > REORDERING_WINDOW:
            ending = Ending.RETRANSMISSION
        elif last_ack is not None and before[1] > 0 and -self.early <= reaction <= self.tolerance:
            ending = Ending.ACK
        else:
            ending = Ending.SENDER
        self.gaps.append(
            Gap(
                before=previous,
                resume=packet,
                duration=packet.at - previous.at,
                ending=ending,
                segments=before[0],
                bytes=before[1],
                segments_left=self.units,
                ack=last_ack,
                first_ack=first_ack,
                acks=seen,
                reaction=reaction,
                duplicates=self.duplicates,
                room=before[2] if self.knows_window and self.edge > 0 else None,
                small=before[3],
                small_left=self.small,
                skips=packet.start > self.top,
                position=position,
            )
        )

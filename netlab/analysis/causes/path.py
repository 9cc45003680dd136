"""The path, or the sender's own clock, spread the segments: a slow link, jitter and queues, pacing.

All of them show as many small gaps. At the sender's tap departures tell pacing from the rest; elsewhere the TCP
timestamps do (RFC 7323): they are the sender's clock at departure.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from netlab.analysis.causes.gaps import DELAYED_ACK, blocked_by_receiver, finding, shown
from netlab.analysis.flow import Placed
from netlab.analysis.transfer import Ending
from netlab.analysis.view import View
from netlab.diagnosis import Cause, Finding, Vantage
from netlab.units import ms, us

# Ethernet, IP and TCP headers with timestamps: what a link carries beside the payload.
_HEADERS = 66
_BACK_TO_BACK = us(60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a run of segments arrived. Times ns."""

    total: int  # sum of the spacings that belong to the run
    count: int
    by_size: bool  # each spacing is what the segment's bytes take at one rate
    even: bool  # all spacings are about equal
    rate: float  # bits per second
    first: Placed
    last: Placed


@lru_cache(maxsize=2)
def bandwidth_serialisation(view: View) -> Finding | None:
    """The link needed the time: segments, or the ACKs of a burst, come spaced by their size at one rate."""
    spread = _arrivals(view)
    if spread is not None and spread.by_size and _departed_together(view, spread) is not False and not view.at_sender:
        if spread.total < _worth(view):
            return None
        sure = 0.9 if _departed_together(view, spread) else 0.7
        text = (
            f"{spread.count} segments from frame {spread.first.frame} to {spread.last.frame} came spaced by size, "
            f"{shown(spread.total)} in all: a link of about {_rate(spread.rate)}"
        )
        frames = [spread.first.frame, spread.last.frame]
        return finding(view, Cause.BANDWIDTH_SERIALISATION, spread.total, confidence=sure, frames=frames, text=text)
    drain = _drain(view)
    if drain is None or drain[1] is None or drain[0] < _worth(view):
        return None
    late, rate, packet = drain
    text = (
        f"the burst up to frame {packet.frame} left at once, but its ACKs came spread over {shown(late)}, in step with "
        f"its bytes: a link of about {_rate(rate or 0)} behind this point"
    )
    return finding(view, Cause.BANDWIDTH_SERIALISATION, late, confidence=0.8, frames=[packet.frame], text=text)


def path_jitter(view: View) -> Finding | None:
    """The path delayed segments by more than its least time, in no proportion to their size."""
    if bandwidth_serialisation(view) is not None:
        return None
    data = view.response.data
    if view.clock is not None and data and not view.response.losses:
        worst = max(data, key=view.clock.excess)
        cost = view.clock.excess(worst)
        if cost < _worth(view):
            return None
        text = (
            f"by the server's timestamps frame {worst.frame} was {shown(cost)} longer on its way than the path's least "
            f"time, in no proportion to its size: jitter or a queue on the path"
        )
        return finding(view, Cause.PATH_JITTER, cost, confidence=0.8, frames=[worst.frame], text=text)
    drain = _drain(view)
    if drain is None or drain[1] is not None or drain[0] < _worth(view):
        return None
    text = (
        f"the ACK of frame {drain[2].frame} came {shown(drain[0])} later than the path's least round trip of "
        f"{shown(view.rtt or 0)}, and not in step with the bytes in flight: jitter or a queue on the path"
    )
    return finding(view, Cause.PATH_JITTER, drain[0], confidence=0.6, frames=[drain[2].frame], text=text)


def pacing(view: View) -> Finding | None:
    """The sender spaced its segments by its own clock, as bbr does."""
    spread = _arrivals(view)
    if spread is None or spread.total < max(ms(1), (view.rtt or 0) // 25):
        return None
    together = _departed_together(view, spread)
    if together or (together is None and not view.at_sender):
        return None
    text = (
        f"{spread.count} segments from frame {spread.first.frame} to {spread.last.frame} left evenly spaced, "
        f"{shown(spread.total)} in all (about {_rate(spread.rate)}), without waiting for ACKs: the sender paces"
    )
    sure = 0.85 if view.at_sender else 0.75
    frames = [spread.first.frame, spread.last.frame]
    return finding(view, Cause.PACING, spread.total, confidence=sure, frames=frames, text=text)


def late_on_the_path(view: View) -> dict[int, int]:
    """Return, by position of the resume, by how much the path and not the sender made a gap longer (ns)."""
    if view.clock is None:
        return {}
    late = {}
    for gap in view.response.gaps:
        surplus = view.clock.excess(gap.resume) - view.clock.excess(gap.before)
        if gap.ending is Ending.SENDER and surplus > max(ms(2), gap.duration // 2):
            late[gap.position] = surplus
    return late


@lru_cache(maxsize=2)
def _arrivals(view: View) -> Spread | None:
    """Return the longest run of response segments with like rate or like spacing, None if there is none."""
    data = view.response.data
    if len(data) < 5 or view.response.losses:
        return None
    limit = 4 * max((view.rtt or 0) // 8, ms(2))
    # Segments that follow each other at once are one step: a burst of the pacer, or of an offload.
    steps: list[tuple[int, int, Placed]] = []  # (spacing before, bytes of the burst before, first segment)
    burst = data[0].length + _HEADERS
    for first, second in pairwise(data):
        space = second.at - first.at
        if space > _BACK_TO_BACK:
            if space <= limit and 4 * burst >= view.response.mss:
                steps.append((space, burst, second))
            burst = 0
        burst += second.length + _HEADERS
    if len(steps) < 4:
        return None
    total = sum(step[0] for step in steps)
    covered = sum(step[1] for step in steps)
    if 2 * covered < data[-1].end - data[0].start:
        return None
    rates = sorted(step[1] * 8e9 / step[0] for step in steps)
    spaces = sorted(step[0] for step in steps)
    rate, space = rates[len(rates) // 2], spaces[len(spaces) // 2]
    by_size = sum(abs(each - rate) <= rate * 0.3 for each in rates) * 10 >= 7 * len(rates)
    even = sum(abs(each - space) <= space * 0.3 for each in spaces) * 10 >= 7 * len(spaces)
    if not by_size and not even:
        return None
    return Spread(
        total=total, count=len(steps), by_size=by_size, even=even, rate=rate, first=steps[0][2], last=steps[-1][2]
    )


def _departed_together(view: View, spread: Spread) -> bool | None:
    """Tell by the sender's timestamps whether the run left in less than half the time it took to come."""
    if view.clock is None or spread.first.tsval < 0 or spread.total < 4 * view.clock.tick:
        return None
    left = ((spread.last.tsval - spread.first.tsval) & 0xFFFFFFFF) * view.clock.tick
    return 2 * left < spread.last.at - spread.first.at


@lru_cache(maxsize=2)
def _drain(view: View) -> tuple[int, float | None, Placed] | None:
    """Return how late the last ACK of a burst was, the rate its ACKs imply (None: none), and the burst's last segment.

    Only where the tap is near the sender, and only from ACKs that were not delayed on purpose.
    """
    if view.paths.vantage is not Vantage.SERVER or view.rtt is None or view.response.losses:
        return None
    acked = [packet for packet in view.response.data if packet.acked_at >= 0]
    # The last ACK may wait for company: for 40 ms, or until the client has something to say.
    final = max((packet.acked_at for packet in acked), default=0)
    # So may any ACK of less than two full segments (RFC 9293 3.8.6.3): only a shorter wait is the path's.
    together: Counter[int] = Counter()
    for packet in acked:
        together[packet.acked_at] += packet.length
    floor, pair = DELAYED_ACK * 3 // 4 + (view.paths.downstream or 0), 2 * view.response.mss
    prompt = [
        packet
        for packet in acked
        if packet.acked_at < final and (together[packet.acked_at] >= pair or packet.acked_at - packet.at < floor)
    ]
    acked = prompt if len({packet.acked_at for packet in prompt}) >= 2 else []
    if len(acked) < 2 or any(blocked_by_receiver(gap) for gap in view.response.gaps):
        return None
    packet = max(acked, key=lambda each: each.acked_at - each.at)
    late = packet.acked_at - packet.at - (view.paths.downstream or 0)
    rate = _ack_rate(acked, late)
    if late <= 0:
        return None
    return late, rate, packet


def _ack_rate(acked: list[Placed], late: int) -> float | None:
    """Return the one rate (bit/s) at which ACKs came, if it is one, and slow enough to make the last `late` ns late."""
    sizes: Counter[int] = Counter()
    for each in acked:
        sizes[each.acked_at] += each.length + _HEADERS
    if len(sizes) < 3:
        return None
    rates = sorted(sizes[after] * 8e9 / (after - before) for before, after in pairwise(sorted(sizes)))
    rate = rates[len(rates) // 2]
    enough = 2 * sum(sizes.values()) * 8e9 / rate >= late
    steady = sum(abs(each - rate) <= rate * 0.35 for each in rates) * 10 >= 6 * len(rates)
    return rate if enough and steady else None


def _worth(view: View) -> int:
    return max(ms(3), min((view.rtt or 0) // 5, ms(20)))


def _rate(rate: float) -> str:
    return f"{rate / 1e6:.3g} Mbit/s"

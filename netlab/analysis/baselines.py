"""What two published taxonomies would have called an exchange: TAPO (CoNEXT 2015) and T-RAT (SIGCOMM 2002).

Pure functions over the same segments, for comparison columns; their rules, first match wins, not ours.
"""

from collections.abc import Sequence
from itertools import pairwise

from netlab.analysis.flow import Placed
from netlab.analysis.transfer import Ending, Gap, Transfer
from netlab.analysis.view import RTO_MIN, View
from netlab.diagnosis import Baseline
from netlab.units import NS_PER_S

_INITIAL_RTO = NS_PER_S
_SMALL_RWND = 4096


def verdicts(view: View) -> tuple[Baseline, ...]:
    """Return both taxonomies' verdicts on the exchange's longest stall (TAPO) and its whole flow (T-RAT)."""
    return (Baseline(method="tapo", verdict=tapo(view)), Baseline(method="t-rat", verdict=t_rat(view)))


def tapo(view: View) -> str:
    """Return TAPO's class of the longest gap over min(2 SRTT, RTO), or "NO_STALL"."""
    rtt = view.rtt
    trigger = _INITIAL_RTO if rtt is None else min(2 * rtt, RTO_MIN + rtt)
    gaps = [gap for gap in view.response.gaps if gap.duration > trigger]
    wait = (view.wait or 0) + (view.paths.upstream or 0)
    if view.wait is not None and wait > trigger and all(gap.duration <= wait for gap in gaps):
        return "DATA_UNAVAILABLE"
    if not gaps:
        return "NO_STALL"
    return _tapo_class(view.response, max(gaps, key=lambda gap: gap.duration))


def _tapo_class(transfer: Transfer, gap: Gap) -> str:
    largest = max(packet.length for packet in transfer.data)
    room = gap.room if gap.room is not None else 1 << 30
    lost = sum(loss.packet.at >= gap.resume.at for loss in transfer.losses[:64])
    tail = gap.resume.end >= transfer.data[-1].end - 3 * largest
    incoming = gap.ack is not None and gap.ending is Ending.ACK
    outgoing = gap.ending is Ending.RETRANSMISSION or not incoming
    table = (
        (incoming, "PACKET_DELAY"),
        (room < largest, "ZERO_RWND"),
        (room + gap.bytes <= _SMALL_RWND and lost and gap.bytes <= 3 * largest, "RETRANS_INIT_RWND_LIMITED"),
        (bool(lost) and tail, "TAIL_RETRANS"),
        (not lost and tail, "CLIENT_IDLE"),
        (lost and outgoing and gap.bytes <= 3 * largest and room > 3 * largest, "SMALL_RETRANS_CWND_LIMITED"),
        (lost and outgoing and room <= 3 * largest, "SMALL_RETRANS_RWND_LIMITED"),
        (lost >= 2, "RETRANS_DOUBLE"),
        (lost > 0 and lost >= gap.segments, "RETRANS_SERIES"),
        (lost > 0, "RETRANS_UNKNOWN"),
        (outgoing, "RESOURCE_CONSTRAINT"),
    )
    return next((name for matches, name in table if matches), "UNKNOWN")


def t_rat(view: View) -> str:
    """Return T-RAT's rate limit of the response."""
    transfer = view.response
    data = transfer.data
    if not data:
        return "unknown"
    mss = transfer.mss
    total = data[-1].end - data[0].start
    flights = [each.bytes / mss for each in transfer.rounds]
    window = max((ack.window for ack in transfer.acks), default=0) / mss
    near = [flight >= window - 3 for flight in flights]
    table = (
        (bool(transfer.losses) and _same_before_loss(flights), "bandwidth"),
        (bool(transfer.losses), "congestion"),
        (_lull(data, view.rtt or 0, mss), "application"),
        (total < 13 * mss or _slow_start_all_along(flights), "opportunity"),
        (window > 0 and any(all(near[at : at + 3]) for at in range(len(near) - 2)), "receiver window"),
        (_steady(flights), "sender window"),
    )
    return next((name for matches, name in table if matches), "transport")


def _lull(data: Sequence[Placed], rtt: int, mss: int) -> bool:
    return any(before.length < mss and after.at - before.at > rtt > 0 for before, after in pairwise(data))


def _slow_start_all_along(flights: list[float]) -> bool:
    """Whether every flight but the last, which may be a rest, is 1.5 times the one before."""
    return all(after >= 1.5 * before for before, after in pairwise(flights[:-1]))


def _same_before_loss(flights: list[float]) -> bool:
    return len(flights) >= 4 and max(flights[1:-1]) - min(flights[1:-1]) <= 2


def _steady(flights: list[float]) -> bool:
    if len(flights) < 4:
        return False
    ordered = sorted(flights)
    median, eighty = ordered[len(ordered) // 2], ordered[len(ordered) * 8 // 10]
    return eighty < median + 3 and sum(median - 2 <= flight <= eighty + 1 for flight in flights) >= 4

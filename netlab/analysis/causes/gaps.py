"""What a gap can be, decided once for all causes: a closed receive window, Nagle's wait, a full window, a pause."""

from netlab.analysis.transfer import Ending, Gap, Transfer
from netlab.analysis.view import RTO_MIN, Past, View
from netlab.diagnosis import Cause, Evidence, Finding, Vantage
from netlab.units import as_ms, ms, us

# Linux delays an ACK by 40 ms at least (TCP_DELACK_MIN) once a connection talks in turns.
DELAYED_ACK = ms(40)
# The kernel's timers tick at 100 to 1000 Hz.
JIFFY = ms(10)


def blocked_by_receiver(gap: Gap) -> bool:
    """Whether the receiver's window had no room for the segment that came after the gap."""
    if gap.ending is Ending.RETRANSMISSION or gap.room is None:
        return False
    return gap.room < gap.resume.length


def nagle(gap: Gap, transfer: Transfer, *, past: Past, rtt: int) -> bool:
    """Whether the gap is Nagle's: one small segment in flight, and the next small one sent when it is acked.

    RFC 896; Linux tcp_nagle_check (net/ipv4/tcp_output.c) with Minshall's rule: only a small segment in flight waits.
    """
    if gap.ending is not Ending.ACK or gap.small != 1 or gap.small_left or gap.resume.length >= transfer.mss:
        return False
    if past.small > 1 or transfer.most_small > 1:
        return False  # this sender has had two small segments in flight: it uses TCP_NODELAY
    if gap.segments <= 3:
        return True
    # More in flight than a chat has: a full window looks the same unless the ACK was a delayed one.
    known = gap.segments in (past.initial, *past.restarts)
    return not known and gap.duration >= rtt + DELAYED_ACK * 3 // 4


def full_window(gap: Gap, transfer: Transfer, past: Past, rtt: int) -> bool:
    """Whether the sender stood at a full window: the first ACK to reach it let the next segment go."""
    if gap.ending is not Ending.ACK or gap.first_ack is None or blocked_by_receiver(gap):
        return False
    if nagle(gap, transfer, past=past, rtt=rtt) or 4 * gap.duration < rtt:
        return False
    late = gap.promptness
    return late <= (us(500) if transfer.lag < ms(1) else transfer.tolerance + rtt // 20)


def bulk(gap: Gap, transfer: Transfer) -> bool:
    """Whether full segments stand on both sides of the gap: there was more to send all along."""
    return gap.resume.length >= transfer.mss and gap.before.length >= transfer.mss


def window_stops(transfer: Transfer, past: Past, rtt: int | None) -> list[Gap]:
    """Return the gaps in which the sender stood at a full window."""
    return [] if rtt is None else [gap for gap in transfer.gaps if full_window(gap, transfer, past, rtt)]


def timed_out_unseen(view: View, gap: Gap) -> bool:
    """Whether the gap is a retransmission timeout whose lost segments never came by this tap.

    After it the window is one segment: one goes, its ACK is awaited, though full segments wait behind it.
    """
    if view.at_sender or gap.ending is not Ending.SENDER or gap.duration < RTO_MIN - JIFFY:
        return False
    following = view.response.gap_after(gap)
    return following is not None and following.ending is Ending.ACK and following.segments == 1


def tail_lost_unseen(view: View, gap: Gap) -> bool:
    """Whether the gap is as long as a lone lost segment takes, and its segment is the last one, seen from afar.

    The ACKs of the others find one segment in flight, whose probe is due one RTO after it was sent
    (net/ipv4/tcp_output.c, tcp_schedule_loss_probe). A cork's timer starts one round trip later: at the last ACK.
    """
    last = gap.position == len(view.response.data) - 1
    if view.at_sender or not last or gap.ending is not Ending.SENDER or gap.skips or view.rtt is None:
        return False
    if view.past.peak_before_loss and could_be_a_lost_tail(view, gap):
        return True  # the path is known to lose
    by_loss, by_cork = abs(gap.duration - view.rto), abs(gap.duration - view.rto - view.rtt)
    return by_loss <= JIFFY and by_loss < by_cork


def could_be_a_lost_tail(view: View, gap: Gap) -> bool:
    """Whether a lone last segment came so late that its first copy may have been lost before it came by here.

    A pause that the exchange before this one showed too is the server's own: losses do not come every time.
    """
    if view.paths.vantage is Vantage.SERVER or gap.position != len(view.response.data) - 1:
        return False
    if gap.duration < 2 * (view.rtt or 0) or gap.duration > 2 * view.rto + ms(100):
        return False
    return abs(gap.duration - view.past.pause) > JIFFY


def lone_ack_after(view: View) -> int | None:
    """Return how long after the request its ACK came without data, before the response (ns); None if none did."""
    first = view.raw.first_down
    if first is None or not view.request.data:
        return None
    sent = view.request.data[-1]
    for packet in view.raw.placed:
        if packet is first:
            return None
        if packet.down and packet.end == packet.start and packet.ack >= sent.end:
            return packet.at - sent.at
    return None


def answer_lost_unseen(view: View) -> bool:
    """Whether the response's first segment was lost before it came by here, and sent again one RTO later.

    A server that is still at work acknowledges the request after 40 ms at most; the ACK that travelled with a lost
    response never comes.
    """
    if view.at_sender or view.wait is None or view.rtt is None or abs(view.wait - view.rto) > JIFFY + view.rtt // 20:
        return False
    return lone_ack_after(view) is None and not view.response.losses


def quiet_before(view: View, gap: Gap) -> int | None:
    """Return the longest silence of the server before the burst that led to `gap`: idle, or a pause in the response.

    The congestion window shrinks only while nothing is in flight.
    """
    longest = view.idle
    for other in view.response.gaps:
        if other.position >= gap.position:
            break
        if other.segments_left == 0 and (longest is None or other.duration > longest):
            longest = other.duration
    return longest


def finding(view: View, cause: Cause, cost: int, *, confidence: float, frames: list[int], text: str) -> Finding:
    """Return a finding, its cost in ns and in round trips."""
    return Finding(
        cause=cause,
        cost=cost,
        round_trips=view.round_trips(cost),
        confidence=round(max(0.05, min(confidence, 0.99)), 2),
        evidence=Evidence(frames=tuple(dict.fromkeys(frames)), text=text),
    )


def shown(duration: int) -> str:
    """A duration for a sentence."""
    value = as_ms(duration)
    return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def segments(count: int) -> str:
    """A count of segments for a sentence."""
    return f"{count} segment" if count == 1 else f"{count} segments"


def frames_of(gaps: list[Gap]) -> list[int]:
    """The frames that show each gap: before, the ACK, after."""
    frames: list[int] = []
    for gap in gaps[:20]:
        frames += [gap.before.frame, *([gap.ack.frame] if gap.ack is not None else []), gap.resume.frame]
    return frames

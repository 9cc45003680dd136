"""The sender held a small segment back on purpose: Nagle's rule, or TCP_CORK and its timer."""

from netlab.analysis.causes.gaps import (
    DELAYED_ACK,
    JIFFY,
    answer_lost_unseen,
    blocked_by_receiver,
    could_be_a_lost_tail,
    finding,
    frames_of,
    lone_ack_after,
    nagle,
    shown,
    tail_lost_unseen,
    timed_out_unseen,
)
from netlab.analysis.transfer import Ending, Gap, Transfer
from netlab.analysis.view import RTO_MIN, View
from netlab.diagnosis import Cause, Finding
from netlab.units import ms


def nagle_delayed_ack(view: View) -> Finding | None:
    """A small segment waited for the ACK of another small one, and the receiver delayed that ACK."""
    held = [(gap, view.response) for gap in nagle_gaps(view, view.response)]
    asked = [(gap, view.request) for gap in nagle_gaps(view, view.request)]
    gaps = [gap for gap, _ in asked + held]
    if not gaps:
        return None
    first = gaps[0]
    who = "the client" if asked else "the server"
    late = [gap for gap in gaps if _delayed(view, gap)]
    delay = "; the ACK itself was delayed by about 40 ms" if late else ""
    ack = f" in frame {first.ack.frame}" if first.ack is not None else ""
    text = (
        f"{who} had {first.bytes} bytes in flight, less than a full segment at the end, and sent the next "
        f"{first.resume.length} bytes only when the ACK{ack} came, {shown(first.duration)} later: "
        f"Nagle's rule without TCP_NODELAY{delay}"
    )
    confidence = 0.97 if late or len(gaps) > 1 else 0.85
    if first.segments == 1 and view.past.initial == 1:
        confidence -= 0.4  # a window of one segment looks the same
    cost = sum(gap.duration for gap in gaps)
    return finding(view, Cause.NAGLE_DELAYED_ACK, cost, confidence=confidence, frames=frames_of(gaps), text=text)


def cork_timer(view: View) -> Finding | None:
    """Less than a segment waited under TCP_CORK until the kernel's timer let it go."""
    gaps = cork_gaps(view)
    first_byte = corked_first(view)
    if not gaps and first_byte is None:
        return None
    cost = sum(gap.duration for gap in gaps) + (first_byte or 0)
    frames = frames_of(gaps)
    if first_byte is not None and view.raw.first_down is not None:
        frames.append(view.raw.first_down.frame)
    waited = gaps[0].duration if gaps else first_byte or 0
    text = (
        f"a segment below the MSS came {shown(waited)} late with no ACK to let it go: the 200 ms floor of the "
        f"kernel's timer, after which TCP_CORK (or MSG_MORE) gives up waiting for more"
    )
    confidence = (0.85 if view.at_sender else 0.65) if gaps else 0.55
    if gaps and view.timer_waits < 2 and could_be_a_lost_tail(view, gaps[0]):
        confidence = 0.45
    if not gaps and not view.at_sender and (lone_ack_after(view) or 0) < (view.rtt or 0) + DELAYED_ACK // 2:
        # An ACK at once says nothing of when the response left; but losses do not come every time.
        confidence = 0.7 if view.timer_waits > 1 else 0.45
    elif view.timer_waits > 1:
        confidence = max(confidence, 0.75)
    return finding(view, Cause.CORK_TIMER, cost, confidence=confidence, frames=frames, text=text)


def nagle_gaps(view: View, transfer: Transfer) -> list[Gap]:
    """Return the gaps that Nagle's rule made."""
    rtt = view.rtt or 0
    past = view.past if transfer is view.response else view.request_past
    gaps = [gap for gap in transfer.gaps if nagle(gap, transfer, past=past, rtt=rtt)]
    return [gap for gap in gaps if 4 * gap.duration >= rtt and not blocked_by_receiver(gap)]


def cork_gaps(view: View) -> list[Gap]:
    """Return the gaps of the response that end when the cork's timer does."""
    return [gap for gap in view.response.gaps if _corked(view, gap)]


def corked_first(view: View) -> int | None:
    """Return the wait before the first byte if it is the cork's: a lone small response, as late as the timer."""
    data = view.response.data
    if view.wait is None or not data or data[0].length >= view.response.mss or data[0].again:
        return None
    total = data[-1].end - data[0].start
    if total >= view.response.mss or not _timer_long(view, view.wait) or answer_lost_unseen(view):
        return None
    return view.wait


def _corked(view: View, gap: Gap) -> bool:
    if gap.ending is not Ending.SENDER or gap.resume.length >= view.response.mss or gap.skips:
        return False
    if timed_out_unseen(view, gap) or tail_lost_unseen(view, gap):
        return False
    since = gap.duration
    if gap.ack is not None:
        # The timer starts when the last segment in flight is acknowledged.
        since = min(since, gap.resume.at - gap.ack.at - view.response.lag)
    return _timer_long(view, since) or _timer_long(view, gap.duration)


def _timer_long(view: View, waited: int) -> bool:
    rtt = view.rtt or 0
    spare = JIFFY + rtt // 20
    return RTO_MIN - ms(4) <= waited <= RTO_MIN + JIFFY or abs(waited - RTO_MIN - rtt) <= spare


def _delayed(view: View, gap: Gap) -> bool:
    return gap.duration >= (view.rtt or 0) + DELAYED_ACK * 3 // 4

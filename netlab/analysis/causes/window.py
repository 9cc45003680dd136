"""The sender's own window was full: after idling, at the start, after loss, or because of its send buffer.

Theory: RFC 5681 (slow start, 4.1 restarting idle connections), RFC 6928 (initial window), RFC 2861 and Linux
tcp_cwnd_restart (net/ipv4/tcp_output.c): after each RTO of silence the window halves, down to the initial one.
"""

from enum import Enum

from netlab.analysis.causes.gaps import (
    finding,
    frames_of,
    held_back_until,
    quiet_before,
    segments,
    shown,
    timed_out_unseen,
    window_stops,
)
from netlab.analysis.predict import restart_window
from netlab.analysis.transfer import Gap
from netlab.analysis.view import View
from netlab.diagnosis import Cause, Finding, Vantage


class Story(Enum):
    """How a full window came about."""

    IDLE = "idle"
    FRESH = "fresh"
    LOSS = "loss"
    BUFFER = "buffer"
    IMPOSSIBLE = "impossible"  # the window cannot have been this small: something else held the sender
    UNKNOWN = "unknown"  # too little of the connection was captured


def stops_of(view: View) -> list[Gap]:
    """Return the gaps of the response in which the server stood at a full window, impossible ones left out."""
    return [gap for gap in window_stops(view.response, view.past, view.rtt) if held_back_until(view, gap) is not False]


def story(view: View, stops: list[Gap]) -> Story:
    """Tell how the window that `stops` show came to be so small."""
    first = stops[0]
    past, held = view.past, first.segments
    quiet = quiet_before(view, first)
    lost = any(loss.packet.at < first.resume.at for loss in view.response.losses) or _after_timeout(view, first)
    rested = quiet is not None and quiet > view.rto
    if lost or (past.peak_before_loss > held and past.window <= held and not _like_a_restart(view, held)):
        return Story.LOSS
    if _constant(view, stops):
        return Story.BUFFER
    if held <= past.burst - 2:
        return Story.IMPOSSIBLE
    if rested:
        if past.window > held:
            return Story.IDLE
        return Story.FRESH if view.complete else Story.UNKNOWN
    if past.window > held:
        return Story.IMPOSSIBLE
    return Story.FRESH if view.complete else Story.UNKNOWN


def idle_window_restart(view: View) -> Finding | None:
    """The window had shrunk while the connection was idle, so the response's last segments waited for an ACK."""
    stops = stops_of(view)
    if not stops or story(view, stops) is not Story.IDLE:
        return None
    first, past = stops[0], view.past
    held = first.segments
    quiet = quiet_before(view, first) or 0
    cost = sum(gap.duration for gap in stops)
    predicted = restart_window(past.window, past.initial or min((held, *past.restarts)), quiet, view.rto)
    confidence = 0.85
    if past.initial is not None or past.restarts:
        confidence = 0.98 if abs(predicted - held) <= 1 or held in past.restarts else 0.75
    if held_back_until(view, first) is None and view.paths.vantage is not Vantage.SERVER:
        confidence -= 0.05
    if first.resume.at - (first.ack or first.resume).at - view.response.lag > view.response.tolerance // 2:
        confidence -= 0.05
    if view.paths.vantage is Vantage.UNKNOWN:
        confidence -= 0.2
    text = (
        f"{segments(held)} went out after the server had been silent for {shown(quiet)} (longer than its RTO of about "
        f"{shown(view.rto)}), then nothing for {shown(first.duration)}{_in_rtts(view, first)} until {_release(first)}; "
        f"{_left(view, first)}: the window after idle was {segments(held)}, the response needs "
        f"{sum(each.segments for each in view.response.rounds)}"
    )
    if past.window > held:
        text += f"; before, this connection's window had been at least {past.window}"
    return finding(view, Cause.IDLE_WINDOW_RESTART, cost, confidence=confidence, frames=frames_of(stops), text=text)


def fresh_slow_start(view: View) -> Finding | None:
    """The connection is young: its window had not grown to what the response needs."""
    stops = stops_of(view)
    if not stops or story(view, stops) is not Story.FRESH:
        return None
    flights = [each.segments for each in view.response.rounds]
    growing = len(stops) > 1 and flights[-2] >= flights[0]
    confidence = 0.95 if growing or view.past.exchanges <= 2 else 0.8
    if view.paths.vantage is Vantage.UNKNOWN:
        confidence -= 0.2
    first = stops[0]
    text = (
        f"the connection's window had never been larger than {segments(first.segments)}; flights of "
        f"{', '.join(str(each) for each in flights[:8])}{', ...' if len(flights) > 8 else ''} segments went out one "
        f"round trip apart, the first stopped for {shown(first.duration)}{_in_rtts(view, first)} until "
        f"{_release(first)}"
    )
    cost = sum(gap.duration for gap in stops)
    return finding(view, Cause.FRESH_SLOW_START, cost, confidence=confidence, frames=frames_of(stops), text=text)


def loss_reduced_window(view: View) -> Finding | None:
    """An earlier loss had cut the window, so the response waited for ACKs that it would not have needed."""
    stops = stops_of(view)
    if not stops or story(view, stops) is not Story.LOSS:
        return None
    first = stops[0]
    lost = [loss.packet.frame for loss in view.response.losses if loss.packet.at < first.resume.at]
    peak = max(view.past.peak_before_loss, view.response.peak)
    where = f"the retransmission in frame {lost[0]}" if lost else "an earlier retransmission on this connection"
    text = (
        f"after {where} the window was {segments(first.segments)}, where up to {peak} had been in flight before; "
        f"the response stopped {len(stops)} time{'s' if len(stops) > 1 else ''}, the first for "
        f"{shown(first.duration)}{_in_rtts(view, first)} until {_release(first)}"
    )
    cost = sum(gap.duration for gap in stops)
    confidence = 0.9 if lost or peak > first.segments else 0.7
    frames = [*lost[:3], *frames_of(stops)]
    return finding(view, Cause.LOSS_REDUCED_WINDOW, cost, confidence=confidence, frames=frames, text=text)


def send_buffer(view: View) -> Finding | None:
    """The server's send buffer, not its window, limited each flight: all stop at the same number of bytes."""
    stops = stops_of(view)
    if not stops or story(view, stops) is not Story.BUFFER:
        return None
    held = sorted(gap.bytes for gap in stops)[len(stops) // 2]
    cost = sum(gap.duration for gap in stops)
    text = (
        f"{len(stops)} times the server stopped with {held} bytes in flight and went on when an ACK came: the flights "
        f"do not grow, nothing was lost, and the receiver had room for more; a send buffer of about {held} bytes "
        f"fills before the window does"
    )
    confidence = 0.9 if len(stops) >= 4 else 0.75
    return finding(view, Cause.SEND_BUFFER, cost, confidence=confidence, frames=frames_of(stops), text=text)


def _constant(view: View, stops: list[Gap]) -> bool:
    """Whether the bytes in flight at each stop stay the same, where slow start would double them."""
    if len(stops) < 3 or view.response.losses:
        return False
    held = [gap.bytes for gap in stops]
    if min(gap.segments for gap in stops) < 2:
        return False
    return max(held) - min(held) <= max(view.response.mss, min(held) // 5)


def _after_timeout(view: View, first: Gap) -> bool:
    """Whether a timeout that left no other trace here came before: its window is one segment (RFC 5681 3.1)."""
    return first.segments == 1 and any(
        timed_out_unseen(view, gap) for gap in view.response.gaps if gap.position < first.position
    )


def _like_a_restart(view: View, held: int) -> bool:
    return held in view.past.restarts or held == view.past.initial


def _in_rtts(view: View, gap: Gap) -> str:
    return f" ({gap.duration / view.round_trip:.2f} RTT)" if view.rtt else ""


def _release(gap: Gap) -> str:
    return f"the ACK in frame {gap.ack.frame}" if gap.ack is not None else "an ACK"


def _left(view: View, gap: Gap) -> str:
    last = max((each.end for each in view.response.data), default=0)
    left = last - gap.resume.start
    labels = [mark.label for mark in view.raw.marks[1] if mark.end > gap.resume.start]
    named = f" ({', '.join(dict.fromkeys(labels[:4]))})" if labels else ""
    return f"{left} byte{'s were' if left != 1 else ' was'} left{named}"

"""The sender's own window was full: after idling, at the start, after loss, or because of its send buffer.

Theory: RFC 5681 (slow start, 4.1 restarting idle connections), RFC 6928 (initial window), RFC 2861 and Linux
tcp_cwnd_restart (net/ipv4/tcp_output.c): after each RTO of silence the window halves, down to the initial one.
"""

from enum import Enum
from functools import lru_cache

from netlab.analysis.causes.gaps import (
    blocked_by_receiver,
    bulk,
    finding,
    frames_of,
    nagle,
    quiet_before,
    segments,
    shown,
    timed_out_unseen,
    window_stops,
)
from netlab.analysis.predict import restart_window
from netlab.analysis.transfer import Ending, Gap
from netlab.analysis.view import View
from netlab.diagnosis import Cause, Finding, Vantage
from netlab.units import ms, us


class Story(Enum):
    """How a full window came about."""

    IDLE = "idle"
    FRESH = "fresh"
    LOSS = "loss"
    BUFFER = "buffer"
    IMPOSSIBLE = "impossible"  # the window cannot have been this small: something else held the sender
    UNKNOWN = "unknown"  # too little of the connection was captured


@lru_cache(maxsize=2)
def stops_of(view: View) -> list[Gap]:
    """Return the gaps of the response in which the server stood at a full window.

    After a loss the window counts what selective ACKs report, and may take several ACKs to open: there, any pause
    with data in flight is the window's.
    """
    stops = window_stops(view.response, view.past, view.rtt)
    lossy = view.past.peak_before_loss > 0 or bool(view.response.losses)
    if not lossy or view.rtt is None:
        return stops
    sure = {gap.position for gap in stops}
    held = [gap for gap in view.response.gaps if gap.position in sure or _held_after_loss(view, gap)]
    return [gap for gap in held if 4 * gap.duration >= view.rtt]


def _held_after_loss(view: View, gap: Gap) -> bool:
    full = gap.before.length >= view.response.mss
    waited = gap.ending is Ending.ACK or (full and gap.ending is Ending.SENDER and gap.segments_left > 0)
    short = 2 * gap.duration <= 3 * view.round_trip and gap.segments > 0
    if not waited or not short or blocked_by_receiver(gap):
        return False
    return not nagle(gap, view.response, past=view.past, rtt=view.round_trip)


def story(view: View, stops: list[Gap]) -> Story:
    """Tell how the window that `stops` show came to be so small."""
    first = stops[0]
    past, held = view.past, first.segments
    quiet = quiet_before(view, first)
    lost = any(loss.packet.at < first.resume.at for loss in view.response.losses) or _after_timeout(view, first)
    rested = quiet is not None and quiet > view.rto
    if lost or (past.peak_before_loss > held and not (rested and (past.window > held or _like_a_restart(view, held)))):
        return Story.LOSS
    if _constant(view, stops):
        return Story.BUFFER
    known = Story.FRESH if view.complete else Story.UNKNOWN
    grown = past.window > held
    if held > past.burst - 2:
        if rested and grown:
            return Story.IDLE
        if past.proved <= held and past.restarts and past.peak > held:
            return Story.IDLE  # it shrank before, and has not grown back
        if past.proved <= held and not (grown and bulk(first, view.response)):
            return known
    # The window had been larger, and nothing made it smaller: something else held the sender.
    return Story.BUFFER if bulk(first, view.response) else Story.IMPOSSIBLE


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
    confidence = _trust(view, first)
    if abs(predicted - held) > 1 and held not in past.restarts and past.initial is not None:
        confidence -= 0.15
    since = (
        f"after the server had been silent for {shown(quiet)} (longer than its RTO of about {shown(view.rto)})"
        if quiet > view.rto
        else "while the window had not grown back since it shrank in an earlier silence"
    )
    text = (
        f"{segments(held)} went out {since}, then nothing for {shown(first.duration)}{_in_rtts(view, first)} until "
        f"{_release(first)}; {_left(view, first)}: the window after idle was {segments(held)}, the response needs "
        f"{sum(each.segments for each in view.response.rounds)}"
    )
    largest = max(past.window, past.peak)
    if largest > held:
        text += f"; before, this connection's window had been at least {largest}"
    return finding(view, Cause.IDLE_WINDOW_RESTART, cost, confidence=confidence, frames=frames_of(stops), text=text)


def fresh_slow_start(view: View) -> Finding | None:
    """The connection is young: its window had not grown to what the response needs."""
    stops = stops_of(view)
    if not stops or story(view, stops) is not Story.FRESH:
        return None
    flights = [each.segments for each in view.response.rounds]
    growing = len(stops) > 1 and flights[-2] >= flights[0]
    first = stops[0]
    full = bulk(first, view.response)
    confidence = 0.97 if growing else 0.78 if full else min(_trust(view, first), 0.75)
    if view.paths.vantage is Vantage.UNKNOWN:
        confidence -= 0.2
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
    constant = _constant(view, stops)
    cost = sum(gap.duration for gap in stops)
    often = f"{len(stops)} times" if len(stops) > 1 else "once"
    how = "the flights do not grow" if constant else f"its window had held {view.past.window} segments before"
    text = (
        f"{often} the server stopped with about {held} bytes in flight and went on when ACKs came; {how}, nothing was "
        f"lost, and the receiver had room for more: a send buffer of about {held} bytes fills before the window does"
    )
    confidence = (
        0.9 if constant and len(stops) >= 4 else 0.75 if constant or view.past.proved > stops[0].segments else 0.6
    )
    return finding(view, Cause.SEND_BUFFER, cost, confidence=confidence, frames=frames_of(stops), text=text)


def _trust(view: View, first: Gap) -> float:
    """Return how surely the stop is the window's and no pause of the server that happens to end with an ACK."""
    past = view.past
    near = view.response.lag < ms(1)
    prompt = first.promptness <= (us(150) if near else us(500) + view.response.lag // 100)
    seen = past.peak > first.segments  # this connection really had more in flight, so the window did shrink
    known = first.segments in (past.initial, *past.restarts)
    sure = (0.9 if prompt else 0.6) + (0.05 if seen else 0.0) + (0.03 if known else 0.0)
    if not near:
        sure -= 0.05
    if not seen and not prompt:
        sure -= 0.15
    return sure - (0.2 if view.paths.vantage is Vantage.UNKNOWN else 0.0)


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

"""An end, not the network, took the time: a receiver without room, a server at work, a client that dawdles."""

from netlab.analysis.causes import loss, path, timers, window
from netlab.analysis.causes.gaps import blocked_by_receiver, could_be_a_lost_tail, finding, frames_of, nagle, shown
from netlab.analysis.transfer import Ending, Gap
from netlab.analysis.view import View
from netlab.diagnosis import Cause, Finding


def receive_window(view: View) -> Finding | None:
    """The receiver's window was too small, or closed, for what the sender had next."""
    gaps = [gap for transfer in (view.request, view.response) for gap in transfer.gaps if blocked_by_receiver(gap)]
    if not gaps:
        return None
    cost = sum(gap.duration for gap in gaps)
    worst = max(gaps, key=lambda gap: gap.duration)
    room = max(worst.room or 0, 0)
    text = (
        f"{len(gaps)} time{'s' if len(gaps) > 1 else ''} the sender stopped because the receiver's window had no room: "
        f"after frame {worst.before.frame} {room} bytes of window were left, the next segment had "
        f"{worst.resume.length}, and {shown(worst.duration)} passed until frame {worst.resume.frame}"
    )
    return finding(view, Cause.RECEIVE_WINDOW, cost, confidence=0.95, frames=frames_of(gaps), text=text)


def server_think_time(view: View) -> Finding | None:
    """The server had nothing to send: it was at work, before the first byte or in the middle of the response."""
    gaps = think_gaps(view)
    wait = first_wait(view)
    cost = sum(gap.duration for gap in gaps) + wait
    longest = max([wait, *(gap.duration for gap in gaps)])
    if longest < view.think_floor and cost < 2 * view.think_floor:
        return None
    parts, frames = [], frames_of(gaps)
    confidence = 0.95 if view.at_sender else 0.85
    if wait >= view.think_floor and view.raw.first_down is not None:
        parts.append(f"the first byte (frame {view.raw.first_down.frame}) came {shown(wait)} after the request was due")
        frames.append(view.raw.first_down.frame)
        confidence -= 0.1 if view.paths.bound else 0
    if gaps:
        worst = max(gaps, key=lambda gap: gap.duration)
        parts.append(
            f"the response paused for {shown(worst.duration)} before frame {worst.resume.frame} and went on without "
            f"waiting for an ACK"
        )
        confidence = min(confidence, _surety(view, worst))
    text = "; ".join(parts) + ": the server was at work"
    return finding(view, Cause.SERVER_THINK_TIME, cost, confidence=confidence, frames=frames, text=text)


def client_delay(view: View) -> Finding | None:
    """The client sent its request late: in pieces with a pause, or after a Ping whose answer it awaited."""
    gaps = [
        gap
        for gap in view.request.gaps
        if gap.ending is Ending.SENDER
        and not blocked_by_receiver(gap)
        and gap.duration >= max(view.think_floor // 2, 1)
    ]
    gaps += [
        gap
        for gap in view.request.gaps
        if gap.ending is Ending.ACK
        and not nagle(gap, view.request, past=view.request_past, rtt=view.rtt or 0)
        and gap.segments_left == 0
        and gap.segments < 3
    ]
    cost = sum(gap.duration for gap in gaps)
    if gaps:
        worst = max(gaps, key=lambda gap: gap.duration)
        text = (
            f"the client paused for {shown(worst.duration)} within its request, between frames {worst.before.frame} "
            f"and {worst.resume.frame}: the server could not start before the rest came"
        )
        return finding(view, Cause.CLIENT_DELAY, cost, confidence=0.9, frames=frames_of(gaps), text=text)
    if view.ping is None:
        return None
    text = (
        f"the client sent a Ping first and waited {shown(view.ping_cost)} for the Pong in frame {view.ping.frame} "
        f"before it sent the query: a round trip of the client's own"
    )
    return finding(view, Cause.CLIENT_DELAY, view.ping_cost, confidence=0.85, frames=[view.ping.frame], text=text)


def think_gaps(view: View) -> list[Gap]:
    """Return the gaps of the response that the server ended by itself, other explanations excluded."""
    corked = {gap.position for gap in timers.cork_gaps(view)}
    unseen = {each.loss.packet.frame for each in loss.episodes(view)}
    early = path.late_on_the_path(view)
    stops = window.stops_of(view)
    stopped = {gap.position for gap in stops}
    impossible = bool(stops) and window.story(view, stops) is window.Story.IMPOSSIBLE
    chosen = []
    for gap in view.response.gaps:
        at_stop = gap.position in stopped
        elsewhere = gap.position in corked or (at_stop and not impossible) or gap.resume.frame in unseen
        if elsewhere or gap.position in early or blocked_by_receiver(gap):
            continue
        # An ACK came before, but the first one had come long before: it was not what the server waited for.
        late = gap.ending is Ending.ACK and not at_stop and not nagle_here(view, gap)
        lazy = gap.ending is Ending.ACK and impossible and at_stop
        if gap.ending is Ending.SENDER or lazy or late:
            chosen.append(gap)
    return chosen


def nagle_here(view: View, gap: Gap) -> bool:
    """Whether the gap of the response is Nagle's."""
    return nagle(gap, view.response, past=view.past, rtt=view.rtt or 0)


def first_wait(view: View) -> int:
    """Return the server's time before its first byte (ns), 0 where something else explains it."""
    if view.wait is None or timers.corked_first(view) is not None:
        return 0
    data = view.response.data
    if not data or data[0].again or any(each.request or each.loss.packet is data[0] for each in loss.episodes(view)):
        return 0
    held = view.clock.excess(data[0]) if view.clock is not None else 0
    return max(view.wait - held, 0)


def _surety(view: View, gap: Gap) -> float:
    if gap.ending is Ending.ACK:
        return 0.7
    if view.at_sender:
        return 0.95
    # From afar a lost tail and a pause of the same length look alike.
    return 0.55 if could_be_a_lost_tail(view, gap) else 0.85

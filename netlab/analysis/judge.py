"""From a view to an exchange: run the causes, weigh what they found, say what stays open."""

from bisect import bisect_right

from netlab.analysis import baselines
from netlab.analysis.causes import CAUSES, SMOOTH
from netlab.analysis.causes.gaps import shown
from netlab.analysis.causes.loss import episodes
from netlab.analysis.flow import PSH, REORDERING_WINDOW, direction
from netlab.analysis.labels import Mark
from netlab.analysis.transfer import Ending, Gap, Transfer
from netlab.analysis.view import View
from netlab.diagnosis import (
    Cause,
    Evidence,
    Exchange,
    Finding,
    Flight,
    LabelledSegment,
    Stall,
    Vantage,
)
from netlab.units import ms

# Causes whose waits are waits for the other end: each gap of theirs is a round trip.
_WAITS = frozenset(
    {
        Cause.IDLE_WINDOW_RESTART,
        Cause.FRESH_SLOW_START,
        Cause.LOSS_REDUCED_WINDOW,
        Cause.NAGLE_DELAYED_ACK,
        Cause.RECEIVE_WINDOW,
        Cause.SEND_BUFFER,
    }
)
_LOSSES = frozenset({Cause.RTO_RETRANSMISSION, Cause.TAIL_LOSS_PROBE, Cause.FAST_RETRANSMIT})
# Below this a finding is a guess, and the verdict is that it is not determined.
_SURE_ENOUGH = 0.5


def judge(view: View, connection: int, index: int | None, *, keep: bool) -> Exchange:
    """Return the exchange that `view` shows. `keep`: with its labelled segments."""
    causes = SMOOTH if _smooth(view) else CAUSES
    found = [finding for cause in causes if (finding := CAUSES[cause](view)) is not None]
    found.sort(key=lambda finding: finding.cost, reverse=True)
    open_gaps = _unexplained(view, found)
    primary, settle = _primary(view, found, open_gaps)
    also = tuple(each.cause for each in found if each.cause is not primary.cause and each.cost >= _also_floor(view))
    raw = view.raw
    data = view.response.data
    extra = None if primary.cause is Cause.UNDETERMINED else _round_trips(view, found)
    return Exchange(
        connection=connection,
        index=index,
        kind=raw.kind,
        sent_at=raw.first_up.at if raw.first_up is not None else data[0].at if data else 0,
        request_end_at=_request_end(view),
        first_byte_at=data[0].at if data else None,
        first_row_at=raw.first_row_at,
        last_byte_at=raw.last_byte_at,
        eos_at=raw.response_end_at,
        idle_before=_idle_before(view),
        request_bytes=raw.request_bytes,
        response_bytes=raw.response_bytes,
        rtt=view.rtt,
        query=raw.query,
        exception="; ".join(raw.exceptions) or None,
        segments=_labelled(view) if keep else (),
        flights=_flights(view.response),
        stalls=tuple(_stall(gap) for gap in view.response.gaps if gap.duration >= _stall_floor(view)),
        extra_round_trips=extra,
        cause=primary.cause,
        also=also,
        confidence=primary.confidence,
        findings=tuple(found) if primary.cause is not Cause.UNDETERMINED else (primary, *found),
        baselines=baselines.verdicts(view),
        settle=settle,
    )


def _smooth(view: View) -> bool:
    response, request = view.response, view.request
    if response.gaps or request.gaps or response.losses or request.losses:
        return False
    return view.wait is None or view.wait < view.think_floor


def _primary(view: View, found: list[Finding], open_gaps: list[Gap]) -> tuple[Finding, str | None]:
    if view.raw.first_down is None:
        text = "the capture holds no answer to this request"
        return _verdict(Cause.UNDETERMINED, 0, 0.5, text, []), "a capture that goes on until the answer"
    unexplained = sum(gap.duration for gap in open_gaps)
    best = found[0] if found else None
    if best is not None and best.cost >= unexplained:
        if best.confidence >= _SURE_ENOUGH:
            return best, None
        text = f"probably {best.cause.value}, but not surely: {best.evidence.text}"
        unsure = _verdict(Cause.UNDETERMINED, best.cost, best.confidence, text, list(best.evidence.frames))
        return unsure, _settle(view)
    if open_gaps:
        worst = max(open_gaps, key=lambda gap: gap.duration)
        text = (
            f"nothing was sent for {shown(worst.duration)} before frame {worst.resume.frame}, with "
            f"{worst.bytes} bytes in flight; it fits no cause, or more than one"
        )
        frames = [worst.before.frame, worst.resume.frame]
        return _verdict(Cause.UNDETERMINED, unexplained, 0.5, text, frames), _settle(view)
    text = "the response came without a stop" if view.rtt else "the response came without a stop; no RTT was measured"
    return _verdict(Cause.HEALTHY, 0, 0.97 if view.rtt else 0.6, text, []), None


def _verdict(cause: Cause, cost: int, confidence: float, text: str, frames: list[int]) -> Finding:
    evidence = Evidence(frames=tuple(frames), text=text)
    return Finding(cause=cause, cost=cost, round_trips=0.0, confidence=confidence, evidence=evidence)


def _settle(view: View) -> str:
    wishes = []
    if not view.complete:
        wishes.append("a capture that begins before the connection does")
    if view.paths.vantage is not Vantage.SERVER:
        wishes.append("a capture at the server, where an ACK and its effect are seen together")
    return "; ".join(wishes) or "a capture at the other end too, and the server's tcp_info during the response"


def _unexplained(view: View, found: list[Finding]) -> list[Gap]:
    """Return the gaps that no finding shows, long enough to matter."""
    shown_frames = {frame for finding in found for frame in finding.evidence.frames}
    floor = max(view.think_floor, (view.rtt or 0) // 2)
    repaired = bool(view.response.losses)
    causes = {finding.cause for finding in found}
    spread = causes & {Cause.BANDWIDTH_SERIALISATION, Cause.PATH_JITTER, Cause.PACING}
    many = any(len(finding.evidence.frames) >= 20 for finding in found)
    return [
        gap
        for gap in view.response.gaps
        if gap.duration >= floor and gap.resume.frame not in shown_frames and not repaired and not spread and not many
    ]


def _round_trips(view: View, found: list[Finding]) -> int:
    waits = 0
    causes = {finding.cause for finding in found}
    shown_frames = {frame for finding in found if finding.cause in _WAITS for frame in finding.evidence.frames}
    for transfer in (view.response, view.request):
        waits += sum(gap.resume.frame in shown_frames for gap in transfer.gaps)
    if causes & _LOSSES:
        waits += len([each for each in episodes(view) if each.certain >= _SURE_ENOUGH])
    return waits


def _also_floor(view: View) -> int:
    return max(ms(2), (view.rtt or 0) // 10)


def _stall_floor(view: View) -> int:
    return max(ms(3), min((view.rtt or 0) // 4, ms(20)))


def _idle_before(view: View) -> int | None:
    raw = view.raw
    start = raw.first_up or raw.first_down
    return None if raw.last_activity is None or start is None else max(0, start.at - raw.last_activity)


def _request_end(view: View) -> int:
    data = view.request.data
    first = view.raw.first_down
    if not data:
        return first.at if first is not None else 0
    fresh = [packet.at for packet in data if not packet.again]
    return fresh[-1] if fresh else data[-1].at


def _flights(transfer: Transfer) -> tuple[Flight, ...]:
    data = transfer.data
    return tuple(
        Flight(
            first_frame=data[each.first].frame,
            last_frame=data[each.last].frame,
            segments=each.segments,
            bytes=each.bytes,
            started_at=data[each.first].at,
            ended_at=data[each.last].at,
        )
        for each in transfer.rounds
    )


def _stall(gap: Gap) -> Stall:
    return Stall(
        after_frame=gap.before.frame,
        resume_frame=gap.resume.frame,
        ack_frame=gap.ack.frame if gap.ack is not None and gap.ending is Ending.ACK else None,
        started_at=gap.before.at,
        ended_at=gap.resume.at,
        outstanding_segments=gap.segments,
        outstanding_bytes=gap.bytes,
    )


def _labelled(view: View) -> tuple[LabelledSegment, ...]:
    rounds = [each.first for each in view.response.rounds]
    marks = tuple(sorted(each, key=lambda mark: mark.start) for each in view.raw.marks)
    ends = tuple([mark.end for mark in each] for each in marks)
    out: list[LabelledSegment] = []
    position = 0
    for placed in view.raw.placed:
        down = placed.down
        data = placed.end > placed.start
        flight = None
        if down and data:
            flight = bisect_right(rounds, position) - 1
            position += 1
        out.append(
            LabelledSegment(
                frame=placed.frame,
                at=placed.at,
                direction=direction(down),
                length=placed.length,
                push=bool(placed.flags & PSH),
                labels=_names(marks[down], ends[down], placed.start, placed.end) if data and marks[down] else (),
                flight=flight,
                retransmission=placed.again or placed.filled_after > REORDERING_WINDOW,
                acked_at=placed.acked_at if placed.acked_at >= 0 else None,
            )
        )
    return tuple(out)


def _names(marks: list[Mark], ends: list[int], start: int, end: int) -> tuple[str, ...]:
    names: list[str] = []
    for mark in marks[bisect_right(ends, start) :]:
        if mark.start >= end:
            break
        names.append(mark.label)
    return tuple(names)

"""A segment was lost: how the sender found out, and what the wait cost.

RFC 6298 (RTO), RFC 8985 (RACK-TLP), RFC 5681 3.2 (fast retransmit). Losses are grouped into episodes: one lasts
until everything that was in flight when it began has been acknowledged, and its first retransmission names it.
"""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from netlab.analysis.causes.gaps import JIFFY, answer_lost_unseen, finding, shown, tail_lost_unseen, timed_out_unseen
from netlab.analysis.flow import Placed
from netlab.analysis.transfer import Ending, Gap, Loss, Transfer
from netlab.analysis.view import View
from netlab.diagnosis import Cause, Finding, Vantage
from netlab.units import ms


class Way(Enum):
    """How a sender found a loss."""

    TIMEOUT = "timeout"
    PROBE = "probe"
    DUPLICATES = "duplicates"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One loss and its repair. `cost` in ns is the wait until the first missing byte was sent again."""

    way: Way
    loss: Loss
    frames: tuple[int, ...]
    cost: int
    request: bool
    certain: float


@lru_cache(maxsize=2)
def episodes(view: View) -> tuple[Episode, ...]:
    """Return the loss episodes of both transfers, and silent ones that only their length betrays."""
    found = _episodes(view, view.request, request=True) + _episodes(view, view.response, request=False)
    return (*found, *_unseen(view))


def rto_retransmission(view: View) -> Finding | None:
    """The retransmission timer, 200 ms or more, had to expire."""
    mine = [each for each in episodes(view) if each.way is Way.TIMEOUT]
    if not mine:
        return None
    first = mine[0]
    seen = first.loss.packet.again or first.loss.packet.filled_after >= 0
    text = (
        f"frame {first.loss.packet.frame} {'sends' if seen else 'must be sending'} {_what(first)} again "
        f"{shown(first.loss.wait)} after the {'original' if seen else 'segment before it'}, with "
        f"no duplicate ACK in between: the retransmission timer (RTO, at least {shown(view.rto)} here) had to expire"
    )
    return _sum(view, Cause.RTO_RETRANSMISSION, mine, text)


def tail_loss_probe(view: View) -> Finding | None:
    """The last segment was lost, and a loss probe sent it again."""
    mine = [each for each in episodes(view) if each.way is Way.PROBE]
    if not mine:
        return None
    first = mine[0]
    rtts = f" ({first.loss.wait / view.round_trip:.1f} RTT)" if view.rtt else ""
    if first.loss.packet.again or first.loss.packet.filled_after >= 0:
        text = (
            f"frame {first.loss.packet.frame} sends the last bytes of {_what(first)} again "
            f"{shown(first.loss.wait)}{rtts} after the original, with no ACK in between: a tail loss probe"
        )
    else:
        text = (
            f"frame {first.loss.packet.frame} came {shown(first.loss.silence)}{rtts} after the one before it, out of "
            f"turn or just when a tail loss probe is due: the last segments were lost before they came by here"
        )
    return _sum(view, Cause.TAIL_LOSS_PROBE, mine, text)


def fast_retransmit(view: View) -> Finding | None:
    """A segment was lost, and duplicate or selective ACKs had it sent again."""
    mine = [each for each in episodes(view) if each.way is Way.DUPLICATES]
    if not mine:
        return None
    first = mine[0]
    text = (
        f"frame {first.loss.packet.frame} sends {_what(first)} again {shown(first.loss.wait)} after "
        f"{'the hole opened' if first.loss.packet.filled_after >= 0 else 'the original'}, on "
        f"{first.loss.duplicates} duplicate or selective ACK{'s' if first.loss.duplicates != 1 else ''}"
    )
    return _sum(view, Cause.FAST_RETRANSMIT, mine, text)


def _episodes(view: View, transfer: Transfer, *, request: bool) -> list[Episode]:
    found: list[Episode] = []
    until = -1
    probes = _probes(view, request)
    at_receiver = view.paths.vantage is (Vantage.SERVER if request else Vantage.CLIENT)
    timer = max(ms(150), view.rto * 3 // 4)
    for loss in transfer.losses:
        if loss.packet.again and at_receiver:
            continue  # the first copy had come by here: nothing waited for this one
        if found and loss.packet.start < until:
            if loss.quiet >= timer:
                found.append(_longer(found.pop(), loss))
            continue
        if any(gap.before.end <= loss.packet.start < gap.resume.start for gap in probes):
            continue
        way, certain = _way(view, loss)
        until = loss.top
        frames = (loss.packet.frame,)
        found.append(Episode(way=way, loss=loss, frames=frames, cost=_cost(loss), request=request, certain=certain))
    return found


def _longer(episode: Episode, loss: Loss) -> Episode:
    """Return the episode with a further retransmission that a timer had to bring about."""
    frames = (*episode.frames, loss.packet.frame)
    cost = loss.wait if loss.wait > episode.cost else episode.cost + loss.quiet
    return Episode(way=Way.TIMEOUT, loss=loss, frames=frames, cost=cost, request=episode.request, certain=0.95)


def _probes(view: View, request: bool) -> list[Gap]:
    if request or view.at_sender:
        return []
    return [gap for gap in view.response.gaps if gap.skips and gap.ending is Ending.SENDER]


def _way(view: View, loss: Loss) -> tuple[Way, float]:
    """Return how the loss was found, and how sure that is: the first rule that holds."""
    rtt = view.rtt or 0
    expired = loss.silence >= view.rto - JIFFY - rtt // 10
    if loss.is_first and loss.is_last and loss.in_flight <= 1 and not loss.duplicates:
        # A lone segment's probe is due when its RTO is (tcp_schedule_loss_probe): only its place tells.
        lone = view.response.data[0].start == view.response.data[-1].start if view.response.data else True
        return (Way.PROBE, 0.85) if not expired else (Way.TIMEOUT, 0.65) if lone else (Way.PROBE, 0.7)
    table = (
        (loss.duplicates > 0 and loss.quiet < max(ms(150), rtt + rtt // 2), (Way.DUPLICATES, 0.95)),
        (loss.is_last and not loss.is_first, (Way.PROBE, 0.95)),
        (loss.is_last and not expired, (Way.PROBE, 0.85)),
        (expired or loss.quiet >= ms(180), (Way.TIMEOUT, 0.95)),
        (loss.duplicates > 0, (Way.DUPLICATES, 0.8)),
    )
    return next((way for holds, way in table if holds), (Way.OTHER, 0.4))


def _cost(loss: Loss) -> int:
    if loss.packet.filled_after >= 0:
        # A hole: the reader waited for as long as it stood open.
        return max(loss.packet.filled_after, 0)
    return max(loss.wait, 0)


def _unseen(view: View) -> list[Episode]:
    """Return losses that no repeated segment shows, because the tap is behind the place where they were lost."""
    found: list[Episode] = []
    if view.at_sender:
        return found
    if answer_lost_unseen(view) and view.wait is not None:
        found.append(_silent_answer(view, view.response.data[0], view.wait))
    for gap in view.response.gaps:
        way: tuple[Way, float] | None = None
        if gap.skips and gap.ending is Ending.SENDER and 2 * gap.duration >= 3 * view.round_trip:
            # A probe sends the highest bytes: they come first, and leave a hole that the rest then fills.
            way = (Way.PROBE, 0.85)
        elif timed_out_unseen(view, gap):
            way = (Way.TIMEOUT, 0.75)
        elif tail_lost_unseen(view, gap):
            way = (Way.PROBE, 0.5)
        if way is not None:
            found.append(_silent(gap, *way))
    return found


def _silent_answer(view: View, packet: Placed, wait: int) -> Episode:
    loss = Loss(
        packet=packet,
        wait=wait,
        silence=wait,
        quiet=wait,
        duplicates=0,
        is_last=True,
        is_first=True,
        repeats=0,
        in_flight=1,
        top=packet.end,
    )
    return Episode(way=Way.TIMEOUT, loss=loss, frames=(packet.frame,), cost=wait, request=False, certain=0.7)


def _silent(gap: Gap, way: Way, certain: float) -> Episode:
    loss = Loss(
        packet=gap.resume,
        wait=gap.duration,
        silence=gap.duration,
        quiet=gap.duration,
        duplicates=0,
        is_last=True,
        is_first=True,
        repeats=0,
        in_flight=1,
        top=gap.resume.end,
    )
    frames = (gap.before.frame, gap.resume.frame)
    return Episode(way=way, loss=loss, frames=frames, cost=gap.duration, request=False, certain=certain)


def _what(episode: Episode) -> str:
    return "the request" if episode.request else "a part of the response"


def _sum(view: View, cause: Cause, mine: list[Episode], text: str) -> Finding:
    cost = sum(each.cost for each in mine)
    if len(mine) > 1:
        text += f"; {len(mine)} times in all"
    frames = [frame for each in mine for frame in each.frames][:60]
    return finding(view, cause, cost, confidence=min(each.certain for each in mine), frames=frames, text=text)

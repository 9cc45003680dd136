"""What a waterfall shows, row by row: the request, each segment of the answer, each silence and the ACK that ended it.

Pure: the drawing is in waterfall.py.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import groupby

from netlab.diagnosis import Exchange, LabelledSegment, Stall
from netlab.segments import Direction
from netlab.text import plain
from netlab.units import as_ms

# Rows of one waterfall: more cannot be read.
MOST = 22


class Kind(Enum):
    """What a row stands for."""

    REQUEST = auto()
    SEGMENTS = auto()
    SILENCE = auto()
    ACK = auto()
    LEFT_OUT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. Instants as in the exchange; `flight` is None where the row is no part of one."""

    kind: Kind
    start: int
    end: int
    text: str
    detail: str = ""  # what may be left out where there is little room
    flight: int | None = None
    first: int = 0  # number of its first response segment, from 1
    segments: int = 0
    bytes: int = 0
    labels: tuple[str, ...] = ()
    again: bool = False  # a retransmission


def rows(exchange: Exchange, most: int = MOST) -> list[Row]:
    """Return the rows of `exchange`, at most `most`: segments are joined, then flights, then the middle is left out."""
    found = _events(exchange)
    if len(found) > most:
        found = _joined(found, lambda row: (row.kind, row.flight, row.labels, row.again))
    if len(found) > most:
        found = _joined(found, lambda row: (row.kind, row.flight))
    if len(found) > most:
        found = _without_middle(found, most)
    return [replace(row, text=_text(row)) if row.kind is Kind.SEGMENTS else row for row in found]


def length(duration: int, rtt: int | None) -> str:
    """Return `duration` (ns) in ms, and in round trips where the RTT is known."""
    return f"{as_ms(duration):.1f} ms" + (f" = {duration / rtt:.2f} RTT" if rtt else "")


def _events(exchange: Exchange) -> list[Row]:
    """Return a row an event, in the order of the capture."""
    stalls = {stall.resume_frame: stall for stall in exchange.stalls}
    by_frame = {segment.frame: segment for segment in exchange.segments}
    found = [_request(exchange)]
    number = 0
    for segment in exchange.segments:
        if segment.direction is not Direction.TO_CLIENT or not segment.length:
            continue
        if segment.frame in stalls:
            found += _silence(exchange, stalls[segment.frame], by_frame)
        number += 1
        found.append(_segment(segment, number))
    return found


def _request(exchange: Exchange) -> Row:
    sent = [s for s in exchange.segments if s.direction is Direction.TO_SERVER and s.length]
    names = list(dict.fromkeys(label for s in sent for label in s.labels))
    what = " + ".join(names)
    return Row(
        kind=Kind.REQUEST,
        start=exchange.sent_at,
        end=exchange.request_end_at,
        text=plain(
            f"request: {what}, {exchange.request_bytes:,} B" if what else f"request, {exchange.request_bytes:,} B"
        ),
    )


def _segment(segment: LabelledSegment, number: int) -> Row:
    return Row(
        kind=Kind.SEGMENTS,
        start=segment.at,
        end=segment.at,
        text="",
        flight=segment.flight,
        first=number,
        segments=1,
        bytes=segment.length,
        labels=segment.labels,
        again=segment.retransmission,
    )


def _silence(exchange: Exchange, stall: Stall, by_frame: dict[int, LabelledSegment]) -> Iterable[Row]:
    waiting = ""
    if stall.outstanding_segments:
        noun = "segment" if stall.outstanding_segments == 1 else "segments"
        waiting = f"{stall.outstanding_segments} {noun} unacknowledged"
    yield Row(
        kind=Kind.SILENCE,
        start=stall.started_at,
        end=stall.ended_at,
        text=f"nothing for {length(stall.duration, exchange.rtt)}",
        detail=waiting,
    )
    ack = None if stall.ack_frame is None else by_frame.get(stall.ack_frame)
    if ack is not None:
        yield Row(kind=Kind.ACK, start=ack.at, end=ack.at, text=f"the client's ACK (frame {ack.frame})")


def _joined(found: Sequence[Row], same: Callable[[Row], object]) -> list[Row]:
    """Return `found` with neighbours that are segments, and the same by `same`, made one."""
    out: list[Row] = []
    for _, group in groupby(found, key=lambda row: (same(row), None if row.kind is Kind.SEGMENTS else id(row))):
        members = list(group)
        first, last = members[0], members[-1]
        labels = tuple(dict.fromkeys(label for row in members for label in row.labels))
        out.append(
            replace(
                first,
                end=last.end,
                segments=sum(row.segments for row in members),
                bytes=sum(row.bytes for row in members),
                labels=labels,
                again=any(row.again for row in members),
            )
        )
    return out


def _without_middle(found: Sequence[Row], most: int) -> list[Row]:
    head, tail = most // 2, most - most // 2 - 1
    middle = found[head:-tail]
    silences = sum(row.kind is Kind.SILENCE for row in middle)
    text = f"… {sum(row.segments for row in middle):,} segments"
    text += f" and {silences} silences" if silences else ""
    left_out = Row(
        kind=Kind.LEFT_OUT,
        start=middle[0].start,
        end=middle[-1].end,
        text=text,
        segments=sum(row.segments for row in middle),
        bytes=sum(row.bytes for row in middle),
    )
    return [*found[:head], left_out, *found[-tail:]]


def _text(row: Row) -> str:
    numbers = f"{row.first}" if row.segments == 1 else f"{row.first}–{row.first + row.segments - 1}"
    what = plain(" + ".join(row.labels), longest=60)
    again = ", sent again" if row.again else ""
    return "  ".join(part for part in (numbers, what, f"{row.bytes:,} B{again}") if part)

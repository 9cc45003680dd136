"""Two captures side by side: segments by size, round trips, times, and the causes that came and went.

Figures are per exchange where the captures may differ in length.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from netlab.diagnosis import CaptureDiagnosis, PshTable
from netlab.report import counts, plots, waterfall
from netlab.report.counts import DASH
from netlab.report.document import Block, Document, Plate, Section, Table, Text, Tone
from netlab.report.waterfall import Scene

_MOST = 10  # exchanges drawn of each capture


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One capture: what it is called, its diagnosis, and its PSH table over the whole file where that was counted."""

    label: str
    diagnosis: CaptureDiagnosis
    psh: PshTable | None = None


def compare_document(before: Side, after: Side, *, pictures: bool = True) -> Document:
    """Return the comparison, with or without its pictures."""
    sides = (before, after)
    blocks: list[Block] = [_verdict(before, after)]
    blocks += [_figures(sides), _times(sides), _causes(before, after)]
    blocks += _plates(before, after) if pictures else []
    blocks += [_sizes(sides, "PSH segments by size", pushed=True), _sizes(sides, "All segments by size", pushed=False)]
    for side in sides:
        notes = side.diagnosis.summary.notes
        if notes or side.diagnosis.summary.truncated:
            cut = ("the capture is cut short: what is whole was read",) if side.diagnosis.summary.truncated else ()
            blocks.append(Section(title=f"Notes on {side.label}", sentences=(*cut, *notes)))
    blocks.append(Text(text="Again:", code=shlex.join(["netlab", "compare", *(side.diagnosis.file for side in sides)])))
    return Document(title=f"netlab: {before.label} against {after.label}", blocks=tuple(blocks))


def _verdict(before: Side, after: Side) -> Section:
    """Return what changed, in a sentence each; nothing is said of what was not measured."""
    found = [counts.causes(side.diagnosis) for side in (before, after)]
    old, new = (set(c) - {"healthy"} for c in found)
    sentences = [f"gone: {cause} ({found[0][cause]} of {found[0].total()} exchanges)" for cause in sorted(old - new)]
    sentences += [f"new: {cause} ({found[1][cause]} of {found[1].total()} exchanges)" for cause in sorted(new - old)]
    sentences += [
        f"still there: {cause} ({found[0][cause]} of {found[0].total()} exchanges, then {found[1][cause]} of "
        f"{found[1].total()})"
        for cause in sorted(old & new)
    ]
    tails = [counts.summary(e.tail for e in counts.measured(side.diagnosis)) for side in (before, after)]
    if tails[0] is not None and tails[1] is not None:
        sentences.append(f"tail p50: {counts.ms(tails[0].p50)}, then {counts.ms(tails[1].p50)}")
    empty = [side.label for side in (before, after) if not counts.measured(side.diagnosis)]
    if empty:
        title, tone = f"No exchange in {' and '.join(empty)}: nothing to compare", Tone.PLAIN
    elif new - old:
        title, tone = "New causes", Tone.BAD
    elif old - new:
        title, tone = "Causes gone, none new", Tone.GOOD
    else:
        title, tone = "The same causes" if old else "No cause in either", Tone.PLAIN
    return Section(title=title, sentences=tuple(sentences), tone=tone)


def _figures(sides: Sequence[Side]) -> Table:
    names = (
        "exchanges",
        "vantage",
        "segments an exchange",
        "PSH segments an exchange (about one a write)",
        "bytes an exchange",
        "mean segment, bytes",
        "fill against MSS",
        "extra round trips",
        "first flight, segments",
        "PSH segments, whole capture",
    )
    columns = [_column(side) for side in sides]
    rows = tuple((name, *cells) for name, *cells in zip(names, *columns, strict=True))
    return Table(title="Side by side", columns=("", *(side.label for side in sides)), rows=rows)


def _column(side: Side) -> list[str]:
    exchanges, found = counts.measured(side.diagnosis), counts.sizes(side.diagnosis)
    return [
        str(len(exchanges)),
        side.diagnosis.vantage.value,
        counts.share(found.all.segments, found.exchanges),
        counts.share(found.pushed.segments, found.exchanges),
        counts.share(sum(e.response_bytes for e in exchanges), len(exchanges), digits=0),
        counts.share(found.all.bytes, found.all.segments, digits=0),
        DASH if found.fill is None else f"{found.fill:.1%}",
        counts.spread([e.extra_round_trips for e in exchanges]),
        counts.spread([e.first_flight_segments for e in exchanges]),
        DASH if side.psh is None else counts.count(side.psh.segments),
    ]


def _times(sides: Sequence[Side]) -> Table:
    rows = []
    for name in ("RTT", "first byte", "first row", "EndOfStream", "last byte", "tail"):
        rows.append((name, *(counts.quartet(counts.summary(_durations(side, name))) for side in sides)))
    return Table(
        title="Times, ms: p50 / p99 / max / n",
        columns=("", *(side.label for side in sides)),
        rows=tuple(rows),
        notes=(f"{DASH} is a figure that was not measured.",),
    )


def _durations(side: Side, name: str) -> list[int | None]:
    exchanges = counts.measured(side.diagnosis)
    if name == "RTT":
        return [e.rtt for e in exchanges]
    if name == "tail":
        return [e.tail for e in exchanges]
    field = {
        "first byte": "first_byte_at",
        "first row": "first_row_at",
        "EndOfStream": "eos_at",
        "last byte": "last_byte_at",
    }[name]
    return [counts.since(getattr(e, field), e) for e in exchanges]


def _causes(before: Side, after: Side) -> Table:
    old, new = counts.causes(before.diagnosis), counts.causes(after.diagnosis)
    rows = []
    for cause in sorted(old | new, key=lambda name: (-(old[name] + new[name]), name)):
        change = "gone" if not new[cause] else "new" if not old[cause] else ""
        rows.append((cause, str(old[cause]), str(new[cause]), change))
    columns = ("cause", before.label, after.label, "")
    return Table(title="Causes: exchanges", columns=columns, rows=tuple(rows))


def _sizes(sides: Sequence[Side], title: str, *, pushed: bool) -> Table:
    found = [counts.sizes(side.diagnosis) for side in sides]
    tables = [sizes.pushed if pushed else sizes.all for sizes in found]
    bins = plots.size_bins(sorted({size for table in tables for size, _ in table.sizes}))
    rows = []
    for low, high in bins:
        name = str(low) if low == high else f"{low} to {high}"
        rows.append(
            (name, *(_each(table, sizes.exchanges, low, high) for table, sizes in zip(tables, found, strict=True)))
        )
    totals = (f"{table.segments:,} ({table.bytes:,} B)" for table in tables)
    columns = ("TCP payload, bytes", *(f"{side.label}: segments (an exchange)" for side in sides))
    return Table(title=title, columns=columns, rows=(*rows, ("total", *totals)))


def _each(table: PshTable, exchanges: int, low: int, high: int) -> str:
    number = sum(number for size, number in table.sizes if low <= size <= high)
    return f"{number:,} ({counts.share(number, exchanges, digits=2)})" if number else ""


def _plates(before: Side, after: Side) -> list[Plate]:
    made: list[Plate] = []
    scenes = [(side.label, _scenes(side)) for side in (before, after)]
    drawable = [(label, found) for label, found in scenes if found]
    if drawable:
        drawn = waterfall.waterfalls([waterfall.typical(label, found) for label, found in drawable])
        made.append(Plate(name="waterfall.png", what="A typical exchange of each, packet by packet", picture=drawn))
        drawn = waterfall.overview([(label, found[:_MOST]) for label, found in drawable])
        made.append(Plate(name="exchanges.png", what="Exchanges: segments, and silences inside answers", picture=drawn))
        old, new = (counts.sizes(side.diagnosis) for side in (before, after))
        for name, what, pair in (
            ("psh.png", "segments with PSH", (old.pushed, new.pushed)),
            ("segments.png", "segments", (old.all, new.all)),
        ):
            drawn = plots.histogram_pair((before.label, pair[0]), (after.label, pair[1]), what)
            made.append(Plate(name=name, what=f"The server's {what} by size, in exchanges", picture=drawn))
    tails = [(s.label, [e.tail for e in counts.measured(s.diagnosis) if e.tail is not None]) for s in (before, after)]
    if any(values for _, values in tails):
        rtt = counts.summary(e.rtt for s in (before, after) for e in counts.measured(s.diagnosis))
        drawn = plots.strips(tails, "tail, ms, a dot an exchange", None if rtt is None else rtt.p50)
        made.append(Plate(name="tails.png", what="Each exchange's tail", picture=drawn))
    return made


def _scenes(side: Side) -> list[Scene]:
    found = [e for e in counts.measured(side.diagnosis) if counts.answer(e)]
    return [Scene(title=f"{e.connection}:{e.index}", exchange=e, vantage=side.diagnosis.vantage) for e in found]

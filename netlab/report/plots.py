"""Pictures of sets: the pair of PSH histograms, and the tails."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from netlab.diagnosis import Exchange, PshTable
from netlab.record import ServerRun
from netlab.report import style
from netlab.report.figure import Picture, figure, frame, heading, picture, shown
from netlab.units import as_ms

# Bars of one histogram: more sizes than these are put into ranges.
_BARS = 22


def histogram_pair(
    before: tuple[str, PshTable], after: tuple[str, PshTable], what: str = "segments with PSH"
) -> Picture:
    """Return segments (label, table) by payload size, before beside after, on one scale."""
    drawn = figure(3.3)
    left, right = drawn.subplots(1, 2, sharey=True)
    bins = size_bins(sorted({size for _, table in (before, after) for size, _ in table.sizes}))
    for axis, (label, table), colour in ((left, before, style.BEFORE), (right, after, style.AFTER)):
        _histogram(axis, table, bins, colour)
        heading(axis, f"{shown(label, longest=28)}: {table.segments:,} segments, {table.bytes:,} B", style.FONT)
    left.set_ylabel(what, color=style.MUTED, fontsize=style.FONT)
    return picture(drawn)


def size_bins(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges (first, last) that hold every one of the ascending `sizes`, each size its own where few."""
    if len(sizes) <= _BARS:
        return [(size, size) for size in sizes]
    step = -(-len(sizes) // _BARS)
    return [(part[0], part[-1]) for start in range(0, len(sizes), step) if (part := sizes[start : start + step])]


def tails(runs: Sequence[ServerRun], rtt: int) -> Picture:
    """Return each sound query's tail by server, with a line at one round trip."""
    found = [(run.server.label, [s.tail for s in run.samples if s.void is None and s.tail is not None]) for run in runs]
    return strips(found, "tail: ms from the first row to EndOfStream, a dot a query", rtt)


def strips(groups: Sequence[tuple[str, Sequence[int]]], axis_label: str, rtt: int | None = None) -> Picture:
    """Return durations (ns), a dot each, a row a group (label, durations), with a line at one round trip."""
    drawn = figure(0.95 + 0.5 * len(groups))
    axis = drawn.subplots()
    most = 0 if rtt is None else as_ms(rtt)
    for row, (_, durations) in enumerate(groups):
        values = [as_ms(duration) for duration in durations]
        most = max([most, *values])
        # Spread over the row, so that equal ones do not hide each other.
        rows = [row + 0.22 * ((place % 5) / 2 - 1) for place in range(len(values))]
        axis.plot(
            values, rows, "o", color=style.SERVER, alpha=0.6, markersize=6, markeredgewidth=0, clip_on=False, zorder=3
        )
    if rtt:
        _round_trip(axis, as_ms(rtt), left=as_ms(rtt) > most * 0.75)
    axis.set_yticks(range(len(groups)), [shown(label, 40) for label, _ in groups])
    axis.set_ylim(len(groups) - 0.5, -0.9)
    axis.set_xlim(0, most * 1.04 or 1)
    axis.set_xlabel(axis_label, color=style.MUTED, fontsize=style.FONT)
    frame(axis)
    return picture(drawn)


def windows(exchanges: Sequence[Exchange]) -> Picture:
    """Return, exchange by exchange, the segments of the first flight and of the whole answer.

    Where the two part, the answer waited for an ACK; a level first flight is the window at work.
    """
    drawn = figure(2.6)
    axis = drawn.subplots()
    places = range(1, len(exchanges) + 1)
    first = [exchange.first_flight_segments or 0 for exchange in exchanges]
    whole = [sum(flight.segments for flight in exchange.flights) for exchange in exchanges]
    axis.vlines(places, first, whole, color=style.STALL, linewidth=1.6, zorder=1)
    size = 6 if len(exchanges) <= 60 else 3
    axis.plot(places, whole, "s", color=style.STALL, markersize=size, label="whole answer")
    axis.plot(places, first, "o", color=style.SERVER, markersize=size, label="first flight")
    axis.set_ylim(0, max(whole, default=1) * 1.12 + 1)
    axis.set_xlim(0, len(exchanges) + 1)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel("segments", color=style.MUTED, fontsize=style.FONT)
    axis.set_xlabel("exchange, in the order of the capture", color=style.MUTED, fontsize=style.FONT)
    frame(axis)
    axis.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=2,
        frameon=False,
        fontsize=style.FONT,
        labelcolor=style.INK,
        borderaxespad=0,
    )
    return picture(drawn)


def _round_trip(axis: Axes, rtt: float, *, left: bool) -> None:
    axis.axvline(rtt, color=style.STALL, linestyle=(0, (3, 2)), linewidth=1.1, zorder=0)
    axis.annotate(
        f"one round trip, {rtt:.4g} ms",
        (rtt, -0.65),
        xytext=(-5 if left else 5, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center_baseline",
        color=style.STALL,
        fontsize=style.FONT,
    )


def _histogram(axis: Axes, table: PshTable, bins: Sequence[tuple[int, int]], colour: str) -> None:
    counts = [sum(count for size, count in table.sizes if low <= size <= high) for low, high in bins]
    bars = axis.bar(range(len(bins)), counts, color=colour, width=0.75)
    axis.bar_label(
        bars, [str(count) if count else "" for count in counts], fontsize=style.FONT - 1, color=style.INK, padding=1
    )
    names = [str(low) if low == high else f"{low}–{high}" for low, high in bins]
    axis.set_xticks(range(len(bins)), names, rotation=60 if len(bins) > 8 else 0)
    axis.set_xlabel("TCP payload, bytes", color=style.MUTED, fontsize=style.FONT)
    frame(axis)
    axis.tick_params(axis="x", labelsize=style.FONT - 1)

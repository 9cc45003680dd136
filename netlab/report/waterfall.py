"""Waterfalls: an exchange row by row on one time scale, so that a stall explains itself.

Time runs to the right, packets run down; a flight's rows share a tint, a silence is a marked span with its length in ms
and round trips, and the ACK that ended it points at what it let go.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from matplotlib.axes import Axes

from netlab.diagnosis import Exchange, Vantage
from netlab.report import style
from netlab.report.figure import Picture, figure, frame, heading, picture, shown
from netlab.report.rows import Kind, Row, length, rows
from netlab.segments import Direction
from netlab.units import NS_PER_MS

_ROW = 0.2  # inches
_MARK = {
    Kind.REQUEST: (style.CLIENT, ">"),
    Kind.SEGMENTS: (style.SERVER, "s"),
    Kind.ACK: (style.CLIENT, ">"),
    Kind.LEFT_OUT: (style.MUTED, "."),
}
# From this share of the width on, a text stands left of its mark.
_RIGHT = 0.55
# A span below this share of the width has no room for an arrow.
_NARROW = 0.03
# And one above these has room for some words, and for all.
_ROOMY, _WIDE = 0.4, 0.6
_SINCE = {
    Vantage.SERVER: "ms since the request reached the server",
    Vantage.CLIENT: "ms since the client sent the request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """An exchange to show, and where it was captured."""

    title: str
    exchange: Exchange
    vantage: Vantage = Vantage.UNKNOWN

    @property
    def span(self) -> float:
        """ms from the request to the answer's last byte; the ACKs after it say nothing."""
        last = max((s.at for s in self.exchange.segments if s.length), default=self.exchange.sent_at)
        return max((last - self.exchange.sent_at) / NS_PER_MS, 0.1)

    def at(self, instant: int) -> float:
        """Return the ms from the request to `instant`."""
        return (instant - self.exchange.sent_at) / NS_PER_MS


def waterfalls(scenes: Sequence[Scene]) -> Picture:
    """Return one waterfall under the other, all on one time scale."""
    listed = [rows(scene.exchange) for scene in scenes]
    heights = [_units(found) for found in listed]
    drawn = figure(0.45 + sum(_ROW * height + 0.42 for height in heights))
    grid = drawn.subplots(len(scenes), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    end = max(scene.span for scene in scenes)
    for axis, scene, found in zip(grid, scenes, listed, strict=True):
        heading(axis, shown(scene.title))
        _draw(axis, scene, found, end)
    grid[-1].set_xlabel(since(scenes), color=style.MUTED, fontsize=style.FONT)
    return picture(drawn)


def overview(columns: Sequence[tuple[str, Sequence[Scene]]]) -> Picture:
    """Return small multiples: a column a server, a row a query, all on one time scale."""
    depth = max(len(scenes) for _, scenes in columns)
    drawn = figure(0.75 + 0.5 * depth)
    grid = drawn.subplots(depth, len(columns), sharex=True, squeeze=False)
    end = max(scene.span for _, scenes in columns for scene in scenes)
    for place, (label, scenes) in enumerate(columns):
        for axis in grid[len(scenes) :, place]:
            axis.set_visible(False)
        for axis, scene in zip(grid[:, place], scenes, strict=False):
            _small(axis, scene, end, share=0.18 * len(columns))
        heading(grid[0, place], shown(label, longest=60 // len(columns)))
        last = grid[len(scenes) - 1, place]
        last.tick_params(axis="x", labelbottom=True, length=3)
        last.set_xlabel(since(scenes), color=style.MUTED, fontsize=style.FONT)
    return picture(drawn)


def typical(label: str, scenes: Sequence[Scene]) -> Scene:
    """Return the scene with the median tail of those that waited, or of all where few did, titled with `label`."""
    stalled = [scene for scene in scenes if scene.exchange.extra_round_trips]
    # Where a good part waited, one of those is what the picture is for.
    pool = stalled if len(stalled) * 4 >= len(scenes) else scenes
    timed = [scene for scene in pool if scene.exchange.tail is not None] or list(pool)
    ordered = sorted(timed, key=lambda scene: scene.exchange.tail or 0)
    scene = ordered[(len(ordered) - 1) // 2]
    return Scene(title=f"{label}, {scene.title}", exchange=scene.exchange, vantage=scene.vantage)


def since(scenes: Sequence[Scene]) -> str:
    """Return what the time axis of `scenes` counts from."""
    vantages = {scene.vantage for scene in scenes}
    return _SINCE.get(vantages.pop(), "ms since the request") if len(vantages) == 1 else "ms since the request"


def _units(found: Sequence[Row]) -> float:
    return 2.2 + sum(2.0 if row.kind is Kind.SILENCE else 1.0 for row in found)


def _draw(axis: Axes, scene: Scene, found: Sequence[Row], end: float) -> None:
    places: list[float] = []
    below = 0.0
    for row in found:
        height = 2.0 if row.kind is Kind.SILENCE else 1.0
        places.append(below + height / 2)
        below += height
    axis.set_xlim(-end * 0.02, end * 1.02)
    axis.set_ylim(below + 0.2, -2.0)
    frame(axis, left=False)
    _flights(axis, found, places)
    for row, place in zip(found, places, strict=True):
        if row.kind is Kind.SILENCE:
            _silence(axis, scene, row, place)
        else:
            _mark(axis, scene, row, place)
    for index, row in enumerate(found[:-1]):
        if row.kind is Kind.ACK:
            _release(axis, scene, (row, places[index]), (found[index + 1], places[index + 1]))
    _moments(axis, scene, end)


def _flights(axis: Axes, found: Sequence[Row], places: Sequence[float]) -> None:
    """Tint each flight's rows, and name the flights at the left."""
    ticks, names = [], []
    pairs = [(row, place) for row, place in zip(found, places, strict=True)]
    for (kind, flight), group in groupby(pairs, key=lambda pair: (pair[0].kind, pair[0].flight)):
        members = list(group)
        top, bottom = members[0][1] - 0.5, members[-1][1] + 0.5
        if kind is Kind.SEGMENTS and flight is not None:
            axis.axhspan(top, bottom, color=style.FLIGHTS[0], zorder=0, linewidth=0)
            count = sum(row.segments for row, _ in members)
            unit = "segment" if count == 1 else "segments"
            name = f"flight {flight + 1}: {count} {unit}"
            names.append(name.replace(": ", ":\n") if len(members) > 1 else name)
            ticks.append((top + bottom) / 2)
    axis.set_yticks(ticks, names)
    axis.tick_params(axis="y", length=0)


def _mark(axis: Axes, scene: Scene, row: Row, place: float) -> None:
    colour, marker = _MARK[row.kind]
    start, stop = scene.at(row.start), scene.at(row.end)
    if stop > start:
        axis.plot([start, stop], [place, place], color=colour, linewidth=2.5, solid_capstyle="butt")
    hollow = style.PAGE if row.again else colour
    axis.plot([start], [place], marker, color=colour, markersize=6, markerfacecolor=hollow, clip_on=False, zorder=4)
    low, high = axis.get_xlim()
    # Left of its mark where the right is too narrow.
    left = (stop - low) / (high - low) > _RIGHT
    inside = row.kind is Kind.LEFT_OUT and left and (start - low) / (high - low) < 1 - _RIGHT
    ground = style.PAGE if row.flight is None else style.FLIGHTS[0]
    axis.annotate(
        shown(row.text, 120),
        ((start + stop) / 2 if inside else start if left else stop, place),
        xytext=(0 if inside else -8 if left else 8, 0),
        textcoords="offset points",
        ha="center" if inside else "right" if left else "left",
        va="center_baseline",
        fontsize=style.FONT - 0.5,
        color=style.CLIENT if row.kind is Kind.ACK else style.INK,
        bbox={"facecolor": ground, "edgecolor": "none", "pad": 0.8},
        zorder=3,
    )


def _silence(axis: Axes, scene: Scene, row: Row, place: float) -> None:
    start, stop = scene.at(row.start), scene.at(row.end)
    axis.fill_between([start, stop], place - 1, place + 1, color=style.SILENCE, linewidth=0, zorder=1)
    low, high = axis.get_xlim()
    share = (stop - start) / (high - low)
    if share > _NARROW:
        axis.annotate(
            "",
            (start, place + 0.5),
            (stop, place + 0.5),
            arrowprops={"arrowstyle": "<->", "color": style.STALL, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0},
        )
    middle = ((start + stop) / 2 - low) / (high - low)
    # Centred where the span is wide or in the middle; else from its own edge away from the picture's.
    if share > _ROOMY:
        side, anchor = "center", (start + stop) / 2
    elif middle < 0.4:
        side, anchor = "left", start
    elif middle > 0.6:
        side, anchor = "right", stop
    else:
        side, anchor = "center", (start + stop) / 2
    axis.annotate(
        shown(f"{row.text}, {row.detail}" if row.detail and share > _WIDE else row.text, 120),
        (anchor, place - 0.35),
        xytext=({"left": 6, "right": -6, "center": 0}[side], 0),
        textcoords="offset points",
        ha=side,
        va="center_baseline",
        fontsize=style.FONT,
        color=style.STALL,
        fontweight="bold",
    )


def _release(axis: Axes, scene: Scene, ack: tuple[Row, float], resumed: tuple[Row, float]) -> None:
    axis.annotate(
        "",
        (scene.at(resumed[0].start), resumed[1] - 0.3),
        (scene.at(ack[0].start), ack[1] + 0.25),
        arrowprops={"arrowstyle": "->", "color": style.CLIENT, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0},
    )


def _moments(axis: Axes, scene: Scene, end: float) -> None:
    """Draw the lines of the first row and of EndOfStream, their words above the rows, one level each."""
    for instant, colour, name, level in (
        (scene.exchange.first_row_at, style.ROW, "first row", -1.5),
        (scene.exchange.eos_at, style.END, "EndOfStream", -0.6),
    ):
        if instant is None:
            continue
        when = scene.at(instant)
        # Down from its own words: the lower words stay clear of the upper ones' line.
        down = [level - 0.4, axis.get_ylim()[0]]
        axis.plot([when, when], down, color=colour, linewidth=1.1, linestyle=(0, (3, 2)), zorder=1)
        left = when > end * 0.7
        axis.annotate(
            f"{name} {when:.1f} ms",
            (when, level),
            xytext=(-5 if left else 5, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center_baseline",
            fontsize=style.FONT,
            color=colour,
        )


def _small(axis: Axes, scene: Scene, end: float, share: float) -> None:
    """Draw one query on one lane; a silence longer than `share` of the width says how long."""
    exchange = scene.exchange
    frame(axis, left=False)
    axis.tick_params(length=0)
    sent = [scene.at(s.at) for s in exchange.segments if s.direction is Direction.TO_CLIENT and s.length]
    axis.plot([0], [0.5], ">", color=style.CLIENT, markersize=5, clip_on=False)
    axis.plot(sent, [0.5] * len(sent), "|", color=style.SERVER, markersize=13, markeredgewidth=1.6)
    for stall in exchange.stalls:
        start, stop = scene.at(stall.started_at), scene.at(stall.ended_at)
        axis.fill_between([start, stop], 0.08, 0.92, color=style.SILENCE, linewidth=0, zorder=0)
        if stop - start > end * share:
            axis.text(
                (start + stop) / 2,
                0.48,
                length(stall.duration, exchange.rtt),
                ha="center",
                va="center_baseline",
                fontsize=style.FONT - 0.5,
                color=style.STALL,
                fontweight="bold",
            )
    axis.set_xlim(-end * 0.02, end * 1.04)
    axis.set_ylim(0, 1)
    axis.set_yticks([0.5], [shown(scene.title, longest=24)])

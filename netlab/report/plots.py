"""Pictures: waterfalls of exchanges, the pair of PSH histograms, the tails. PNG and SVG bytes.

matplotlib is used through Figure objects alone: no global state, no display, safe in threads.
"""

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netlab.diagnosis import Exchange, PshTable, Stall
from netlab.record import ServerRun
from netlab.report import style
from netlab.segments import Direction
from netlab.text import plain
from netlab.units import NS_PER_MS

_SERVER_LANE, _CLIENT_LANE = 1.0, 0.0
# Labels closer than this (share of the width) are joined into one.
_NEAR = 0.035


def waterfalls(pairs: Sequence[tuple[str, Exchange]]) -> bytes:
    """Return a PNG with one waterfall a row on one time scale: (title, exchange) in order."""
    figure = Figure(figsize=(10, 0.55 + 2.5 * len(pairs)), dpi=110, layout="constrained")
    axes = figure.subplots(len(pairs), 1, sharex=True, squeeze=False)[:, 0]
    end = max((_span(exchange) for _, exchange in pairs), default=1.0)
    for axis, (title, exchange) in zip(axes, pairs, strict=True):
        _waterfall(axis, exchange, end)
        axis.set_title(plain(title), loc="left", fontsize=style.FONT + 2, color=style.INK, fontweight="bold")
    axes[-1].set_xlabel("ms since the request was sent", color=style.MUTED)
    return _png(figure)


def waterfall(title: str, exchange: Exchange) -> bytes:
    """Return a PNG of one exchange."""
    return waterfalls([(title, exchange)])


def histogram_pair(before: tuple[str, PshTable], after: tuple[str, PshTable]) -> bytes:
    """Return a PNG: segments with PSH and a payload by size, before beside after, on one scale."""
    figure = Figure(figsize=(10, 3.6), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    sizes = sorted({size for _, table in (before, after) for size, _ in table.sizes})
    for axis, (label, table), colour in ((left, before, style.BEFORE), (right, after, style.AFTER)):
        _histogram(axis, label, table, sizes, colour)
    left.set_ylabel("segments with PSH", color=style.MUTED)
    return _png(figure)


def tails(runs: Sequence[ServerRun], rtt: int) -> bytes:
    """Return a PNG: each sound query's tail (ms) by server, with lines at zero and one round trip."""
    figure = Figure(figsize=(10, 0.9 + 0.6 * len(runs)), dpi=110, layout="constrained")
    axis = figure.subplots()
    for row, run in enumerate(runs):
        values = [s.tail / NS_PER_MS for s in run.samples if s.void is None and s.tail is not None]
        axis.plot(values, [row] * len(values), "o", color=style.SERVER, alpha=0.55, markersize=8, clip_on=False)
    axis.axvline(rtt / NS_PER_MS, color=style.STALL, linestyle="--", linewidth=1)
    axis.annotate(
        "one round trip",
        (rtt / NS_PER_MS, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, -2),
        textcoords="offset points",
        color=style.STALL,
        fontsize=style.FONT,
        va="top",
    )
    axis.set_yticks(range(len(runs)), [plain(run.server.label) for run in runs])
    axis.set_ylim(len(runs) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set_xlabel("tail: from the first row to EndOfStream, ms", color=style.MUTED)
    _plain_frame(axis)
    return _png(figure)


def _span(exchange: Exchange) -> float:
    # To the last byte of the answer: the ACKs after it say nothing.
    last = max((s.at for s in exchange.segments if s.length), default=exchange.sent_at)
    return max((last - exchange.sent_at) / NS_PER_MS, 0.1)


def _waterfall(axis: Axes, exchange: Exchange, end: float) -> None:
    def at(instant: int) -> float:
        return (instant - exchange.sent_at) / NS_PER_MS

    for index, flight in enumerate(exchange.flights):
        start, stop = at(flight.started_at), at(flight.ended_at)
        pad = end * 0.006
        axis.axvspan(start - pad, stop + pad, color=style.FLIGHTS[index % len(style.FLIGHTS)], zorder=0)
    for direction, lane, colour in (
        (Direction.TO_CLIENT, _SERVER_LANE, style.SERVER),
        (Direction.TO_SERVER, _CLIENT_LANE, style.CLIENT),
    ):
        mine = [s for s in exchange.segments if s.direction is direction]
        data = [at(s.at) for s in mine if s.length]
        acks = [at(s.at) for s in mine if not s.length and at(s.at) <= end * 1.08]
        axis.plot(data, [lane] * len(data), "|", color=colour, markersize=22, markeredgewidth=2)
        axis.plot(acks, [lane] * len(acks), ".", color=colour, markersize=4, alpha=0.7)
    _label_segments(axis, exchange, end)
    for stall in exchange.stalls:
        _stall(axis, exchange, stall)
    for instant, colour, name, height in (
        (exchange.first_row_at, style.ROW, "first row", -0.42),
        (exchange.eos_at, style.END, "EndOfStream", -0.68),
    ):
        if instant is not None:
            when = at(instant)
            late = when > end * 0.7
            axis.axvline(when, color=colour, linewidth=1, linestyle=":", zorder=1)
            axis.annotate(
                f"{name} {when:.1f} ms",
                (when, height),
                xytext=(-4 if late else 4, 0),
                textcoords="offset points",
                ha="right" if late else "left",
                va="center",
                fontsize=style.FONT,
                color=colour,
            )
    axis.set_yticks([_SERVER_LANE, _CLIENT_LANE], ["server", "client"])
    axis.set_ylim(-0.8, 2.05)
    axis.set_xlim(-end * 0.02, end * 1.08)
    _plain_frame(axis)


def _label_segments(axis: Axes, exchange: Exchange, end: float) -> None:
    groups: list[tuple[float, list[str], int]] = []
    for segment in exchange.segments:
        if segment.direction is not Direction.TO_CLIENT or not segment.length:
            continue
        when = (segment.at - exchange.sent_at) / NS_PER_MS
        if groups and when - groups[-1][0] < end * _NEAR:
            start, names, count = groups[-1]
            groups[-1] = (start, names + [n for n in segment.labels if n not in names], count + 1)
        else:
            groups.append((when, list(segment.labels), 1))
    for when, names, count in groups:
        shown = "+".join(_short(name) for name in names)
        unit = "segment" if count == 1 else "segments"
        text = f"{count} {unit}\n{shown}" if shown else f"{count} {unit}"
        side = "right" if when > end * 0.8 else "left"
        axis.annotate(text, (when, _SERVER_LANE + 0.3), fontsize=style.FONT - 1, color=style.INK, va="bottom", ha=side)


def _short(label: str) -> str:
    return {"ProfileInfo": "ProfInfo", "ProfileEvents": "ProfEvents", "EndOfStream": "EOS"}.get(label, label)


def _stall(axis: Axes, exchange: Exchange, stall: Stall) -> None:
    start = (stall.started_at - exchange.sent_at) / NS_PER_MS
    stop = (stall.ended_at - exchange.sent_at) / NS_PER_MS
    arrow: dict[str, Any] = {"arrowstyle": "<->", "color": style.STALL, "linewidth": 1.6}
    axis.annotate("", (start, 0.5), (stop, 0.5), arrowprops=arrow)
    trips = f" = {stall.duration / exchange.rtt:.2f} RTT" if exchange.rtt else ""
    window = f"{stall.outstanding_segments} segments unacknowledged, " if stall.outstanding_segments else ""
    axis.annotate(
        f"{window}nothing for {stall.duration / NS_PER_MS:.1f} ms{trips}",
        ((start + stop) / 2, 0.54),
        ha="center",
        va="bottom",
        fontsize=style.FONT,
        color=style.STALL,
        fontweight="bold",
    )
    ack = next((s for s in exchange.segments if s.frame == stall.ack_frame), None)
    if ack is not None:
        when = (ack.at - exchange.sent_at) / NS_PER_MS
        axis.annotate(
            f"ACK, frame {ack.frame}",
            (when, _CLIENT_LANE + 0.08),
            xytext=(-8, 8),
            textcoords="offset points",
            ha="right",
            fontsize=style.FONT - 1,
            color=style.CLIENT,
        )


def _histogram(axis: Axes, label: str, table: PshTable, sizes: list[int], colour: str) -> None:
    counts = dict(table.sizes)
    positions = range(len(sizes))
    bars = axis.bar(positions, [counts.get(size, 0) for size in sizes], color=colour, width=0.75)
    axis.bar_label(
        bars,
        [str(counts[size]) if size in counts else "" for size in sizes],
        fontsize=style.FONT - 1,
        color=style.INK,
        padding=1,
    )
    axis.set_xticks(positions, [str(size) for size in sizes], rotation=60, fontsize=style.FONT - 1)
    axis.set_title(
        f"{plain(label)}: {table.segments} segments, {table.bytes:,} bytes",
        loc="left",
        fontsize=style.FONT + 1,
        color=style.INK,
    )
    axis.set_xlabel("TCP payload, bytes", color=style.MUTED)
    _plain_frame(axis)


def _plain_frame(axis: Axes) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(style.GRID)
    axis.tick_params(colors=style.MUTED, labelsize=style.FONT)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white", metadata={"Software": None})
    return buffer.getvalue()

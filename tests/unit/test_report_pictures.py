"""Pictures: PNG and SVG of the same figure, labels that do not touch, dark colours, hostile texts, equal bytes."""

import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from report_records import AFTER, RTT, a_record, a_run, an_exchange

from netlab.diagnosis import Exchange, PshTable, Vantage
from netlab.report import plots, style, waterfall
from netlab.report.figure import Picture, colours, shown
from netlab.report.waterfall import Scene
from netlab.units import ms

HOSTILE = "$\\frac{a}{$ <script>alert(1)</script> \x1b[31m \u202e 中文 🚀 " + "x" * 300


def scene(exchange: Exchange, title: str = "query 1") -> Scene:
    return Scene(title=title, exchange=exchange, vantage=Vantage.SERVER)


def shifted(exchange: Exchange, by: int) -> Exchange:
    """The same answer, `by` ns later: the server thought first."""
    segments = [s if s.length == 97 else replace(s, at=s.at + by) for s in exchange.segments]
    stalls = [replace(s, started_at=s.started_at + by, ended_at=s.ended_at + by) for s in exchange.stalls]
    return replace(
        exchange, segments=tuple(segments), stalls=tuple(stalls), first_row_at=exchange.first_row_at + by,
        eos_at=exchange.eos_at + by, last_byte_at=exchange.last_byte_at + by,
    )  # fmt: skip


def png_size(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def texts(figure: Figure) -> list[Text]:
    """The words of a figure as drawn."""
    FigureCanvasAgg(figure).draw()
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    # matplotlib keeps tick labels that it does not draw.
    shown_ticks = {id(label) for axis in figure.axes for label in [*_ticks(axis.xaxis), *_ticks(axis.yaxis)]}
    all_ticks = {
        id(t) for axis in figure.axes for which in (axis.xaxis, axis.yaxis) for t in which.get_ticklabels(which="both")
    }
    return [t for t in found if id(t) not in all_ticks or id(t) in shown_ticks]


def _ticks(axis) -> list[Text]:
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high and tick.label1.get_visible()
    ]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts(figure)]
    # Two pixels of a line's height may be shared: descenders and ascenders do not meet.
    return [(a, b) for (a, one), (b, two) in combinations(boxes, 2) if one.padded(-2).overlaps(two.padded(-2))]


def outside(figure: Figure) -> list[str]:
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts(figure)]
    return [text for text, b in boxes if b.x0 < -1 or b.y0 < -1 or b.x1 > width + 1 or b.y1 > height + 1]


SETS: dict[str, Sequence[Scene]] = {
    "before and after": [scene(an_exchange(0), "26.7"), scene(an_exchange(0, AFTER, stalled=False), "26.9")],
    "only healthy": [scene(an_exchange(0, AFTER, stalled=False))],
    "healthy, many small": [scene(an_exchange(0, stalled=False))],
    "after thinking": [scene(shifted(an_exchange(0), ms(250)))],
    "after thinking, healthy": [scene(shifted(an_exchange(0, AFTER, stalled=False), ms(20)))],
    "another shift": [scene(shifted(an_exchange(0), ms(30)))],
}


@pytest.mark.parametrize("name", SETS)
def test_no_word_of_a_waterfall_touches_another_or_leaves_the_picture(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waterfall, "picture", lambda figure: figure)
    figure = waterfall.waterfalls(SETS[name])
    assert overlapping(figure) == [] and outside(figure) == []


def test_no_word_of_an_overview_a_histogram_or_the_tails_touches_another(monkeypatch: pytest.MonkeyPatch):
    for module in (waterfall, plots):
        monkeypatch.setattr(module, "picture", lambda figure: figure)
    record = a_record()
    both = [(run.server.label, [scene(e, f"query {e.index}") for e in run.diagnosis.exchanges]) for run in record.runs]
    before, after = ((run.server.label, run.psh) for run in record.runs)
    for figure in (
        waterfall.overview(both),
        waterfall.overview(both[:1]),
        plots.histogram_pair(before, after),
        plots.tails(record.runs, RTT),
        plots.windows(record.runs[0].diagnosis.exchanges),
    ):
        assert overlapping(figure) == [] and outside(figure) == []


def test_png_and_svg_are_the_same_picture_twice_the_same_bytes():
    first, second = (waterfall.waterfalls(SETS["before and after"]) for _ in range(2))
    assert first == second
    width, height = png_size(first.png)
    root = ET.fromstring(first.svg)
    assert width == style.WIDTH * style.DPI
    _, _, w, h = map(float, root.attrib["viewBox"].split())
    assert abs(w / h - width / height) < 0.01


def test_dark_pages_get_dark_colours_and_no_light_one_is_left():
    inline = waterfall.waterfalls(SETS["before and after"]).inline("f0", "what it shows")
    assert not re.search(r"(?<![\"(])#[0-9a-f]{3,6}\b", inline)
    used = set(re.findall(r"var\((--p\d+)\)", inline))
    for dark in (False, True):
        assert used <= set(re.findall(r"(--p\d+):", colours(dark=dark)))
    assert style.DARK[style.STALL] in colours(dark=True) and style.STALL in colours(dark=False)
    assert len(set(style.DARK)) == len(style.DARK) == len(set(style.DARK.values()))


@pytest.mark.parametrize(("dark", "page"), [(False, style.PAGE), (True, style.DARK[style.PAGE])])
def test_words_can_be_read_on_their_ground(dark: bool, page: str):
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    grounds = [style.PAGE, style.FLIGHTS[0]]
    pairs = [(ink, ground) for ink in (style.INK, style.MUTED, style.CLIENT) for ground in grounds]
    pairs += [(style.ROW, style.PAGE), (style.END, style.PAGE), (style.STALL, style.SILENCE)]
    for ink, ground in pairs:
        one, two = (luminance(style.DARK[c] if dark else c) for c in (ink, ground))
        ratio = (max(one, two) + 0.05) / (min(one, two) + 0.05)
        assert ratio >= (3 if ink == style.STALL else 4), (ink, ground, ratio)  # the stall's words are bold
    assert page


def test_ids_of_two_pictures_on_one_page_differ_and_references_hold():
    drawn = plots.tails([a_run("26.7", stalled=True)], RTT)
    ids = []
    for prefix in ("f0", "f1"):
        inline = drawn.inline(prefix, "x")
        mine = re.findall(r' id="([^"]+)"', inline)
        assert len(mine) == len(set(mine))
        assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', inline)) <= {(i, "") for i in mine} | {
            ("", i) for i in mine
        }
        ids += mine
    assert len(ids) == len(set(ids))


def test_hostile_words_are_drawn_as_they_are_and_hold_no_markup():
    bad = replace(an_exchange(0), query=HOSTILE)
    request = replace(bad.segments[0], labels=(HOSTILE,))
    bad = replace(bad, segments=(request, *(replace(s, labels=(HOSTILE, "$")) for s in bad.segments[1:])))
    run = a_run("26.7", stalled=True)
    run = replace(run, server=replace(run.server, label=HOSTILE))
    table = PshTable(segments=1, bytes=1, sizes=((1, 1),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as a glyph that the font lacks
        drawn = [
            waterfall.waterfalls([scene(bad, HOSTILE)]),
            waterfall.overview([(HOSTILE, [scene(bad, HOSTILE)])] * 2),
            plots.tails([run], RTT),
            plots.histogram_pair((HOSTILE, table), (HOSTILE, table)),
        ]
    for picture in drawn:
        inline = picture.inline("f0", f'{HOSTILE}" onload="x')
        assert "script" not in picture.svg and "<!--" not in picture.svg and "<script" not in inline
        assert "\x1b" not in inline and 'onload="x"' not in inline
        assert [e for e in ET.fromstring(f"<r>{inline}</r>").iter() if "onload" in e.attrib] == []


def test_shown_keeps_what_the_font_has_and_spells_what_it_lacks():
    assert shown("clickhouse:26.7 (µs) – …") == "clickhouse:26.7 (µs) – …"
    assert shown("中\u202e") == "\\u4e2d\\u202e"
    assert shown("$x$") == "\\$x\\$"


def test_sizes_beyond_what_fits_are_put_into_ranges_that_hold_all():
    sizes = list(range(1, 1449, 7))
    bins = plots.size_bins(sizes)
    assert len(bins) <= 22
    assert [size for size in sizes if sum(low <= size <= high for low, high in bins) != 1] == []
    assert plots.size_bins([1, 36]) == [(1, 1), (36, 36)] and plots.size_bins([]) == []


def test_nothing_to_show_is_no_crash():
    empty = PshTable(segments=0, bytes=0, sizes=())
    drawn: list[Picture] = [
        plots.histogram_pair(("a", empty), ("b", empty)),
        plots.strips([("a", []), ("b", [])], "x"),
        plots.strips([("a", [0])], "x", 0),
        waterfall.waterfalls([scene(replace(an_exchange(0), segments=(), stalls=(), flights=()))]),
    ]
    assert all(png_size(picture.png) for picture in drawn)


def test_the_typical_scene_waited_where_a_good_part_did():
    waited, quick = scene(an_exchange(0), "w"), scene(an_exchange(1, AFTER, stalled=False), "q")
    assert waterfall.typical("s", [quick, quick, quick, waited]).title == "s, w"
    assert waterfall.typical("s", [quick] * 7 + [waited]).title == "s, q"

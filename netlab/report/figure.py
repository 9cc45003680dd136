"""Figures into bytes: PNG and SVG for files, SVG that takes its colours from the page for HTML.

matplotlib is used through Figure objects alone: no global state, no display, safe in threads.
"""

import io
import re
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from netlab.report import style
from netlab.text import plain

_COLOUR = re.compile("|".join(map(re.escape, style.DARK)), re.IGNORECASE)
_NAMES = {colour: f"--p{number}" for number, colour in enumerate(style.DARK)}
# What the SVG does not need: comments repeat texts, metadata repeat the format.
_NEEDLESS = re.compile(r"<!--.*?-->\s*|<metadata>.*?</metadata>\s*", re.DOTALL)
# HTML knows both by itself, and a page without them names no address at all.
_NAMESPACE = re.compile(r' xmlns(?::xlink)?="[^"]*"')
_ID = re.compile(r'(?<= id=")[^"]+')
_REFERENCE = re.compile(r'(id="|href="#|url\(#)([^")]+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture: PNG bytes and SVG text, both in light colours."""

    png: bytes
    svg: str

    def inline(self, prefix: str, what: str) -> str:
        """Return the SVG for a page: its colours are variables (`colours`), its ids begin with `prefix`."""
        text = _COLOUR.sub(lambda found: f"var({_NAMES[found[0].lower()]})", self.svg)
        text = _REFERENCE.sub(rf"\g<1>{prefix}\g<2>", text).replace("xlink:href", "href")
        text = _NAMESPACE.sub("", text)
        return text.replace("<svg ", f'<svg role="img" aria-label="{escape(plain(what))}" ', 1)


def colours(*, dark: bool) -> str:
    """Return the CSS declarations that inline pictures need."""
    return " ".join(f"{name}: {style.DARK[light] if dark else light};" for light, name in _NAMES.items())


def figure(height: float, width: float = style.WIDTH) -> Figure:
    """Return an empty figure of `width` by `height` inches."""
    return Figure(figsize=(width, height), dpi=style.DPI, facecolor=style.PAGE, layout="constrained")


def picture(drawn: Figure) -> Picture:
    """Return `drawn` as PNG and SVG; equal figures give equal bytes."""
    png, svg = io.BytesIO(), io.StringIO()
    drawn.savefig(png, format="png", metadata={"Software": None})
    # Laid out by the PNG already: a second layout would cost as much as the drawing.
    drawn.set_layout_engine("none")
    drawn.savefig(svg, format="svg", dpi=72)
    text = _NEEDLESS.sub("", svg.getvalue())
    return Picture(png=png.getvalue(), svg=_numbered(text[text.index("<svg") :]))


def warm_up() -> None:
    """Draw a little of everything: the first drawing of a process loads fonts and formats, some 0.3 s."""
    drawn = figure(1.0)
    axis = drawn.subplots()
    axis.set_title("warm", fontweight="bold")
    axis.annotate("up", (0.5, 0.5), (0.2, 0.2), arrowprops={"arrowstyle": "<->"})
    picture(drawn)


def shown(text: str, longest: int = 80) -> str:
    """Return `text` as matplotlib can draw it: one line, no mathematics, no character that the font lacks."""
    return "".join(
        character if _drawable(character) else f"\\u{ord(character):04x}" for character in plain(text, longest=longest)
    ).replace("$", "\\$")


def frame(axis: Axes, *, left: bool = True) -> None:
    """Leave of the frame round `axis` what a reader needs, in a quiet colour."""
    axis.set_facecolor(style.PAGE)
    for side in ("top", "right", *(() if left else ("left",))):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(style.GRID)
    axis.tick_params(colors=style.MUTED, labelsize=style.FONT, length=3)


def heading(axis: Axes, text: str, size: float = style.FONT + 2) -> None:
    """Put `text` above `axis`, at its left edge."""
    axis.set_title(text, loc="left", fontsize=size, color=style.INK, fontweight="bold")


@lru_cache(maxsize=4096)
def _drawable(character: str) -> bool:
    return get_font(findfont(FontProperties())).get_char_index(ord(character)) != 0


def _numbered(svg: str) -> str:
    """Return `svg` with its random ids counted through."""
    names = {name: f"e{number}" for number, name in enumerate(dict.fromkeys(_ID.findall(svg)))}
    return _REFERENCE.sub(lambda found: found[1] + names.get(found[2], found[2]), svg)

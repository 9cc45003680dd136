"""What a report says, before it is Markdown or HTML: plain texts in blocks. Whoever prints them escapes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from netlab.report.figure import Picture


class Tone(Enum):
    """How a section is marked."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A paragraph: `text`, and then `code` as it would be typed, where there is some."""

    text: str
    code: str = ""
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with sentences, one a line; a sentence may have a prefix that says whose it is."""

    title: str
    sentences: tuple[str, ...]
    remedies: tuple[tuple[str, str], ...] = ()  # (who can apply it, what)
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A heading, column names, rows of as many cells, and notes under them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plate:
    """A picture: the name of its PNG file beside the Markdown, what it shows, and whether it opens on demand."""

    name: str
    what: str
    picture: Picture
    folded: bool = False


Block = Text | Section | Table | Plate


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A title and blocks in order."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def plates(self) -> Sequence[Plate]:
        """The pictures, in order."""
        return [block for block in self.blocks if isinstance(block, Plate)]

"""Documents as GitHub flavoured Markdown, for a pull request or a ticket. Whatever a peer sent is inert in it."""

import re

from netlab.report.document import Block, Document, Plate, Section, Table, Text
from netlab.text import plain

# Markup anywhere; an underscore only where it could open or close emphasis; what links or becomes an emoji by itself.
_SPECIAL = re.compile(
    r"[\\`*\[\]|~$@#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|:(?=[\w+-]+:)|(?<=www)\.", re.IGNORECASE
)
# Markup at the beginning of a line: lists, rules, quotes, underlined headings.
_LEADING = re.compile(r"^(\d{1,9})([.)])(?=\s|$)|^([-+=])(?=[\s=-]|$)")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def render(document: Document) -> str:
    """Return `document` as Markdown."""
    return "\n".join([f"# {escape(document.title)}\n", *map(_block, document.blocks)])


def escape(text: str) -> str:
    """Return `text` so that Markdown shows it as it is: one line, no markup, no mention, no link, no HTML."""
    shown = re.sub("[<>&]", lambda found: _ENTITIES[found[0]], plain(text).strip())
    shown = _SPECIAL.sub(lambda found: "\\" + found[0], shown)
    return _LEADING.sub(lambda found: f"{found[1]}\\{found[2]}" if found[1] else f"\\{found[3]}", shown)


def code(text: str) -> str:
    """Return `text` as a code span that it cannot close."""
    shown = plain(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {shown} {fence}" if longest else f"{fence}{shown}{fence}"


def _block(block: Block) -> str:
    match block:
        case Text():
            return _text(block)
        case Section():
            return _section(block)
        case Table():
            return _table(block)
        case Plate():
            return f"![{escape(block.what)}]({block.name})\n"


def _text(block: Text) -> str:
    text = escape(block.text)
    text = f"**{text}**" if block.strong and text else text
    return " ".join(part for part in (text, code(block.code) if block.code else "") if part) + "\n"


def _section(block: Section) -> str:
    lines = [f"## {escape(block.title)}\n"]
    lines += [f"- {escape(sentence)}" for sentence in block.sentences]
    lines += [f"- heal it ({escape(who)}): {escape(what)}" for who, what in block.remedies]
    return "\n".join(lines) + "\n"


def _table(block: Table) -> str:
    rule = "|" + " --- |" * len(block.columns)
    lines = [_row(block.columns), rule, *map(_row, block.rows)]
    notes = [f"\n{escape(note)}" for note in block.notes]
    return f"## {escape(block.title)}\n\n" + "\n".join([*lines, *notes]) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(map(escape, cells)) + " |"

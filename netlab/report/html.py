"""Documents as one HTML file: no network, no script, readable on a phone and in the dark.

Whatever a peer sent is text in it.
"""

import html

from netlab.report.document import Block, Document, Plate, Section, Table, Text
from netlab.report.figure import colours
from netlab.text import plain

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --muted: #5f6675; --page: #fff; --card: #f6f7f9; --line: #d9dce3;
  --bad: #b34700; --good: #00694d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --muted: #a3aab8; --page: #14161b; --card: #1d2027;
  --line: #343944; --bad: #ff9d5c; --good: #4fd1a5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 68rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 1.6rem 0 .5rem; }
section { background: var(--card); border-left: 4px solid var(--line); padding: .6rem 1rem; margin: .8rem 0; }
section.bad { border-color: var(--bad); } section.good { border-color: var(--good); }
section h2 { margin-top: 0; } .who { color: var(--muted); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: normal; white-space: nowrap; }
td.long { white-space: normal; min-width: 14rem; }
code { background: var(--card); padding: .1rem .3rem; border-radius: 3px; }
figure { margin: 1rem 0; overflow-x: auto; } summary { cursor: pointer; margin: .5rem 0; }
figure svg { width: 100%; min-width: 40rem; max-width: 60rem; height: auto; display: block; }
@media (max-width: 40rem) { td:first-child, th { white-space: normal; } th, td { padding-right: .45rem; } }
.note { color: var(--muted); font-size: .9rem; }
"""
_PICTURES = (
    f":root {{ {colours(dark=False)} }} @media (prefers-color-scheme: dark) {{ :root {{ {colours(dark=True)} }} }}"
)
_LONG = 40  # characters from which a cell may wrap
# Nothing may be loaded or run, whatever slipped in.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(document: Document) -> str:
    """Return the page of `document`."""
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(document.title)}</title><style>{_STYLE}{_PICTURES}</style>"
    )
    body = [f"<h1>{escape(document.title)}</h1>"]
    body += [_block(number, block) for number, block in enumerate(document.blocks)]
    inside = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{inside}\n</body></html>\n'


def escape(text: str) -> str:
    """Return `text` inert in HTML: one line, no markup, no invisible characters."""
    return html.escape(plain(text), quote=True)


def _block(number: int, block: Block) -> str:
    match block:
        case Text():
            return _text(block)
        case Section():
            return _section(block)
        case Table():
            return _table(block)
        case Plate():
            return _plate(number, block)


def _text(block: Text) -> str:
    text = f"<b>{escape(block.text)}</b>" if block.strong else escape(block.text)
    return f"<p>{text} <code>{escape(block.code)}</code></p>" if block.code else f"<p>{text}</p>"


def _section(block: Section) -> str:
    items = [f"<li>{escape(sentence)}</li>" for sentence in block.sentences]
    items += [
        f'<li>heal it <span class="who">({escape(who)})</span>: {escape(what)}</li>' for who, what in block.remedies
    ]
    title = f"<h2>{escape(block.title)}</h2>"
    return f'<section class="{block.tone.value}">{title}<ul>{"".join(items)}</ul></section>'


def _table(block: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in block.columns)
    rows = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in block.rows)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in block.notes)
    return (
        f'<h2>{escape(block.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{notes}"
    )


def _cell(text: str) -> str:
    return f'<td class="long">{escape(text)}</td>' if len(text) > _LONG else f"<td>{escape(text)}</td>"


def _plate(number: int, block: Plate) -> str:
    drawn = f"<figure>{block.picture.inline(f'f{number}', block.what)}</figure>"
    return f"<details><summary>{escape(block.what)}</summary>{drawn}</details>" if block.folded else drawn

"""report.html: one file, no network, readable on a phone and in the dark. Whatever a peer sent is text in it."""

import html
import shlex
from collections.abc import Sequence

from netlab.analysis.explain import Verdict
from netlab.record import RunRecord
from netlab.report import tables
from netlab.report.figure import Picture, colours
from netlab.report.tables import Table
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
.verdict { background: var(--card); border-left: 4px solid var(--line); padding: .6rem 1rem; margin: .8rem 0; }
.verdict.bad { border-color: var(--bad); } .verdict.good { border-color: var(--good); }
.verdict h2 { margin-top: 0; } .who { color: var(--muted); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: normal; white-space: nowrap; }
td.long { white-space: normal; min-width: 14rem; }
code { background: var(--card); padding: .1rem .3rem; border-radius: 3px; }
figure { margin: 1rem 0; overflow-x: auto; } summary { cursor: pointer; margin: .5rem 0; }
figure svg { width: 100%; min-width: 40rem; max-width: 60rem; height: auto; display: block; }
footer { color: var(--muted); margin-top: 2rem; font-size: .9rem; }
"""
_PICTURES = (
    f":root {{ {colours(dark=False)} }} @media (prefers-color-scheme: dark) {{ :root {{ {colours(dark=True)} }} }}"
)
_LONG = 40  # characters from which a cell may wrap
# Nothing may be loaded or run, whatever slipped in.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def escape(text: str) -> str:
    """Return `text` inert in HTML: one line, no markup, no invisible characters."""
    return html.escape(plain(text), quote=True)


def report(
    record: RunRecord,
    verdicts: Sequence[Verdict],
    pictures: Sequence[tuple[Picture, str]],
    folded: Sequence[tuple[Picture, str]] = (),
) -> str:
    """Return the page; pictures come with what they show, `folded` ones open on demand."""
    body = [f"<h1>netlab: {escape(record.scenario.name)}</h1>"]
    if record.scenario.story:
        body.append(f"<p>{escape(record.scenario.story)}</p>")
    body.append(f"<p>Query: <code>{escape(record.scenario.workload.query)}</code></p>")
    if record.interrupted:
        body.append(f"<p><b>Interrupted by {escape(record.interrupted)}</b>: what had been measured is here.</p>")
    body += [f"<p><b>{escape(line)}</b></p>" for line in tables.ended_early(record)]
    body += [_verdict(verdict) for verdict in verdicts]
    body.append(_table(tables.headline(record, verdicts)))
    body += [_picture(number, drawn, what) for number, (drawn, what) in enumerate(pictures)]
    for number, (drawn, what) in enumerate(folded, start=len(pictures)):
        body.append(f"<details><summary>{escape(what)}</summary>{_picture(number, drawn, what)}</details>")
    by_label = {verdict.server: verdict for verdict in verdicts}
    body += [_table(tables.queries(run, by_label.get(run.server.label))) for run in record.runs]
    body.append(_table(tables.lab(record)))
    body.append(_table(tables.machine(record)))
    if record.notes:
        body.append("<h2>Notes</h2><ul>" + "".join(f"<li>{escape(note)}</li>" for note in record.notes) + "</ul>")
    body.append(f"<footer>Again: <code>{escape(shlex.join(record.command_line))}</code></footer>")
    return _page(f"netlab: {record.scenario.name}", body)


def _page(title: str, body: Sequence[str]) -> str:
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{_PICTURES}</style>"
    )
    inside = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{inside}\n</body></html>\n'


def _verdict(verdict: Verdict) -> str:
    kind = "bad" if any(verdict.extra_round_trips) else "good" if verdict.cause == "healthy" else ""
    items = [f"<li>{escape(sentence)}</li>" for sentence in verdict.sentences]
    items += [
        f'<li>heal it <span class="who">({escape(who)})</span>: {escape(what)}</li>' for who, what in verdict.remedies
    ]
    title = f"{escape(verdict.server)}: {escape(verdict.headline)}"
    return f'<section class="verdict {kind}"><h2>{title}</h2><ul>{"".join(items)}</ul></section>'


def _table(data: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in data.columns)
    rows = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in data.rows)
    return (
        f'<h2>{escape(data.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    return f'<td class="long">{escape(text)}</td>' if len(text) > _LONG else f"<td>{escape(text)}</td>"


def _picture(number: int, drawn: Picture, what: str) -> str:
    return f"<figure>{drawn.inline(f'f{number}', what)}</figure>"

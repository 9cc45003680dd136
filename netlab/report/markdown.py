"""report.md: for a pull request or a ticket (GitHub flavoured). Whatever a peer sent is inert in it."""

import re
import shlex
from collections.abc import Sequence

from netlab.analysis.explain import Verdict
from netlab.record import RunRecord
from netlab.report import tables
from netlab.report.tables import Table
from netlab.text import plain

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~<>&$@-])")


def escape(text: str) -> str:
    """Return `text` so that Markdown shows it as it is: one line, no markup, no mention, no HTML."""
    return _SPECIAL.sub(r"\\\1", plain(text)).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")


def code(text: str) -> str:
    """Return `text` as a code span that it cannot close."""
    shown = plain(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {shown} {fence}" if longest else f"{fence}{shown}{fence}"


def table(data: Table) -> str:
    """Return a Markdown table under its heading."""
    rows = [data.columns, tuple("---" for _ in data.columns)]
    lines = ["| " + " | ".join(escape(c) if i != 1 else c for c in row) + " |" for i, row in enumerate(rows)]
    lines += ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in data.rows]
    return f"## {escape(data.title)}\n\n" + "\n".join(lines) + "\n"


def report(record: RunRecord, verdicts: Sequence[Verdict], pictures: Sequence[tuple[str, str]]) -> str:
    """Return the report; `pictures` are (file name, what it shows)."""
    work = record.scenario.workload
    parts = [f"# netlab: {escape(record.scenario.name)}\n"]
    if record.scenario.story:
        parts.append(escape(record.scenario.story) + "\n")
    parts.append(f"Query: {code(work.query)}\n")
    if record.interrupted:
        parts.append(f"**Interrupted by {escape(record.interrupted)}**: what had been measured is here.\n")
    parts += [f"**{escape(line)}**\n" for line in tables.ended_early(record)]
    parts += [_verdict(verdict) for verdict in verdicts]
    parts.append(table(tables.headline(record, verdicts)))
    parts += [f"![{escape(what)}]({name})\n" for name, what in pictures]
    by_label = {verdict.server: verdict for verdict in verdicts}
    parts += [table(tables.queries(run, by_label.get(run.server.label))) for run in record.runs]
    parts.append(table(tables.lab(record)))
    parts.append(table(tables.machine(record)))
    if record.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {escape(note)}" for note in record.notes) + "\n")
    parts.append(f"## Again\n\n{code(shlex.join(record.command_line))}\n")
    return "\n".join(parts)


def _verdict(verdict: Verdict) -> str:
    lines = [f"## {escape(verdict.server)}: {escape(verdict.headline)}\n"]
    lines += [f"- {escape(sentence)}" for sentence in verdict.sentences]
    lines += [f"- heal it ({escape(who)}): {escape(what)}" for who, what in verdict.remedies]
    return "\n".join(lines) + "\n"

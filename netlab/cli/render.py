"""Values into text on the terminal: JSON, the article's lines, tables. Everything a peer sent goes through `plain`."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from netlab.analysis.tail import Summary, summarise
from netlab.record import RttReport, RunRecord, ServerRun
from netlab.samples import Sample
from netlab.scenario import Scenario
from netlab.text import plain
from netlab.units import as_ms, format_duration

if TYPE_CHECKING:
    from netlab.analysis.explain import Verdict

DASH = "–"  # a figure that was not measured


def print_json(value: Any) -> None:
    """Print `value` (dataclasses included) as one JSON object, indented."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=_spell), indent=2).decode()
    click.echo(text)


def _spell(value: Any) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(type(value))


def note(text: str) -> None:
    """Say `text` on stderr."""
    click.echo(plain(text), err=True)


def run_line(address: str, scenario: Scenario) -> str:
    """Return the article's first line: address, sleep, whether ProfileEvents are asked for."""
    events = str(scenario.workload.profile_events).lower()
    return f"addr={address} sleep={format_duration(scenario.workload.idle)} profile_events={events}"


def shell_line(argv: Sequence[str]) -> str:
    """Return `argv` as a shell reads it back. What a terminal must not see is spelt inside $'...'."""
    return " ".join(shlex.quote(word) if plain(word, longest=len(word)) == word else _dollar(word) for word in argv)


def _dollar(word: str) -> str:
    # Bytes in octal: what \u means depends on the shell's locale, and \x takes as many digits as there are.
    known = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"}
    spelt = (
        known.get(c) or (c if plain(c) == c else "".join(f"\\{byte:03o}" for byte in os.fsencode(c))) for c in word
    )
    return f"$'{''.join(spelt)}'"


def sample_line(sample: Sample) -> str:
    """Return the article's line of one query. A figure that was not measured is absent."""
    parts = [
        f"{name}={as_ms(value):6.2f}ms"
        for name, value in (("first_row", sample.first_row), ("eos", sample.eos), ("tail", sample.tail))
        if value is not None
    ]
    line = " ".join([f"query {sample.index}:", *parts, f"(rows={sample.rows})"])
    if sample.exception is not None:
        line += f" exception {sample.exception.code} {plain(sample.exception.name)}: {plain(sample.exception.message)}"
    return line if sample.void is None else f"{line} VOID: {plain(sample.void)}"


def rtt_line(report: RttReport) -> str:
    """Return the ping's summary."""
    low, middle, high = (f"{as_ms(v):.3f}" for v in (report.minimum, report.median, report.maximum))
    return f"ping: {report.received}/{report.sent} replies, rtt min/median/max = {low}/{middle}/{high} ms"


def server_title(run: ServerRun) -> str:
    """Return the server's label with the version that it states."""
    return f"{run.server.label} (ClickHouse {run.version})" if run.version else run.server.label


def plain_lines(text: str) -> str:
    """Return `text` safe for a terminal, its own line breaks kept."""
    return "\n".join(plain(line) for line in text.split("\n"))


def side_by_side(record: RunRecord, verdicts: Sequence["Verdict"]) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows: a row a figure, a column a server. A figure that is missing is a dash."""
    by_label = {verdict.server: verdict for verdict in verdicts}
    runs = [run for run in record.runs if run.server.label in by_label]
    rows = [
        ["first_row p50"],
        ["eos p50"],
        ["tail p50"],
        ["tail max"],
        ["extra round trips"],
        ["cause"],
        ["PSH segments"],
    ]
    for run in runs:
        verdict = by_label[run.server.label]
        sound = [s for s in run.samples if s.void is None]
        first_row, eos, tail = (
            summarise([value for s in sound if (value := getattr(s, name)) is not None])
            for name in ("first_row", "eos", "tail")
        )
        cells = [
            _p50(first_row),
            _p50(eos),
            _p50(tail),
            _ms(None if tail is None else tail.maximum),
        ]
        trips = ", ".join(DASH if t is None else str(t) for t in verdict.extra_round_trips) or DASH
        psh = DASH if run.psh is None else f"{run.psh.segments}"
        for row, cell in zip(rows, [*cells, trips, verdict.cause or DASH, psh], strict=True):
            row.append(cell)
    return ["", *(run.server.label for run in runs)], rows


def _ms(value: int | None) -> str:
    return DASH if value is None else f"{as_ms(value):.2f} ms"


def print_table(columns: list[str], rows: list[list[str]], *, title: str = "") -> None:
    """Print a table: with rich on a terminal, as aligned plain text when piped."""
    if not sys.stdout.isatty():
        _print_plain_table(columns, rows, title)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for name in columns:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    Console().print(table)


def _print_plain_table(columns: list[str], rows: list[list[str]], title: str) -> None:
    cells = [columns, *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    if title:
        click.echo(title)
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _p50(summary: Summary | None) -> str:
    return DASH if summary is None else _ms(summary.p50)


def connection_lines(run: ServerRun) -> list[str]:
    """Return what a run without captures can say: tails, and the client kernel's view of the connection."""
    tail = summarise([s.tail for s in run.samples if s.void is None and s.tail is not None])
    lines = []
    if tail is not None:
        lines.append(f"tail: p50 {_ms(tail.p50)}, p99 {_ms(tail.p99)}, max {_ms(tail.maximum)}, n {tail.n}")
    last = next((s.client_after for s in reversed(run.samples) if s.client_after is not None), None)
    if last is not None:
        lowest = "" if last.min_rtt is None else f", lowest {as_ms(last.min_rtt):.2f} ms"
        lines.append(f"the client's kernel: rtt {as_ms(last.rtt):.2f} ms{lowest}, mss {last.snd_mss}")
    return lines

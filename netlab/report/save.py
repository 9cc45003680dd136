"""Everything a run's folder shows people: report.md, report.html and the pictures."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from netlab.analysis.explain import Verdict
from netlab.analysis.match import matched_exchanges
from netlab.diagnosis import Exchange
from netlab.files import write_file
from netlab.record import RunRecord, ServerRun
from netlab.report import html, markdown, plots
from netlab.report.tables import sound


def save_queries(run: ServerRun, folder: Path) -> None:
    """Write the picture of every query of `run` early: the end of all runs need not wait for it. Raises OutputError."""
    rows = [(f"query {number}", exchange) for number, exchange in _numbered(run)][:_MOST]
    if rows:
        write_file(folder / _queries_name(run), plots.waterfalls(rows))


def save(record: RunRecord, verdicts: Sequence[Verdict], folder: Path) -> None:
    """Write the reports of `record` into `folder`, each file whole or not at all. Raises OutputError."""
    pictures = _pictures(record)
    for name, _, png in pictures:
        write_file(folder / name, png)
    for run in record.runs:
        with suppress(FileNotFoundError):
            png = (folder / _queries_name(run)).read_bytes()
            pictures.append((_queries_name(run), f"Every query of {run.server.label}", png))
    text = markdown.report(record, verdicts, [(name, what) for name, what, _ in pictures])
    write_file(folder / "report.md", text.encode())
    page = html.report(record, verdicts, [(png, what) for _, what, png in pictures])
    write_file(folder / "report.html", page.encode())


def _queries_name(run: ServerRun) -> str:
    """Return the picture's name: that of the server's captures."""
    stem = next((c.path.removesuffix(f".{c.vantage}.pcapng") for c in run.captures), "server")
    return f"{stem}.queries.png"


def _pictures(record: RunRecord) -> list[tuple[str, str, bytes]]:
    made: list[tuple[str, str, bytes]] = []
    shown = [(f"{run.server.label}, query {n}", e) for run in record.runs for n, e in _middle(run)]
    if shown:
        made.append(("waterfall.png", "The median query of each server, packet by packet", plots.waterfalls(shown)))
    tables = [(run.server.label, run.psh) for run in record.runs if run.psh is not None]
    if len(tables) > 1:
        png = plots.histogram_pair(tables[0], tables[1])
        made.append(("histogram.png", "Segments with PSH from the server, by size", png))
    timed = [run for run in record.runs if any(s.tail is not None for s in sound(run))]
    if timed:
        made.append(("tails.png", "Each query's tail", plots.tails(timed, record.scenario.link.rtt)))
    return made


# Rows of one picture: more cannot be read.
_MOST = 10


def _numbered(run: ServerRun) -> list[tuple[int, Exchange]]:
    pairs = zip([s.index for s in sound(run)], matched_exchanges(run), strict=True)
    return [(number, exchange) for number, exchange in pairs if exchange is not None]


def _middle(run: ServerRun) -> list[tuple[int, Exchange]]:
    ordered = sorted(_numbered(run), key=lambda pair: pair[1].tail or 0)
    return [ordered[(len(ordered) - 1) // 2]] if ordered else []

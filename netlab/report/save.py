"""Reports into a folder: each file whole or not at all."""

from collections.abc import Sequence
from pathlib import Path

from netlab.analysis.explain import Verdict
from netlab.files import write_file
from netlab.record import RunRecord, ServerRun
from netlab.report import html, markdown, runs, waterfall
from netlab.report.document import Document, Plate
from netlab.report.figure import Picture


def save_queries(run: ServerRun, folder: Path) -> None:
    """Write the picture of every query of `run` early: the end of all runs need not wait for it. Raises OutputError."""
    found = runs.scenes(run)[: runs.MOST]
    if found:
        drawn = waterfall.waterfalls(found)
        write_file(folder / f"{_stem(run)}.queries.svg", drawn.svg.encode())
        write_file(folder / f"{_stem(run)}.queries.png", drawn.png)


def save(record: RunRecord, verdicts: Sequence[Verdict], folder: Path) -> None:
    """Write the reports of `record` and their pictures into `folder`. Raises OutputError."""
    early = _drawn_early(record, folder)
    save_document(runs.run_document(record, verdicts, early), folder, written=early)


def save_document(document: Document, folder: Path, *, written: Sequence[Plate] = ()) -> None:
    """Write report.md, report.html and the pictures that are not `written` yet into `folder`. Raises OutputError."""
    for plate in document.plates:
        if plate not in written:
            write_file(folder / plate.name, plate.picture.png)
    write_file(folder / "report.md", markdown.render(document).encode())
    write_file(folder / "report.html", html.render(document).encode())


def _stem(run: ServerRun) -> str:
    """Return how the files of `run` begin: as those of the server's captures."""
    return next((c.path.removesuffix(f".{c.vantage}.pcapng") for c in run.captures), "server")


def _drawn_early(record: RunRecord, folder: Path) -> list[Plate]:
    found: list[Plate] = []
    for run in record.runs:
        path = folder / f"{_stem(run)}.queries.png"
        try:
            drawn = Picture(png=path.read_bytes(), svg=path.with_suffix(".svg").read_text())
        except FileNotFoundError:
            continue
        what = f"Every query of {run.server.label}, packet by packet"
        found.append(Plate(name=path.name, what=what, picture=drawn, folded=True))
    return found

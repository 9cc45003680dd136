"""Reports into a folder: each file whole or not at all."""

from collections.abc import Sequence
from pathlib import Path

from netlab.analysis.explain import Verdict
from netlab.files import remove_file, write_file
from netlab.record import RunRecord, ServerRun
from netlab.report import html, markdown, runs, waterfall
from netlab.report.document import Document, Plate
from netlab.report.figure import Picture


def save_queries(run: ServerRun, folder: Path) -> None:
    """Write the picture of every query of `run`. Raises OutputError."""
    found = runs.scenes(run)[: runs.MOST]
    _write(folder / f"{_stem(run)}.queries.png", waterfall.waterfalls(found) if found else None)


def save_pictures(record: RunRecord, folder: Path, names: Sequence[str] = tuple(runs.TITLES)) -> None:
    """Write the pictures that compare the servers of `record`, or the named ones of them. Raises OutputError."""
    for name in names:
        _write(folder / name, runs.draw(record, name))


def save_reports(record: RunRecord, verdicts: Sequence[Verdict], folder: Path) -> None:
    """Write report.md and report.html with the pictures that `folder` holds already. Raises OutputError."""
    drawn = [plate for name, what in runs.TITLES.items() if (plate := _read(folder / name, what, folded=False))]
    for run in record.runs:
        what = f"Every query of {run.server.label}, packet by packet"
        plate = _read(folder / f"{_stem(run)}.queries.png", what, folded=True)
        drawn += [] if plate is None else [plate]
    save_document(runs.run_document(record, verdicts, drawn), folder, written=drawn)


def save(record: RunRecord, verdicts: Sequence[Verdict], folder: Path) -> None:
    """Write the reports of `record` and all their pictures into `folder`. Raises OutputError."""
    for run in record.runs:
        save_queries(run, folder)
    save_pictures(record, folder)
    save_reports(record, verdicts, folder)


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


def _write(path: Path, drawn: Picture | None) -> None:
    """Write a picture; where there is none to draw, an older run's in the folder goes."""
    if drawn is None:
        remove_file(path.with_suffix(".svg"))
        remove_file(path)
        return
    write_file(path.with_suffix(".svg"), drawn.svg.encode())
    write_file(path, drawn.png)


def _read(path: Path, what: str, *, folded: bool) -> Plate | None:
    try:
        drawn = Picture(png=path.read_bytes(), svg=path.with_suffix(".svg").read_text())
    except FileNotFoundError:
        return None
    return Plate(name=path.name, what=what, picture=drawn, folded=folded)

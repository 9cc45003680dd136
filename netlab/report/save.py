"""Everything a run's folder shows people: report.md, report.html and the pictures."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from netlab.analysis.explain import Verdict
from netlab.analysis.match import matched_exchanges
from netlab.diagnosis import Vantage
from netlab.files import write_file
from netlab.record import RunRecord, ServerRun
from netlab.report import html, markdown, plots, waterfall
from netlab.report.figure import Picture
from netlab.report.tables import sound
from netlab.report.waterfall import Scene

# Queries of one picture: more cannot be read.
_MOST = 10


def save_queries(run: ServerRun, folder: Path) -> None:
    """Write the picture of every query of `run` early: the end of all runs need not wait for it. Raises OutputError."""
    scenes = _scenes(run)[:_MOST]
    if scenes:
        drawn = waterfall.waterfalls(scenes)
        write_file(folder / f"{_stem(run)}.queries.svg", drawn.svg.encode())
        write_file(folder / f"{_stem(run)}.queries.png", drawn.png)


def save(record: RunRecord, verdicts: Sequence[Verdict], folder: Path) -> None:
    """Write the reports of `record` into `folder`, each file whole or not at all. Raises OutputError."""
    pictures = _pictures(record)
    for name, _, drawn in pictures:
        write_file(folder / name, drawn.png)
    details = _drawn_early(record, folder)
    listed = [(name, what) for name, what, _ in [*pictures, *details]]
    write_file(folder / "report.md", markdown.report(record, verdicts, listed).encode())
    shown, folded = ([(drawn, what) for _, what, drawn in some] for some in (pictures, details))
    write_file(folder / "report.html", html.report(record, verdicts, shown, folded).encode())


def _stem(run: ServerRun) -> str:
    """Return how the files of `run` begin: as those of the server's captures."""
    return next((c.path.removesuffix(f".{c.vantage}.pcapng") for c in run.captures), "server")


def _drawn_early(record: RunRecord, folder: Path) -> list[tuple[str, str, Picture]]:
    found: list[tuple[str, str, Picture]] = []
    for run in record.runs:
        name = f"{_stem(run)}.queries.png"
        with suppress(FileNotFoundError):
            drawn = Picture(png=(folder / name).read_bytes(), svg=(folder / name).with_suffix(".svg").read_text())
            found.append((name, f"Every query of {run.server.label}, packet by packet", drawn))
    return found


def _pictures(record: RunRecord) -> list[tuple[str, str, Picture]]:
    made: list[tuple[str, str, Picture]] = []
    by_run = [(run.server.label, scenes) for run in record.runs if (scenes := _scenes(run))]
    if by_run:
        what = "The median query of each server, packet by packet"
        made.append(("waterfall.png", what, waterfall.waterfalls([_median(label, some) for label, some in by_run])))
        shown = [(label, scenes[:_MOST]) for label, scenes in by_run]
        made.append(("queries.png", "Every query: segments, and silences inside answers", waterfall.overview(shown)))
    tables = [(run.server.label, run.psh) for run in record.runs if run.psh is not None]
    if len(tables) > 1:
        drawn = plots.histogram_pair(tables[0], tables[1])
        made.append(("histogram.png", "Segments with PSH from the server, by size", drawn))
    timed = [run for run in record.runs if any(s.tail is not None for s in sound(run))]
    if timed:
        made.append(("tails.png", "Each query's tail", plots.tails(timed, record.scenario.link.rtt)))
    return made


def _scenes(run: ServerRun) -> list[Scene]:
    vantage = Vantage.UNKNOWN if run.diagnosis is None else run.diagnosis.vantage
    pairs = zip([s.index for s in sound(run)], matched_exchanges(run), strict=True)
    return [Scene(title=f"query {number}", exchange=e, vantage=vantage) for number, e in pairs if e is not None]


def _median(label: str, scenes: Sequence[Scene]) -> Scene:
    """Return the scene with the median tail, titled with the server's label."""
    ordered = sorted(scenes, key=lambda scene: scene.exchange.tail or 0)
    scene = ordered[(len(ordered) - 1) // 2]
    return Scene(title=f"{label}, {scene.title}", exchange=scene.exchange, vantage=scene.vantage)

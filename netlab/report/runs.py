"""The report of a run as a document, and its pictures."""

import shlex
from collections.abc import Sequence

from netlab.analysis.explain import Verdict
from netlab.analysis.match import matched_exchanges
from netlab.diagnosis import Cause, Vantage
from netlab.record import RunRecord, ServerRun
from netlab.report import plots, tables, waterfall
from netlab.report.document import Block, Document, Plate, Section, Text, Tone
from netlab.report.figure import Picture
from netlab.report.waterfall import Scene

# Queries of one picture: more cannot be read.
MOST = 10
# The pictures that compare servers, in the order of the report.
TITLES = {
    "waterfall.png": "A typical query of each server, packet by packet",
    "queries.png": "Every query: segments, and silences inside answers",
    "histogram.png": "Segments with PSH from the server, by size",
    "tails.png": "Each query's tail",
}


def run_document(record: RunRecord, verdicts: Sequence[Verdict], pictures: Sequence[Plate]) -> Document:
    """Return what a run's report says: verdicts first, then figures, pictures, every query, and what it rests on."""
    blocks: list[Block] = [Text(text=record.scenario.story)] if record.scenario.story else []
    blocks.append(Text(text="Query:", code=record.scenario.workload.query))
    if record.interrupted:
        text = f"Interrupted by {record.interrupted}: what had been measured is here."
        blocks.append(Text(text=text, strong=True))
    blocks += [Text(text=line, strong=True) for line in tables.ended_early(record)]
    blocks += [_verdict(verdict) for verdict in verdicts]
    blocks.append(tables.headline(record, verdicts))
    blocks += pictures
    by_label = {verdict.server: verdict for verdict in verdicts}
    blocks += [tables.queries(run, by_label.get(run.server.label)) for run in record.runs]
    blocks += [tables.lab(record), tables.machine(record)]
    if record.notes:
        blocks.append(Section(title="Notes", sentences=record.notes))
    blocks.append(Text(text="Again:", code=shlex.join(record.command_line)))
    return Document(title=f"netlab: {record.scenario.name}", blocks=tuple(blocks))


def draw(record: RunRecord, name: str) -> Picture | None:
    """Return the picture of that `name` (a key of TITLES), or None where the run's data do not allow it."""
    by_run = [(run.server.label, found) for run in record.runs if (found := scenes(run))]
    match name:
        case "waterfall.png" if by_run:
            return waterfall.waterfalls([waterfall.typical(label, found) for label, found in by_run])
        case "queries.png" if by_run:
            return waterfall.overview([(label, found[:MOST]) for label, found in by_run])
        case "histogram.png":
            counted = [(run.server.label, run.psh) for run in record.runs if run.psh is not None]
            return plots.histogram_pair(counted[0], counted[1]) if len(counted) > 1 else None
        case "tails.png" if any(s.tail is not None for run in record.runs for s in tables.sound(run)):
            return plots.tails(record.runs, record.scenario.link.rtt)
        case _:
            return None


def scenes(run: ServerRun) -> list[Scene]:
    """Return the exchange of each sound query that the capture holds."""
    vantage = Vantage.UNKNOWN if run.diagnosis is None else run.diagnosis.vantage
    pairs = zip([s.index for s in tables.sound(run)], matched_exchanges(run), strict=True)
    return [Scene(title=f"query {number}", exchange=e, vantage=vantage) for number, e in pairs if e and e.segments]


def _verdict(verdict: Verdict) -> Section:
    tone = Tone.PLAIN
    if any(verdict.extra_round_trips):
        tone = Tone.BAD
    elif verdict.cause == Cause.HEALTHY:
        tone = Tone.GOOD
    return Section(
        title=f"{verdict.server}: {verdict.headline}",
        sentences=verdict.sentences,
        remedies=verdict.remedies,
        tone=tone,
    )

"""A whole reproduction: every server measured in an equal lab, diagnosed, explained, and saved.

`reproduce` returns an outcome even when a server fails: the record holds what was measured, and `failure` is raised by
the caller once it has shown it. A signal is saved too, and raised again.
"""

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from netlab.analysis import diagnose
from netlab.analysis.explain import Verdict, explain
from netlab.analysis.match import matched_exchanges
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.capture.second import pyshark_psh_table
from netlab.diagnosis import CaptureDiagnosis, Exchange, PshTable
from netlab.environment import environment
from netlab.errors import CaptureError, NetlabError, UsageError
from netlab.files import make_folder
from netlab.record import Environment, RunRecord, ServerRun
from netlab.run import Observer, Request, is_remote, measure
from netlab.scenario import Scenario
from netlab.store import save_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A reproduction to make."""

    scenario: Scenario
    folder: Path
    command_line: tuple[str, ...] = ()
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    record: RunRecord
    verdicts: tuple[Verdict, ...]
    failure: NetlabError | None = None


def reproduce(order: Order, observer: Observer) -> Outcome:
    """Run every server of the order's scenario; save record, captures and reports in its folder.

    Raises UsageError for a remote server, OutputError when nothing can be written, and KeyboardInterrupt again after
    saving.
    """
    for server in order.scenario.servers:
        if is_remote(server):
            raise UsageError(f"{server.label} runs already: it has no lab", hint=f"netlab probe {server.label}")
    make_folder(order.folder)
    request = Request(scenario=order.scenario, folder=order.folder, password=order.password)
    started_at, runs = time.time_ns(), list[ServerRun]()
    failure: NetlabError | None = None
    with ThreadPoolExecutor(max_workers=1) as aside:
        # Asked while the first lab is being built, before anything is timed.
        asked = aside.submit(environment)
        try:
            for server in order.scenario.servers:
                measure(request, server, observer, runs.append)
        except NetlabError as error:
            failure = error
        except KeyboardInterrupt as signal:
            _conclude(order, runs, asked, started_at, interrupted=str(signal) or "SIGINT")
            raise
        observer.phase("reading the captures")
        record, verdicts = _conclude(order, runs, asked, started_at)
    observer.phase("writing the reports")
    from netlab.report import save

    save(record, verdicts, order.folder)
    return Outcome(record=record, verdicts=verdicts, failure=failure)


def unmet_expectations(record: RunRecord) -> list[str]:
    """Return a sentence for each expectation of the scenario that its run did not meet."""
    unmet: list[str] = []
    for label, expected in record.scenario.expectations:
        for run in record.runs:
            if run.server.label != label:
                continue
            for exchange in measured_exchanges(run):
                if expected.cause is not None and exchange.cause != expected.cause:
                    unmet.append(f"{label}: expected cause {expected.cause}, got {exchange.cause}")
                trips = exchange.extra_round_trips
                if expected.extra_round_trips is not None and trips != expected.extra_round_trips:
                    unmet.append(f"{label}: expected {expected.extra_round_trips} extra round trips, got {trips}")
    return sorted(set(unmet))


def measured_exchanges(run: ServerRun) -> list[Exchange]:
    """Return the diagnosed exchanges of the run's sound samples, matched by when the request was sent."""
    return [pair for pair in matched_exchanges(run) if pair is not None]


def _conclude(
    order: Order,
    runs: Sequence[ServerRun],
    asked: "Future[Environment]",
    started_at: int,
    interrupted: str | None = None,
) -> tuple[RunRecord, tuple[Verdict, ...]]:
    """Diagnose, and save the record."""
    notes = [f"{run.server.label}: {note}" for run in runs for note in run.notes]
    read = tuple(_read_captures(run, order.folder, notes) for run in runs)
    verdicts = tuple(
        explain(run, matched_exchanges(run), order.scenario) for run in read if any(s.void is None for s in run.samples)
    )
    record = RunRecord(
        run_id=uuid.uuid4().hex,
        started_at=started_at,
        finished_at=None if interrupted else time.time_ns(),
        command_line=order.command_line,
        scenario=order.scenario,
        environment=asked.result(),
        runs=read,
        interrupted=interrupted,
        notes=tuple(notes),
    )
    save_record(record, order.folder)
    return record, verdicts


def _read_captures(run: ServerRun, folder: Path, notes: list[str]) -> ServerRun:
    capture = next((c for c in run.captures if c.vantage == "server"), None)
    if capture is None:
        return run
    path = folder / capture.path
    try:
        diagnosis = _diagnose(path)
        return replace(run, diagnosis=replace(diagnosis, file=capture.path), psh=_psh(path, run, notes))
    except CaptureError as error:
        notes.append(f"{run.server.label}: {error}")
        return run


def _diagnose(path: Path) -> CaptureDiagnosis:
    with open_capture(path) as capture:
        return diagnose(capture.segments(), file=str(path), summary=capture.summary)


def _psh(path: Path, run: ServerRun, notes: list[str]) -> PshTable:
    """Return the PSH table of the whole capture by pyshark; by our own reader where there is no tshark."""
    try:
        return pyshark_psh_table(path, run.server.port)
    except CaptureError as error:
        notes.append(f"{run.server.label}: the PSH table is our own reader's, without a second opinion: {error}")
        return psh_table(path, run.server.port)

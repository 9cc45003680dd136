"""A whole reproduction: every server measured in an equal lab, diagnosed, explained, and saved.

`reproduce` returns an outcome even when a server fails: the record holds what was measured, and `failure` is raised by
the caller once it has shown it. A signal is saved too, and raised again.
"""

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from netlab.analysis.explain import Verdict, explain
from netlab.analysis.match import matched_exchanges
from netlab.diagnosis import Cause
from netlab.errors import NetlabError, UsageError
from netlab.files import make_folder
from netlab.record import Environment, RunRecord, ServerRun
from netlab.run import Observer, Request, is_remote, measure, refusal
from netlab.scenario import Scenario
from netlab.store import save_record
from netlab.worker import Do, Task, Worker


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
    folder = str(order.folder)
    failure: NetlabError | None = None
    with Worker() as worker, Worker() as second:
        second.begin(Task(do=Do.DESCRIBE, folder=folder))
        book = _Book(order=order, started_at=time.time_ns(), second=second)
        request = Request(scenario=order.scenario, folder=order.folder, password=order.password)
        try:
            for server in order.scenario.servers:
                measure(request, server, observer, book.add)
                # Read at idle priority while the next lab is being built.
                worker.begin(Task(do=Do.READ, folder=folder, run=book.runs[-1]))
        except NetlabError as error:
            failure = error
            if len(book.runs) > worker.begun:
                worker.begin(Task(do=Do.READ, folder=folder, run=book.runs[-1]))
        except KeyboardInterrupt as signal:
            book.save(interrupted=str(signal) or "SIGINT")
            raise
        for each in (worker, second):
            each.hurry()
        observer.phase("reading the captures")
        book.runs = [worker.finish().run or run for run in book.runs]
        record = book.save(finished=True)
        verdicts = explain_all(record)
        observer.phase("writing the reports")
        # By cost, about half each: the worker draws the last server's queries besides.
        drawn = {second: ("waterfall.png", "histogram.png", "tails.png"), worker: ("queries.png",)}
        for each, names in drawn.items():
            each.begin(Task(do=Do.DRAW, folder=folder, record=record, pictures=names))
        for each in drawn:
            each.finish()
        worker.begin(Task(do=Do.WRITE, folder=folder, record=record, verdicts=verdicts))
        worker.finish()
    failure = failure or next(filter(None, map(refusal, record.runs)), None)
    return Outcome(record=record, verdicts=verdicts, failure=failure)


def explain_all(record: RunRecord) -> tuple[Verdict, ...]:
    """Return the verdict on each run that has a sound query."""
    runs = [run for run in record.runs if any(s.void is None for s in run.samples)]
    return tuple(explain(run, matched_exchanges(run), record.scenario) for run in runs)


@dataclass(slots=True, kw_only=True)
class _Book:
    """The record while it grows: on disk after every server, so that no kill loses what was measured."""

    order: Order
    started_at: int
    second: Worker  # was asked what the machine is
    environment: Environment | None = None
    runs: list[ServerRun] = field(default_factory=list)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def add(self, run: ServerRun) -> None:
        """Take a server's run over and save."""
        self.runs.append(run)
        self.save()

    def save(self, *, finished: bool = False, interrupted: str | None = None) -> RunRecord:
        """Write the record as it is, and return it."""
        if self.environment is None:
            self.environment = self.second.finish().environment
        assert self.environment is not None
        record = RunRecord(
            run_id=self.run_id,
            started_at=self.started_at,
            finished_at=time.time_ns() if finished else None,
            command_line=self.order.command_line,
            scenario=self.order.scenario,
            environment=self.environment,
            runs=tuple(self.runs),
            interrupted=interrupted,
            notes=tuple(f"{run.server.label}: {note}" for run in self.runs for note in run.notes),
        )
        save_record(record, self.order.folder)
        return record


def unmet_expectations(record: RunRecord) -> list[str]:
    """Return a sentence for each expectation of the scenario that its run did not meet."""
    runs = {run.server.label: run for run in record.runs}
    unmet: list[str] = []
    for label, expected in record.scenario.expectations:
        if label not in runs:
            continue  # another server was asked for on the command line
        pairs = matched_exchanges(runs[label])
        if not pairs or None in pairs:
            lost = f"{pairs.count(None)} queries are not in the capture" if pairs else "no sound query"
            unmet.append(f"{label}: {lost}, so the expectation is not met")
        for exchange in filter(None, pairs):
            if expected.cause is not None and not _is(exchange.cause, expected.cause):
                unmet.append(f"{label}: expected cause {expected.cause}, got {exchange.cause}")
            trips = exchange.extra_round_trips
            if expected.extra_round_trips is not None and trips != expected.extra_round_trips:
                unmet.append(f"{label}: expected {expected.extra_round_trips} extra round trips, got {trips}")
    return sorted(set(unmet))


def _is(found: Cause, expected: str) -> bool:
    """Whether `found` is what was `expected`. Healthy is a network that waited for nothing: a server that took its
    time, as any does on a busy machine, is no fault of it."""
    return found == expected or (expected == Cause.HEALTHY and found is Cause.SERVER_THINK_TIME)

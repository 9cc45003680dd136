"""The only orchestration of effects: scenario in, record out.

Lab -> server -> capture -> probe -> diagnosis, one server after another in equal labs. Whatever ends a run early
(an error, a signal), what was measured is in the record.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from netlab.analysis import Verdict, explain
from netlab.environment import environment
from netlab.errors import NetlabError, OutputError, VoidRunError
from netlab.record import LatenessReport, RttReport, RunRecord, ServerRun
from netlab.samples import Sample
from netlab.scenario import Scenario, Server
from netlab.units import NS_PER_S, format_duration, ms

# A packet that the delay line forwarded later than this makes its query prove nothing.
LATEST = ms(1)
# The dots of a progress display; long enough to leave the processor to the delay line.
_TICK = NS_PER_S // 4


class Observer(Protocol):
    """Who watches a run: a terminal, or nobody."""

    def phase(self, text: str) -> None:
        """A phase begins."""

    def lab_ready(self, server: Server, rtt: RttReport) -> None:
        """The lab of `server` stands and is what it claims."""

    def server_ready(self, server: Server, address: str) -> None:
        """`server` answers at `address`."""

    def queries(self, label: str, total: int) -> None:
        """`total` queries begin."""

    def measured(self, sample: Sample) -> None:
        """One query ended."""

    def tick(self) -> None:
        """Nothing is being measured just now: time to draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run to make. The password goes to the probe alone and into no record."""

    scenario: Scenario
    folder: Path  # made by the caller; record, captures and reports go there
    command_line: tuple[str, ...] = ()
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished run. `failure` is what ended it early, to be raised once everything is saved."""

    record: RunRecord
    verdicts: tuple[Verdict, ...]
    failure: NetlabError | None = None

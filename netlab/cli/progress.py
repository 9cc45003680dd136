"""Progress on stderr: a bar while idle gaps pass on a terminal, a line a phase when piped, nothing when quiet."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from netlab.text import plain

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class TerminalProgress:
    """Implements `run.Progress` with rich; a context manager, because the bar owns the terminal's last line."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
        # Drawn only when `tick` is called, never while a query is under way: a drawing thread would take the
        # interpreter from the probe and the processor from the delay line.
        self._bar: RichProgress = Progress(
            *columns, TimeRemainingColumn(), console=Console(stderr=True), auto_refresh=False, transient=True
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def phase(self, text: str) -> None:
        """Say what is being done."""
        self._reset()
        self._task = self._bar.add_task(plain(text), total=None)
        self._bar.refresh()

    def queries(self, label: str, total: int) -> None:
        """Start counting queries of a server."""
        self._reset()
        self._task = self._bar.add_task(plain(label), total=total)

    def advance(self) -> None:
        """Count one query."""
        if self._task is not None:
            self._bar.advance(self._task)

    def tick(self) -> None:
        """Draw: called while nothing is measured."""
        self._bar.refresh()

    def _reset(self) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


class PipedProgress:
    """One line a phase on stderr."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def phase(self, text: str) -> None:
        """Say what is being done."""
        click.echo(plain(text), err=True)

    def queries(self, label: str, total: int) -> None:
        """Start counting queries of a server."""

    def advance(self) -> None:
        """Count one query."""

    def tick(self) -> None:
        """Draw nothing."""


class NoProgress(PipedProgress):
    """Says nothing."""

    def phase(self, text: str) -> None:
        """Say nothing."""


def progress(*, quiet: bool) -> TerminalProgress | PipedProgress:
    """Return what suits stderr."""
    if quiet:
        return NoProgress()
    return TerminalProgress() if sys.stderr.isatty() else PipedProgress()

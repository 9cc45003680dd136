"""A process beside a run that reads captures and draws reports, so that neither waits for the imports of the other.

It runs at idle priority: whatever is being measured goes first. One request, one answer, in order, each a length and a
MessagePack document on its standard streams; the end of its input ends it.
"""

import contextlib
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from netlab.analysis.explain import Verdict
from netlab.environment import environment
from netlab.errors import NetlabError, OperationError, OutputError
from netlab.record import Environment, RunRecord, ServerRun

_LENGTH = struct.Struct("=Q")


class Do(StrEnum):
    """The kinds of task."""

    DESCRIBE = "describe"  # the machine
    READ = "read"  # the captures of `run`; its queries are drawn after the answer is given
    DRAW = "draw"  # the pictures of `record`
    WRITE = "write"  # the reports of `record`


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to do with a run's captures, or with the whole record."""

    do: Do
    folder: str
    run: ServerRun | None = None
    record: RunRecord | None = None
    verdicts: tuple[Verdict, ...] = ()
    pictures: tuple[str, ...] = ()  # which to DRAW


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The machine, the run with its diagnosis, or what went wrong."""

    environment: Environment | None = None
    run: ServerRun | None = None
    error: str | None = None
    hint: str = ""


class Worker:
    """The owner's side: `begin` a task, then `finish` it. A context manager that ends the process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.begun = 0  # tasks so far

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "netlab.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the owner's to handle
        )
        # At once, before its imports: the first lab is being built just now.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(self._process.pid, os.SCHED_IDLE, os.sched_param(0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        if kind is not None:
            process.kill()
        process.wait()

    def begin(self, task: Task) -> None:
        """Send a task. Raises OperationError when the worker is gone."""
        assert self._process is not None and self._process.stdin is not None
        try:
            _put(self._process.stdin, msgspec.msgpack.encode(task))
        except BrokenPipeError as error:
            raise OperationError("the reading process died", hint="is the machine out of memory?") from error
        self.begun += 1

    def hurry(self) -> None:
        """Give the worker an ordinary priority: nothing is measured any more."""
        assert self._process is not None
        with contextlib.suppress(OSError):
            os.sched_setscheduler(self._process.pid, os.SCHED_OTHER, os.sched_param(0))

    def finish(self) -> Answer:
        """Return the answer to the oldest task that has none yet. Raises OutputError, OperationError."""
        assert self._process is not None and self._process.stdout is not None
        data = _get(self._process.stdout)
        if data is None:
            raise OperationError("the reading process died", hint="its own words, if any, are above on stderr")
        answer = msgspec.msgpack.decode(data, type=Answer)
        if answer.error is not None:
            raise OutputError(answer.error, hint=answer.hint)
        return answer


def main() -> None:
    """Serve until the input ends."""
    # Imported while the first server is measured: together they take longer than the work itself.
    import netlab.reading
    import netlab.report

    netlab.report.warm_up()
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while (data := _get(source)) is not None:
        task = msgspec.msgpack.decode(data, type=Task)
        answer = Answer()
        try:
            answer = _perform(task)
        except NetlabError as error:
            answer = Answer(error=error.what, hint=error.hint)
        with contextlib.suppress(BrokenPipeError):
            _put(target, msgspec.msgpack.encode(answer))
        if task.do is Do.READ and answer.run is not None:
            # A picture that cannot be written fails the reports too, and is said there.
            with contextlib.suppress(OutputError):
                netlab.report.save_queries(answer.run, Path(task.folder))


def _perform(task: Task) -> Answer:
    from netlab import reading, report

    folder = Path(task.folder)
    match task.do:
        case Do.DESCRIBE:
            return Answer(environment=environment())
        case Do.READ if task.run is not None:
            return Answer(run=reading.read_captures(task.run, folder))
        case Do.DRAW if task.record is not None:
            report.save_pictures(task.record, folder, task.pictures)
        case Do.WRITE if task.record is not None:
            report.save_reports(task.record, task.verdicts, folder)
    return Answer()


def _put(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _get(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    size = _LENGTH.unpack(head)[0]
    data = stream.read(size)
    return data if len(data) == size else None


if __name__ == "__main__":
    main()

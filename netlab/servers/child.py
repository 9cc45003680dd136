"""A server that is a process of ours: readiness over a pipe, early death noticed, its log's last lines as the reason."""

import contextlib
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from netlab.errors import OutputError, ServerError
from netlab.hosts import Child, Host
from netlab.units import NS_PER_S, format_duration, ms

_LAST_LINES = 6
_LINE = 400
_END = 5 * NS_PER_S


class ChildServer:
    """Implements `RunningServer` for a process started at a host.

    The process gets two descriptors: 3 takes its readiness message (a line; EOF without one is death), 4 is a lifeline:
    when it reads EOF there, its owner is gone and it ends.
    """

    def __init__(self, host: Host, label: str, port: int, log_path: str) -> None:
        self.address = host.address
        self.port = port
        self._host = host
        self._label = label
        self._log_path = log_path
        self._child: Child | None = None
        self._owned = ExitStack()

    def launch(
        self, argv: Sequence[str], *, env: Mapping[str, str], patience: int, readiness: bool = True
    ) -> "ChildServer":
        """Start the process and, where it says so itself, wait at most `patience` ns until it is ready.

        Raises ServerError with the log's last lines.
        """
        ready_read, ready_write = os.pipe()
        life_read, life_write = os.pipe()
        self._owned.callback(os.close, life_write)
        with ExitStack() as stack:
            for descriptor in (ready_write, life_read):
                stack.callback(os.close, descriptor)
            log = _open_log(self._log_path)
            stack.callback(os.close, log)
            self._child = self._host.spawn(
                argv, env=env, stdout=log, stderr=log, fds=(ready_write, life_read)
            )
        with os.fdopen(ready_read, "rb", buffering=0) as pipe:
            if readiness:
                self._await(pipe.fileno(), patience)
        return self

    @property
    def pid(self) -> int | None:
        """The process id in the lab."""
        return None if self._child is None else self._child.pid

    def failure(self) -> str | None:
        """Return why the process died, or None while it lives."""
        if self._child is None:
            return "never started"
        status = self._child.poll()
        if status is None:
            return None
        ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        last = log_tail(self._log_path)
        return f"{ended}; its log ends: {last}" if last else f"{ended}, and its log is empty"

    def close(self) -> None:
        """End the process."""
        self._owned.close()  # the lifeline: it ends by itself on that
        if self._child is not None and self._child.wait(_END) is None:
            self._child.terminate()
            if self._child.wait(_END) is None:
                self._child.kill()
                self._child.wait(_END)

    def _await(self, pipe: int, patience: int) -> None:
        deadline = time.monotonic_ns() + patience
        said = b""
        while not said.endswith(b"\n"):
            left = (deadline - time.monotonic_ns()) / NS_PER_S
            if left <= 0 or not select.select([pipe], (), (), left)[0]:
                self.close()
                raise ServerError(
                    f"{self._label} was not ready after {format_duration(patience)}", hint=f"see {self._log_path}"
                )
            got = os.read(pipe, 4096)
            if not got:
                self._died()
            said += got

    def _died(self) -> None:
        if self._child is not None:
            self._child.wait(ms(2000))
        reason = self.failure() or "it closed its readiness pipe"
        self.close()
        raise ServerError(f"{self._label} did not start: {reason}", hint=f"see {self._log_path}")


def log_tail(path: str) -> str:
    """Return the last lines of the log at `path` joined by " / "; "" when there is none."""
    with contextlib.suppress(OSError):
        text = Path(path).read_bytes()[-8192:].decode(errors="replace")
        lines = [line.strip()[:_LINE] for line in text.splitlines() if line.strip()]
        return " / ".join(lines[-_LAST_LINES:])
    return ""


def _open_log(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}", hint="choose a folder that can be written with --output") from error

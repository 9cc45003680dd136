"""A server that is a process of ours: readiness over a pipe, death noticed, its log's last lines as the reason."""

import contextlib
import errno
import os
import select
import socket as sockets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from netlab.errors import OutputError, ServerError
from netlab.hosts import Child, Host
from netlab.text import plain
from netlab.units import NS_PER_S, format_duration, ms, seconds

_LAST_LINES = 6
_LINE = 400
_GRACE = seconds(3)  # from SIGTERM to SIGKILL: what a server has is scratch, so nothing is lost
_READY_LINE = 4096


class ChildServer:
    """Implements `RunningServer` for a process started at a host.

    The process gets two descriptors: 3 takes its readiness message (a line; EOF without one is death), 4 is a lifeline:
    when it reads EOF there, its owner is gone and it ends.
    """

    def __init__(self, host: Host, label: str, port: int, log_path: str) -> None:
        self.address = host.address
        self.port = port
        self.version: str | None = None
        self._host = host
        self._label = label
        self._log_path = log_path
        self._log_start = 0  # a log may hold an earlier server's lines
        self._child: Child | None = None
        self._owned = ExitStack()
        self._remarks: Mapping[int, str] = {}

    def launch(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        patience: int,
        readiness: bool = True,
        remarks: Mapping[int, str] | None = None,
    ) -> "ChildServer":
        """Start the process and, where it says so itself, wait at most `patience` ns until it is ready.

        `remarks` explain exit statuses (negative: signals) that mean something for this server. Raises ServerError with
        the log's last lines where it does not start, and where its port is taken.
        """
        self._remarks = remarks or {}
        self._check_port()
        with ExitStack() as stack:
            log = _open_log(self._log_path)
            stack.callback(os.close, log)
            self._log_start = os.fstat(log).st_size
            ready_read, ready_write = os.pipe()
            ready = stack.enter_context(os.fdopen(ready_read, "rb", buffering=0))
            life_read, life_write = os.pipe()
            self._owned.callback(os.close, life_write)
            try:
                self._child = self._host.spawn(argv, env=env, stdout=log, stderr=log, fds=(ready_write, life_read))
            except BaseException:
                self._owned.close()
                raise
            finally:
                os.close(ready_write)
                os.close(life_read)
            if readiness:
                try:
                    self._await(ready.fileno(), patience)
                except BaseException:
                    self.close()
                    raise
        return self

    @property
    def pid(self) -> int | None:
        """The process id in the lab; None before the start."""
        return None if self._child is None else self._child.pid

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def failure(self) -> str | None:
        """Return why the process ended (its status and its log's last lines), or None while it lives."""
        if self._child is None:
            return "never started"
        status = self._child.poll()
        if status is None:
            return None
        ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        remark = f" ({self._remarks[status]})" if status in self._remarks else ""
        last = log_tail(self._log_path, self._log_start)
        return f"{ended}{remark}; its log ends: {last}" if last else f"{ended}{remark}, and its log is empty"

    def close(self) -> None:
        """End the process: SIGTERM, then SIGKILL. A second call does nothing."""
        self._owned.close()
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            if self._child.wait(_GRACE) is None:
                self._child.kill()
                self._child.wait(_GRACE)

    def _check_port(self) -> None:
        """Bind to the port and let it go: whoever holds it would answer our readiness check in the server's name."""
        with self._host.socket(sockets.AddressFamily.AF_INET, sockets.SocketKind.SOCK_STREAM) as attempt:
            attempt.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            try:
                attempt.bind((self.address, self.port))
            except OSError as error:
                where = f"{self._label}: {self.address}:{self.port}"
                if error.errno == errno.EADDRINUSE:
                    raise ServerError(
                        f"{where} is in use", hint="end what listens there, or use another port"
                    ) from error
                raise ServerError(f"{where}: {error.strerror}", hint="use a port from 1024 to 65535") from error

    def _await(self, pipe: int, patience: int) -> None:
        deadline = time.monotonic_ns() + patience
        said = b""
        while not said.endswith(b"\n"):
            left = (deadline - time.monotonic_ns()) / NS_PER_S
            if left <= 0 or not select.select([pipe], (), (), left)[0]:
                last = log_tail(self._log_path, self._log_start)
                ending = f"; its log ends: {last}" if last else ""
                raise ServerError(
                    f"{self._label} was not ready after {format_duration(patience)}{ending}",
                    hint=f"see {self._log_path}; a busy machine needs another try",
                )
            got = os.read(pipe, _READY_LINE)
            if not got:
                raise self.died()
            said += got

    def died(self) -> ServerError:
        """Return the error for a server that ended before it was ready."""
        if self._child is not None:
            self._child.wait(ms(2000))
        reason = self.failure() or "it closed its readiness pipe"
        return ServerError(f"{self._label} did not start: {reason}", hint=f"see {self._log_path}")


def log_tail(path: str, start: int = 0) -> str:
    """Return the last lines of the log at `path`, from byte `start`, joined by " / "; "" when there is none."""
    with contextlib.suppress(OSError):
        text = Path(path).read_bytes()[start:][-8192:].decode(errors="replace")
        lines = [plain(line.strip(), longest=_LINE) for line in text.splitlines() if line.strip()]
        return " / ".join(lines[-_LAST_LINES:])
    return ""


def _open_log(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise OutputError(
            f"{path}: {error.strerror}", hint="choose a folder that can be written with --output"
        ) from error

"""Take a capture at one end of a lab: `with Dumper.start(host, path, port=9000) as dumper: ...; dumper.stop()`.

The packets come from the host's own AF_PACKET socket with the kernel's stamps, so the dumper is ready in
milliseconds, nothing is lost at its start or stop, and drops are counted. The writing is a process of its own
(`dump_child`), on the caller's side of the namespaces, and ends with the caller however the caller ends.
"""

import json
import os
import select
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import netlab
from netlab.capture.dump_child import Settings
from netlab.errors import CaptureError
from netlab.hosts import Host
from netlab.record import CaptureFile

RING = 32 << 20
_QUEUE = 1 << 18  # the socket's own queue is out of use once it has a ring
_READY_S = 20
_STOP_S = 60
_ARPHRD_ETHER, _ARPHRD_LOOPBACK = 1, 772
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[2]); from netlab.capture.dump_child import main; " + (
    "sys.exit(main(sys.argv[1]))"
)


class Dumper:
    """A running capture. Leaving the context ends it; only `stop` tells what was captured."""

    def __init__(self, child: subprocess.Popen[bytes], path: Path, vantage: str) -> None:
        self._child = child
        self._path = path
        self._vantage = vantage
        self._facts: CaptureFile | None = None

    @classmethod
    def start(
        cls,
        host: Host,
        path: str | Path,
        *,
        port: int | None = None,
        ring: int = RING,
        comment: str = "",
    ) -> "Dumper":
        """Capture `host`'s interface into the pcapng file `path`, all of it or only TCP port `port`.

        When this returns, every later packet is in the file. `ring` is the size in bytes of the
        kernel's buffer, which must hold what comes while the dumper gets no processor. Raises CaptureError,
        LabError.
        """
        path = Path(path)
        with ExitStack() as stack:
            packets = stack.enter_context(host.packet_socket(_QUEUE))
            output = _open_output(path)
            stack.callback(os.close, output)
            caller = os.pidfd_open(os.getpid())
            stack.callback(os.close, caller)
            settings = Settings(
                socket=packets.fileno(),
                output=output,
                caller=caller,
                interface=host.interface,
                loopback=_is_loopback(packets, host.interface),
                port=port,
                ring=ring,
                comment=comment or f"netlab capture at the {host.name} ({host.address}), every packet",
            )
            child = _spawn(settings)
        dumper = cls(child, path, host.name)
        try:
            dumper._wait_until_ready()
        except BaseException:
            dumper.close()
            raise
        return dumper

    def __enter__(self) -> "Dumper":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the writing process."""
        return self._child.pid

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def stop(self) -> CaptureFile:
        """Finish the file with every packet sent before this call; return its facts. A second call returns them again.

        Raises CaptureError when the capture failed on the way (a full disk, a kill); what was written stays readable.
        """
        if self._facts is None:
            try:
                answer, complaint = self._child.communicate(b"stop", timeout=_STOP_S)
            except subprocess.TimeoutExpired as error:
                self.close()
                raise CaptureError(f"{self._path}: the dumper did not stop within {_STOP_S} s") from error
            except ValueError as error:  # its pipes are closed
                raise CaptureError(f"{self._path}: the dumper was closed before it was stopped") from error
            self._facts = self._parse(answer, complaint)
        return self._facts

    def close(self) -> None:
        """End the dumper without asking what it has. Never raises; a second call does nothing."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _wait_until_ready(self) -> None:
        assert self._child.stdout is not None
        readable, _, _ = select.select([self._child.stdout], [], [], _READY_S)
        line = self._child.stdout.readline() if readable else b""
        if line == b"ready\n":
            return
        if not readable:
            raise CaptureError(f"{self._path}: the dumper was not ready within {_READY_S} s")
        _, complaint = self._child.communicate(timeout=_STOP_S)
        self._parse(line, complaint)

    def _parse(self, answer: bytes, complaint: bytes) -> CaptureFile:
        try:
            report = json.loads(answer.splitlines()[-1])
        except (IndexError, ValueError) as error:
            last = (complaint.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
            status = self._child.returncode
            raise CaptureError(f"{self._path}: the dumper died (status {status}): {last}") from error
        if "error" in report:
            raise CaptureError(
                f"{self._path}: the capture ended after {report['packets']} packets: {report['error']}",
                hint="what was written until then can be read",
            )
        return CaptureFile(
            path=str(self._path), vantage=self._vantage, packets=report["packets"], drops=report["drops"]
        )


def _spawn(settings: Settings) -> subprocess.Popen[bytes]:
    # Isolated and without site-packages: it starts in half the time, and needs only netlab itself.
    root = str(Path(netlab.__file__).resolve().parent.parent)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, json.dumps(settings), root],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(settings["socket"], settings["output"], settings["caller"]),
            # Ctrl-C goes to the caller alone, who then stops us in order. PR_SET_PDEATHSIG would not do for the
            # caller's death: it fires when the *thread* that started us ends. A pidfd means the whole process.
            start_new_session=True,
        )
    except OSError as error:
        raise CaptureError(f"start the dumper: {error.strerror or error}") from error


def _open_output(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CaptureError(f"{path}: cannot be written: {error.strerror or error}") from error


def _is_loopback(packets: socket.socket, interface: str) -> bool:
    kind = packets.getsockname()[3]
    if kind not in {_ARPHRD_ETHER, _ARPHRD_LOOPBACK}:
        raise CaptureError(f"capture on {interface}: its hardware type {kind} is not Ethernet")
    return bool(kind == _ARPHRD_LOOPBACK)

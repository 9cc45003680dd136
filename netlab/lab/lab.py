"""`with Lab(link, server_tcp, client_tcp) as lab`: a client, a server and the path between them.

The owner's process stays where it is: an agent (see `agent`) holds the namespaces, and hands over sockets that live in
them. Usable from any thread, and any number at once.
"""

import contextlib
import os
import select
import signal
import socket as sockets
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from netlab.errors import LabError, VoidRunError
from netlab.lab import channel, ping, tcpinfo
from netlab.lab.lateness import Log
from netlab.lab.wiring import BuildRequest
from netlab.record import EndFacts, LabFacts, LatenessReport, RttReport
from netlab.samples import TcpInfo
from netlab.scenario import Backend, Link, Tcp
from netlab.segments import Endpoint
from netlab.units import NS_PER_S, format_duration, ms

_ANSWER_S = 30
_GONE_HINT = "its process was killed, or the machine is out of memory; run again"


class Remote:
    """The owner's end of an agent's socket: one request at a time."""

    def __init__(self, control: sockets.socket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._asked = 0

    def ask(self, do: str, descriptors: tuple[int, ...] = (), **fields: Any) -> tuple[Any, list[int]]:
        """Ask the agent; return its answer and the descriptors that came, which the caller owns. Raises LabError."""
        if self._control.fileno() < 0:
            raise LabError(f"{do}: the lab is closed")
        with self._lock:
            self._asked += 1
            self._send({"do": do, "id": self._asked, **fields}, descriptors)
            answer, passed = self._answer(do)
        if "error" in answer:
            raise LabError(answer["error"], hint=answer["hint"])
        return answer["ok"], passed

    def _send(self, message: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        do = message["do"]
        if len(descriptors) > channel.MOST_DESCRIPTORS:
            raise LabError(f"{do}: {len(descriptors)} descriptors", hint=f"at most {channel.MOST_DESCRIPTORS} can pass")
        for descriptor in descriptors:
            try:
                os.fstat(descriptor)
            except OSError as error:
                raise LabError(f"{do}: descriptor {descriptor}: {error.strerror}", hint="pass open ones") from error
        try:
            channel.send(self._control, message, descriptors)
        except OSError as error:
            raise LabError(f"{do}: the lab is gone ({error.strerror or error})", hint=_GONE_HINT) from error

    def _answer(self, do: str) -> tuple[dict[str, Any], list[int]]:
        while True:
            try:
                received = channel.receive(self._control)
            except OSError as error:
                raise LabError(f"{do}: no answer from the lab ({error.strerror or error})", hint=_GONE_HINT) from error
            if received is None:
                raise LabError(f"{do}: the lab is gone", hint=_GONE_HINT)
            if received[0]["id"] in (self._asked, None):
                return received
            # The answer to a request whose asker was interrupted (Ctrl-C) before it came.
            channel.close_all(received[1])

    def wait_end(self) -> None:
        """Return when the agent, which was told to end, is gone."""
        with self._lock, contextlib.suppress(OSError):
            channel.receive(self._control)

    def close(self) -> None:
        """Leave; an agent that serves only us then ends."""
        self._control.close()


class Process:
    """A process in a lab (implements `hosts.Child`)."""

    def __init__(self, remote: Remote, pid: int, descriptor: int) -> None:
        self._remote = remote
        self._descriptor = descriptor
        self._status: int | None = None
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self.wait(0)

    def wait(self, timeout: int) -> int | None:
        """Wait at most `timeout` ns; return the exit status (negative: the signal), or None."""
        if self._status is None:
            waiting = select.poll()
            waiting.register(self._descriptor, select.POLLIN)
            if waiting.poll(timeout / 1e6):
                self._status, _ = self._remote.ask("status", pid=self.pid)
                self.close()
        return self._status

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def close(self) -> None:
        """Give the descriptor back, as the end of the process does; a process that still runs is the lab's to end."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ran to its end."""

    returncode: int
    stdout: bytes
    stderr: bytes


class End:
    """One end of a lab (implements `hosts.Host`)."""

    def __init__(self, remote: Remote, facts: EndFacts, scratch: str, owned: ExitStack) -> None:
        self._remote = remote
        self._owned = owned
        self.name = facts.name
        self.address = facts.address
        self.interface = facts.interface
        self.scratch = scratch

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        fds: Sequence[int] = (),
    ) -> Process:
        """Start `argv` at this end; see `hosts.Host.spawn`."""
        stdio = (stdin, stdout, stderr)
        given = tuple(descriptor for descriptor in stdio if descriptor is not None) + tuple(fds)
        pid, passed = self._remote.ask(
            "spawn",
            given,
            place=self.name,
            argv=list(argv),
            env=dict(os.environ if env is None else env),
            cwd=cwd,
            stdio=[descriptor is not None for descriptor in stdio],
        )
        process = Process(self._remote, pid, passed[0])
        self._owned.callback(process.close)
        return process

    def run(self, argv: Sequence[str], *, timeout: int = 60 * NS_PER_S, feed: bytes = b"") -> Completed:
        """Run `argv` to its end with `feed` on its stdin; `timeout` is in ns. Raises LabError when it runs out."""
        with ExitStack() as stack:
            files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
            for descriptor in files:
                stack.callback(os.close, descriptor)
            os.pwrite(files[0], feed, 0)
            process = self.spawn(argv, stdin=files[0], stdout=files[1], stderr=files[2])
            status = process.wait(timeout)
            if status is None:
                process.kill()
                raise LabError(f"run {argv[0]}: still running after {format_duration(timeout)}", hint="it was killed")
            out, err = (os.pread(descriptor, os.fstat(descriptor).st_size, 0) for descriptor in files[1:])
        return Completed(returncode=status, stdout=out, stderr=err)

    def socket(self, family: sockets.AddressFamily, kind: sockets.SocketKind, proto: int = 0) -> sockets.socket:
        """Return a socket that lives in this end's namespace."""
        _, passed = self._remote.ask("socket", place=self.name, family=int(family), kind=int(kind), proto=proto)
        return sockets.socket(family, kind, proto, fileno=passed[0])

    def packet_socket(self, receive_buffer: int) -> sockets.socket:
        """Return an AF_PACKET socket bound to this end's interface, kernel stamps on."""
        _, passed = self._remote.ask("packet", place=self.name, receive_buffer=receive_buffer)
        return sockets.socket(fileno=passed[0])


class Lab:
    """A network of a client, a server and a path that is what `link` says."""

    def __init__(self, link: Link | None = None, server_tcp: Tcp | None = None, client_tcp: Tcp | None = None) -> None:
        self.link = link or Link()
        self._request = BuildRequest(
            link=self.link, server_tcp=server_tcp or Tcp(initcwnd=8), client_tcp=client_tcp or Tcp()
        )
        self._stack = ExitStack()
        self._log: Log | None = None
        self._relay: int | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            control = start_agent(stack)
            remote = Remote(control)
            stack.callback(remote.close)
            built, shared = remote.ask("build", request=self._request.encode())
            self._adopt(built, shared, remote, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the lab down; a second call does nothing."""
        self._stack.close()

    def _adopt(self, built: dict[str, Any], shared: list[int], remote: Remote, stack: ExitStack) -> None:
        for descriptor in shared:
            stack.callback(os.close, descriptor)
        if shared:
            self._log, self._relay = Log(shared[0]), shared[1]
            stack.callback(self._log.close)
        ends = tuple(EndFacts(**built["ends"][name]) for name in ("client", "server"))
        self.facts = LabFacts(
            backend=Backend(built["backend"]),
            privileges=built["privileges"],
            ends=ends,
            emulation={name: str(value) for name, value in built["emulation"].items()},
            notes=tuple(built["notes"]),
        )
        # A stack of its own: what processes hold is given back before the agent is left.
        processes = stack.enter_context(ExitStack())
        self.client, self.server = (End(remote, facts, built["scratch"], processes) for facts in ends)
        self._diag = self.server.socket(
            sockets.AddressFamily.AF_NETLINK, sockets.SocketKind.SOCK_RAW, tcpinfo.NETLINK_SOCK_DIAG
        )
        stack.callback(self._diag.close)

    @property
    def backend(self) -> Backend:
        """NETEM or RELAY."""
        return self.facts.backend

    def measure_rtt(self, count: int = 10) -> RttReport:
        """Ping the server from the client. Raises LabError without any reply."""
        raw = self.client.socket(sockets.AddressFamily.AF_INET, sockets.SocketKind.SOCK_RAW, sockets.IPPROTO_ICMP)
        with raw:
            jitter = self.link.to_client.jitter + self.link.to_server.jitter
            patience = 3 * (self.link.rtt + jitter) + NS_PER_S
            return ping.ping(raw, self.server.address, count=count, patience=patience)

    def verify(self) -> RttReport:
        """Measure the RTT and compare it with what the link promises. Raises VoidRunError, LabError."""
        report = self.measure_rtt()
        wanted, jitter = self.link.rtt, self.link.to_client.jitter + self.link.to_server.jitter
        low, high = wanted - jitter - ms(0.1), wanted + jitter + max(ms(1), wanted * 3 // 100)
        if not low <= report.median <= high:
            raise VoidRunError(
                f"the lab's RTT is {format_duration(report.median)}, not {format_duration(wanted)}",
                hint="the machine is too busy for the delay line, or the link is slower than asked; run again",
            )
        return report

    def lateness(self, since_at: int, until_at: int) -> LatenessReport | None:
        """Return how late the relay was in that window (CLOCK_REALTIME ns); None where netem delays.

        Raises VoidRunError when the relay is dead, its log has wrapped, or the machine's clock jumped meanwhile.
        """
        if self._log is None or self._relay is None:
            return None
        if select.select([self._relay], (), (), 0)[0]:
            raise VoidRunError("the delay line died", hint=_GONE_HINT)
        window = self._log.read(since_at, until_at)
        if not window.whole:
            raise VoidRunError("the delay line's log has wrapped in one query", hint="use a smaller result")
        if window.stepped:
            raise VoidRunError("the machine's clock was set meanwhile", hint="run again")
        return window.summary()

    def server_tcp_info(self, local: Endpoint, remote: Endpoint) -> TcpInfo | None:
        """Return the server-side tcp_info of the connection; None when there is none."""
        return tcpinfo.of_connection(self._diag, local, remote)


def start_agent(stack: ExitStack) -> sockets.socket:
    """Start an agent that lives as long as we do; return our end of its socket. Ends it when `stack` unwinds."""
    ours, theirs = sockets.socketpair(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
    ours.settimeout(_ANSWER_S)
    stack.callback(ours.close)
    arguments = ["--control", str(theirs.fileno()), "--parent", str(os.getpid())]
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "netlab.lab.agent", *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    stack.callback(_end, process, ours)
    return ours


def _end(process: subprocess.Popen[bytes], control: sockets.socket) -> None:
    control.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

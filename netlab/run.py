"""The only orchestration of effects: scenario in, record out.

Lab -> server -> capture -> probe -> diagnosis, one server after another in equal labs. Whatever ends a run early (an
error, a signal), what was measured is in the record.
"""

import os
import socket as sockets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from netlab.capture.dump import Dumper
from netlab.capture.mask import mask
from netlab.errors import CaptureError, NetlabError, ServerExceptionError, UsageError, VoidRunError
from netlab.hosts import Host
from netlab.lab import Lab, tcpinfo
from netlab.native.connection import Connection, Login
from netlab.probe.query import BrokenAnswerError, Session, Watch
from netlab.probe.transport import connect
from netlab.record import CaptureFile, LatenessReport, RttReport, ServerRun
from netlab.samples import Sample
from netlab.scenario import Scenario, Server, ServerKind
from netlab.segments import Endpoint
from netlab.servers.interface import RunningServer, start
from netlab.units import format_duration, ms, seconds

# A packet that the delay line forwarded later than this makes its query prove nothing.
LATEST = ms(1)
_CONNECT = seconds(10)
_HEADERS = 100  # IP and TCP with every option that there is room for
_DYING = ms(500)
_PRIORITY = 5  # below the delay line's


class Observer(Protocol):
    """Who watches a run: a terminal, or nobody."""

    def phase(self, text: str) -> None:
        """A phase begins."""

    def lab_ready(self, server: Server, rtt: RttReport) -> None:
        """The lab of `server` stands and is what it claims."""

    def server_ready(self, server: Server, address: str, version: str | None) -> None:
        """`server` answers at `address`."""

    def queries(self, label: str, total: int) -> None:
        """`total` measured queries begin."""

    def measured(self, sample: Sample) -> None:
        """One query ended."""

    def tick(self) -> None:
        """Nothing is being measured just now: time to draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run to make. The password goes to the probe alone and into no record."""

    scenario: Scenario
    folder: Path  # made by the caller; captures and logs go there
    password: str = field(default="", repr=False)


@dataclass(slots=True, kw_only=True)
class _Progress:
    """One server's run while it grows; `freeze` gives what has been measured at any moment."""

    server: Server
    version: str | None = None
    lab: Lab | None = None
    rtt: RttReport | None = None
    started_at: int = 0
    startup: int | None = None
    warmups: list[Sample] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    captures: list[CaptureFile] = field(default_factory=list)
    lateness: LatenessReport | None = None
    error: str | None = None
    void: str | None = None
    notes: list[str] = field(default_factory=list)

    def freeze(self) -> ServerRun:
        """Return the run as it is."""
        return ServerRun(
            server=self.server,
            version=self.version,
            lab=None if self.lab is None else self.lab.facts,
            rtt=self.rtt,
            startup=self.startup,
            lateness=self.lateness,
            warmups=tuple(self.warmups),
            samples=tuple(self.samples),
            captures=tuple(self.captures),
            error=self.error,
            void=self.void,
            notes=tuple(self.notes),
        )


def measure(request: Request, server: Server, observer: Observer, keep: Callable[[ServerRun], None]) -> None:
    """Measure one server in a lab of its own; `keep` gets the run, also when it ends early.

    An error of the lab, the server or the probe is in the run's `error` or `void` and is raised again; so is a signal.
    """
    progress = _Progress(server=server)
    with _keeping(progress, keep):
        _measure(request, progress, observer)


def measure_remote(request: Request, server: Server, observer: Observer, keep: Callable[[ServerRun], None]) -> None:
    """Time queries against a server that runs already: no lab, no capture. Errors as in `measure`."""
    progress = _Progress(server=server)
    with _keeping(progress, keep), ExitStack() as stack:
        session = _log_in(request, _Target(server=server, address=server.host or ""), progress, stack)
        observer.server_ready(server, f"{server.host}:{server.port}", progress.version)
        _ask(request.scenario, session, progress, observer)


@contextmanager
def _keeping(progress: _Progress, keep: Callable[[ServerRun], None]) -> Iterator[None]:
    """Hand over what was measured, however the run ends; why it ended early stands in it."""
    try:
        yield
    except VoidRunError as error:
        progress.void = str(error)
        raise
    except NetlabError as error:
        progress.error = str(error)
        raise
    except KeyboardInterrupt as error:
        progress.error = f"interrupted by {error}"
        raise
    finally:
        keep(progress.freeze())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Where to connect, and from where: `lab` None means this machine's own network."""

    server: Server
    address: str
    lab: Lab | None = None


def _measure(request: Request, progress: _Progress, observer: Observer) -> None:
    scenario, server = request.scenario, progress.server
    _check_login(request)
    stem = "".join(c if c.isalnum() or c in ".-" else "-" for c in server.label.rpartition("/")[2])
    with ExitStack() as stack:
        observer.phase(f"{server.label}: building the lab")
        lab = stack.enter_context(Lab(scenario.link, scenario.server_tcp, scenario.client_tcp))
        progress.lab, progress.started_at = lab, time.time_ns()
        progress.rtt = lab.verify()
        observer.lab_ready(server, progress.rtt)
        observer.phase(f"{server.label}: starting the server")
        ends = (lab.client, lab.server)
        with ThreadPoolExecutor(max_workers=len(ends)) as aside:
            # Both captures begin while the server starts: each is a process that takes a moment to be there.
            begun = [aside.submit(_dump, end, request.folder / f"{stem}.{end.name}.pcapng", server) for end in ends]
            try:
                began = time.monotonic_ns()
                running = start(server, lab.server, str(request.folder / f"{stem}.log"))
                progress.startup = time.monotonic_ns() - began
                # Not closed here: its data is scratch, and the lab's end takes its process down at once.
            finally:
                dumpers = [stack.enter_context(future.result()) for future in begun]
        try:
            with ExitStack() as connection:
                target = _Target(server=server, address=running.address, lab=lab)
                session = _log_in(request, target, progress, connection)
                observer.server_ready(server, f"{running.address}:{running.port}", progress.version)
                connection.enter_context(_punctual())
                _ask(scenario, session, progress, observer)
        except NetlabError as error:
            raise _blame(error, running) from error
        finally:
            # Also after an error or a signal: the captures of what was measured are kept.
            with ThreadPoolExecutor(max_workers=len(dumpers)) as aside:
                list(aside.map(lambda dumper: _stop(dumper, request, progress), dumpers))
            with suppress(VoidRunError):
                progress.lateness = lab.lateness(progress.started_at, time.time_ns())


@contextmanager
def _punctual() -> Iterator[None]:
    """Let the probe run the moment its segment is there.

    The kernel joins segments that wait unread and keeps the last one's stamp: a probe that wakes late sees the first
    row as late as what came behind it. Children do not inherit this.
    """
    ordinary = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
    except PermissionError:
        yield  # an ordinary user: the stamps are the kernel's all the same
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, ordinary, os.sched_param(0))


def _dump(end: Host, path: Path, server: Server) -> Dumper:
    return Dumper.start(end, path, port=server.port, comment=f"{server.label}, seen at the {end.name}")


def _stop(dumper: Dumper, request: Request, progress: _Progress) -> None:
    """Finish a capture and mask the password in it; what went wrong is noted, and does not end the run."""
    try:
        try:
            facts = dumper.stop()
        finally:
            if request.password:
                hello = Connection(_login(request)).hello_bytes()  # its last field is the password
                secret = len(request.password.encode())
                mask(dumper.path, hello, hello[:-secret] + b"*" * secret)
    except CaptureError as error:
        progress.notes.append(str(error))
        return
    progress.captures.append(replace(facts, path=Path(facts.path).name))
    if facts.drops:
        progress.notes.append(f"{facts.path}: the capture lost {facts.drops} packets")


def _blame(error: NetlabError, running: RunningServer) -> NetlabError:
    """Return `error`, or what the server's death says, where that is the reason."""
    # A dying server's connections are closed before its process is gone: it gets a moment for that.
    patience = time.monotonic_ns() + (_DYING if isinstance(error, BrokenAnswerError) else 0)
    while (failure := running.failure()) is None:
        if time.monotonic_ns() >= patience:
            return error
        time.sleep(0.01)
    from netlab.errors import ServerError

    return ServerError(f"the server died: {failure}", hint=f"the probe saw: {error.what}")


def _log_in(request: Request, target: _Target, progress: _Progress, stack: ExitStack) -> Session:
    address = (target.address, target.server.port)
    lab = target.lab
    family = sockets.AddressFamily.AF_INET6 if ":" in target.address else sockets.AddressFamily.AF_INET
    if lab is None:
        made = sockets.socket(family, sockets.SOCK_STREAM)
    else:
        made = lab.client.socket(family, sockets.SocketKind.SOCK_STREAM)
    stack.callback(made.close)
    transport = connect(made, address, _CONNECT)
    local = Endpoint(*made.getsockname()[:2])
    watch = Watch(client=lambda: tcpinfo.of_socket(made))
    if lab is not None:
        remote = Endpoint(*address)
        watch = Watch(client=lambda: tcpinfo.of_socket(made), server=lambda: lab.server_tcp_info(remote, local))
    session = Session(transport, _login(request), watch=watch)
    stack.callback(session.close)
    hello = session.handshake()
    progress.version = hello.version
    return session


def _login(request: Request) -> Login:
    work = request.scenario.workload
    return Login(user=work.user, password=request.password, database=work.database)


def _check_login(request: Request) -> None:
    """Raise UsageError for a login with a password that needs two segments: only whole ones are masked in captures."""
    longest = request.scenario.link.mtu - _HEADERS
    if request.password and len(Connection(_login(request)).hello_bytes()) > longest:
        raise UsageError(
            f"user, database and password are too long for one segment of {longest} bytes",
            hint="a larger --mtu, or shorter names",
        )


def _ask(scenario: Scenario, session: Session, progress: _Progress, observer: Observer) -> None:
    work = scenario.workload
    observer.phase(f"{progress.server.label}: warming up")
    for number in range(1, work.warmup + 1):
        progress.warmups.append(_one(scenario, session, progress, number))
    observer.queries(progress.server.label, work.count)
    sound, attempts = 0, 0
    # A late trial is void and made again, but not for ever: a machine that is always late gets told so.
    while sound < work.count and attempts < 2 * work.count + 1:
        attempts += 1
        session.wait_idle(work.idle, tick=lambda left: observer.tick() if left > ms(300) else None)
        sample = _one(scenario, session, progress, attempts)
        progress.samples.append(sample)
        sound += sample.void is None
        observer.measured(sample)
    if sound < work.count:
        last = next((s.void for s in reversed(progress.samples) if s.void), "")
        raise VoidRunError(
            f"{progress.server.label}: only {sound} of {work.count} queries are sound; the last void one: {last}",
            hint="the machine is too busy for the delay line; run again, or as root for real-time scheduling",
        )


def _one(scenario: Scenario, session: Session, progress: _Progress, number: int) -> Sample:
    work = scenario.workload
    try:
        sample = session.run(work.query, settings=dict(work.settings), index=number, timeout=work.timeout)
    except BrokenAnswerError as error:
        progress.samples.append(error.sample)
        error.hint = error.hint or "look into the server's log, and at what it sent"
        raise
    lab = progress.lab
    if lab is None:
        return sample
    report = lab.lateness(sample.sent_at, time.time_ns())
    if report is None:
        return sample
    sample = replace(sample, lateness=report.worst)
    if sample.void is None and report.worst is not None and report.worst > LATEST:
        return replace(sample, void=f"a packet was forwarded {format_duration(report.worst)} late")
    if sample.void is None and report.dropped and not _may_drop(scenario):
        return replace(sample, void=f"the delay line dropped {report.dropped} packets")
    return sample


def _may_drop(scenario: Scenario) -> bool:
    """Whether drops of the delay line's queue belong to the scenario: a bottleneck's queue overflows."""
    return scenario.link.to_client.rate is not None or scenario.link.to_server.rate is not None


def refusal(run: ServerRun) -> ServerExceptionError | None:
    """Return the server's exception where every sound query of `run` ended in one: nothing was measured then."""
    sound = [sample for sample in run.samples if sample.void is None]
    last = sound[-1].exception if sound else None
    if last is None or any(sample.exception is None for sample in sound):
        return None
    what = f"{run.server.label}: every query ended in an exception; the last: {last.message}"
    return ServerExceptionError(last.code, last.name, what, hint="mend the query or its settings")


def is_remote(server: Server) -> bool:
    """Whether `server` runs already, outside a lab."""
    return server.kind is ServerKind.REMOTE

"""The record of a run: what was asked, what was read back, what was measured, and what it means.

Written as JSON with a schema version; `store` reads and writes it. All values are plain dataclasses, so the
JSON schema follows from the types.
"""

from dataclasses import dataclass, field

from netlab.diagnosis import CaptureDiagnosis, PshTable
from netlab.samples import Sample
from netlab.scenario import Backend, Scenario, Server

SCHEMA = "netlab.run/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFacts:
    """One end of the lab as read back from the kernel after it was built."""

    name: str  # "client" or "server"
    address: str
    interface: str
    mtu: int
    route: dict[str, str]  # metrics of the route to the other end, as the kernel states them
    sysctls: dict[str, str]  # name -> value as read
    offloads: dict[str, bool]  # feature -> active
    qdisc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabFacts:
    """The lab as it really is."""

    backend: Backend  # NETEM or RELAY, never AUTO
    privileges: str  # "root" or "user namespace"
    ends: tuple[EndFacts, ...]
    emulation: dict[str, str]  # from the delay line itself: netem's options read back, or the relay's scheduling
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RttReport:
    """Round trips of echo requests through the lab, before the run (ns)."""

    sent: int
    received: int
    minimum: int
    median: int
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessReport:
    """How late the relay forwarded packets in a window of time (ns after their due instant)."""

    packets: int
    dropped: int  # by the relay's own queue limit or the kernel's receive queue; emulated loss is not a drop
    lost: int  # emulated loss
    median: int | None
    p99: int | None
    worst: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFile:
    """One capture of a run. `path` is relative to the record's folder."""

    path: str
    vantage: str  # "client" or "server"
    packets: int
    drops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRun:
    """One server's measured queries in one lab."""

    server: Server
    version: str | None  # as the server's Hello states it
    lab: LabFacts | None  # None for a remote server
    rtt: RttReport | None
    startup: int | None = None  # ns from starting the server's process until it answered
    lateness: LatenessReport | None
    warmups: tuple[Sample, ...]
    samples: tuple[Sample, ...]
    captures: tuple[CaptureFile, ...] = ()
    diagnosis: CaptureDiagnosis | None = None  # of the server-side capture where there is one
    psh: PshTable | None = None
    error: str | None = None  # why the run ended early; what was measured stays
    void: str | None = None  # why the whole run proves nothing
    notes: tuple[str, ...] = ()  # what a person should know besides, such as packets that a capture lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and the tools that a result depends on."""

    netlab: str
    python: str
    kernel: str
    machine: str
    cpus: int
    tools: dict[str, str]  # name -> version
    packages: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of netlab."""

    schema: str = SCHEMA
    run_id: str
    started_at: int
    finished_at: int | None
    command_line: tuple[str, ...]
    scenario: Scenario
    environment: Environment
    runs: tuple[ServerRun, ...]
    interrupted: str | None = None  # "SIGINT", "SIGTERM" or None
    notes: tuple[str, ...] = field(default=())

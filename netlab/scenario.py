"""What to run: the link, both ends' TCP, the servers and the workload. Pure values with pinned defaults.

The defaults are the article's: 32 ms of round trip, all of it on the server's egress, cubic, initcwnd 8,
2 s of idleness before each of five queries.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from netlab.units import NS_PER_S, ms, seconds

DEFAULT_QUERY = "SELECT max(id) FROM benchmark_test"


class Backend(StrEnum):
    """What delays the packets."""

    AUTO = "auto"  # netem where the kernel has it, else the relay
    NETEM = "netem"
    RELAY = "relay"


class Congestion(StrEnum):
    """Congestion control, set by route metric (works where the sysctl is EPERM)."""

    CUBIC = "cubic"
    RENO = "reno"
    BBR = "bbr"


class Delivery(StrEnum):
    """How the scripted server hands its packets to the kernel."""

    NODELAY = "nodelay"  # TCP_NODELAY, one write a packet: each becomes a segment
    BATCHED = "batched"  # the tail in one write
    CORK = "cork"  # TCP_CORK round the response
    NAGLE = "nagle"  # no socket option at all


class ServerKind(StrEnum):
    """What answers the queries."""

    ENGINE = "engine"  # chdb-core from the package index: "clickhouse:26.7"
    BINARY = "binary"  # a clickhouse or clickhouse-server binary by path
    SCRIPTED = "scripted"  # our own server playing a write train
    REMOTE = "remote"  # HOST:PORT, no lab


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """One direction of the path. Delay and jitter in ns one way, loss a fraction, rate in bit/s, limit in packets."""

    delay: int = 0
    jitter: int = 0  # uniform in [-jitter, +jitter], order kept
    loss: float = 0.0
    rate: int | None = None
    limit: int = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The path between client and server, each direction its own. `seed` feeds the relay's randomness."""

    to_client: Emulation = Emulation(delay=ms(32))
    to_server: Emulation = Emulation()
    backend: Backend = Backend.AUTO
    mtu: int = 1500
    offloads: bool = False  # tso, gso and gro at the two ends; off so that one segment is one frame
    seed: int = 1

    @property
    def rtt(self) -> int:
        """The round trip that the two delays add up to (ns)."""
        return self.to_client.delay + self.to_server.delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """One end's TCP settings. None leaves the kernel's own value, which is read back and recorded all the same."""

    initcwnd: int | None = None
    congestion: Congestion = Congestion.CUBIC
    slow_start_after_idle: bool = True
    no_metrics_save: bool = True
    autocorking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server under test. `label` is what the user typed: "clickhouse:26.7", a path, "scripted", "host:9000"."""

    kind: ServerKind
    label: str
    version: str | None = None  # ENGINE: "26.7"
    path: str | None = None  # BINARY: the executable; SCRIPTED: the write-train file, None for the built-in one
    delivery: Delivery = Delivery.NODELAY  # SCRIPTED
    host: str | None = None  # REMOTE
    port: int = 9000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """N identical queries on one connection, with a silence before each.

    The password is never here: it comes from the environment or a file and goes to the probe alone.
    """

    query: str = DEFAULT_QUERY
    count: int = 5
    idle: int = seconds(2)
    timeout: int = seconds(30)
    # Unmeasured executions first: the engine's JIT costs the 4th +25-50 ms, and the window must have grown.
    warmup: int = 5
    user: str = "default"
    database: str = "default"
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def profile_events(self) -> bool:
        """Whether the server is asked for ProfileEvents packets."""
        return dict(self.settings).get("send_profile_events", "1") not in ("0", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a scenario's author says must come out, per server; None says nothing."""

    cause: str | None = None
    extra_round_trips: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a run needs to know, and that its record repeats."""

    name: str = "repro"
    story: str = ""
    link: Link = Link()
    server_tcp: Tcp = Tcp(initcwnd=8)
    client_tcp: Tcp = Tcp()
    servers: tuple[Server, ...] = (
        Server(kind=ServerKind.ENGINE, label="clickhouse:26.7", version="26.7"),
        Server(kind=ServerKind.ENGINE, label="clickhouse:26.9", version="26.9"),
    )
    workload: Workload = Workload()
    expectations: tuple[tuple[str, Expectation], ...] = field(default=())  # (server label, expectation)

    @property
    def quiet_time(self) -> int:
        """ns that a run must spend waiting: idle gaps, and two round trips a query, per server."""
        work = self.workload
        per_server = work.count * (work.idle + 2 * self.link.rtt) + work.warmup * 2 * self.link.rtt
        return len(self.servers) * min(per_server, 24 * 3600 * NS_PER_S)

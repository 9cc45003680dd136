"""What a capture means: connections, exchanges, flights, stalls, and the cause of each tail with its evidence.

These are the values that `analysis` makes and that reports, records and the gate read. Instants (`_at`) are
CLOCK_REALTIME ns of the capture; durations are ns. A figure that could not be measured is None.
"""

from dataclasses import dataclass
from enum import StrEnum

from netlab.segments import CaptureSummary, Direction, Endpoint


class Cause(StrEnum):
    """Why a response took longer than its bytes needed."""

    IDLE_WINDOW_RESTART = "idle_window_restart"
    FRESH_SLOW_START = "fresh_slow_start"
    LOSS_REDUCED_WINDOW = "loss_reduced_window"
    RTO_RETRANSMISSION = "rto_retransmission"
    TAIL_LOSS_PROBE = "tail_loss_probe"
    FAST_RETRANSMIT = "fast_retransmit"
    NAGLE_DELAYED_ACK = "nagle_delayed_ack"
    CORK_TIMER = "cork_timer"
    RECEIVE_WINDOW = "receive_window"
    SEND_BUFFER = "send_buffer"
    SERVER_THINK_TIME = "server_think_time"
    BANDWIDTH_SERIALISATION = "bandwidth_serialisation"
    PATH_JITTER = "path_jitter"
    PACING = "pacing"
    CLIENT_DELAY = "client_delay"
    HEALTHY = "healthy"
    UNDETERMINED = "undetermined"


class Vantage(StrEnum):
    """Where on the path a capture was taken."""

    CLIENT = "client"
    SERVER = "server"
    MIDDLE = "middle"
    UNKNOWN = "unknown"


class ExchangeKind(StrEnum):
    """What a request was for. Only QUERY exchanges are numbered."""

    QUERY = "query"
    HANDSHAKE = "handshake"
    PING = "ping"


class Protocol(StrEnum):
    """What a connection speaks, as far as its bytes tell."""

    CLICKHOUSE_NATIVE = "clickhouse-native"
    TLS = "tls"
    OTHER = "other"  # turn-taking only


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Frames of the capture (1-based) and a sentence with the times and windows that they show."""

    frames: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause's claim on one exchange: what it cost, how sure it is (0 to 1), and on what evidence."""

    cause: Cause
    cost: int
    round_trips: float
    confidence: float
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSegment:
    """A segment within an exchange. `labels` name the protocol packets it carries a byte of, in order."""

    frame: int
    at: int
    direction: Direction
    length: int
    push: bool
    labels: tuple[str, ...] = ()
    flight: int | None = None  # index into Exchange.flights; None for client segments and pure ACKs
    retransmission: bool = False
    acked_at: int | None = None  # when an ACK that covers its last byte was captured


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A burst of response segments sent without waiting for an ACK of the burst itself."""

    first_frame: int
    last_frame: int
    segments: int  # in MSS-sized units where a super-segment was captured
    bytes: int
    started_at: int
    ended_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A gap inside a response: the segment before it, the one that ended it, and the ACK that came between."""

    after_frame: int
    resume_frame: int
    ack_frame: int | None
    started_at: int
    ended_at: int
    outstanding_segments: int | None  # unacknowledged when the gap began
    outstanding_bytes: int | None

    @property
    def duration(self) -> int:
        """ns of silence."""
        return self.ended_at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a published taxonomy would have called this exchange's stall."""

    method: str  # "tapo" or "t-rat"
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its response."""

    connection: int  # 0-based, index into CaptureDiagnosis.connections
    index: int | None  # 0-based among the connection's queries; None for a handshake or ping
    kind: ExchangeKind
    sent_at: int  # the request's first byte
    request_end_at: int  # the request's last byte
    first_byte_at: int | None
    first_row_at: int | None  # Native only
    last_byte_at: int | None
    eos_at: int | None  # Native only
    idle_before: int | None  # silence of the connection before the request
    request_bytes: int
    response_bytes: int
    rtt: int | None
    query: str | None
    exception: str | None
    segments: tuple[LabelledSegment, ...]
    flights: tuple[Flight, ...]
    stalls: tuple[Stall, ...]
    # Whole round trips that the response waited for beyond the first; None if undetermined.
    extra_round_trips: int | None
    cause: Cause
    also: tuple[Cause, ...]
    confidence: float
    findings: tuple[Finding, ...]
    baselines: tuple[Baseline, ...] = ()
    settle: str | None = None  # for UNDETERMINED: what capture would settle it

    @property
    def tail(self) -> int | None:
        """ns from the first row (Native) or the first byte to the last byte of the response.

        An answer that ended in an exception has none.
        """
        if self.exception is not None:
            return None
        start = self.first_row_at if self.first_row_at is not None else self.first_byte_at
        end = self.eos_at if self.eos_at is not None else self.last_byte_at
        if start is None or end is None or (self.eos_at is not None and self.first_row_at is None):
            return None
        return end - start

    @property
    def first_flight_segments(self) -> int | None:
        """Segments of the first flight of the response."""
        return self.flights[0].segments if self.flights else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One TCP connection in a capture."""

    index: int
    client: Endpoint
    server: Endpoint
    protocol: Protocol
    vantage: Vantage
    vantage_reason: str
    handshake_rtt: int | None
    min_rtt: int | None
    mss: int | None  # of the server's segments
    complete: bool  # the capture holds the SYN
    revision: int | None = None  # Native: min(client, server)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureDiagnosis:
    """Everything that was found in one capture."""

    file: str
    summary: CaptureSummary
    vantage: Vantage
    connections: tuple[Connection, ...]
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PshTable:
    """The article's view: segments from the server with PSH and a payload, by size."""

    segments: int
    bytes: int
    sizes: tuple[tuple[int, int], ...]  # (TCP payload bytes, count), ascending by size

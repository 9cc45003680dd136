"""A capture's diagnosis as other programs read it: what `netlab diagnose --json` prints. Durations are floats in ms.

Fields may be added; none changes its meaning within a major version of `SCHEMA`. Texts of a peer are as they came.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netlab.diagnosis import CaptureDiagnosis, Connection, Exchange, Finding
from netlab.units import as_ms

SCHEMA = "netlab.diagnosis/1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEvidence:
    """Frames (1-based, as Wireshark counts) and a sentence about them."""

    frames: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFinding:
    """One cause's claim on an exchange."""

    cause: str
    cost_ms: float
    round_trips: float
    confidence: float
    evidence: PublishedEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedExchange:
    """A request and its response. Times count from the request's first byte; null was not measured."""

    connection: int
    index: int | None  # 0-based within the connection; null for a handshake and a ping
    kind: str
    query: str | None
    exception: str | None
    sent_at: int  # ns since the epoch
    cause: str
    also: tuple[str, ...]
    confidence: float  # 0 to 1
    extra_round_trips: int | None
    first_byte_ms: float | None
    first_row_ms: float | None
    eos_ms: float | None
    last_byte_ms: float | None
    tail_ms: float | None
    idle_before_ms: float | None
    rtt_ms: float | None
    first_flight_segments: int | None
    request_bytes: int
    response_bytes: int
    evidence: PublishedEvidence  # of `cause`
    findings: tuple[PublishedFinding, ...]
    settle: str | None  # for undetermined: what capture would settle it
    baselines: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedConnection:
    """A TCP connection."""

    index: int
    client: str
    server: str
    protocol: str
    revision: int | None
    vantage: str
    vantage_reason: str
    handshake_rtt_ms: float | None
    min_rtt_ms: float | None
    mss: int | None
    complete: bool  # the capture holds the SYN
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCapture:
    """A capture file."""

    file: str
    vantage: str
    packets: int
    tcp_segments: int
    truncated: bool
    notes: tuple[str, ...]
    connections: tuple[PublishedConnection, ...]
    exchanges: tuple[PublishedExchange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file that could not be read, and why."""

    file: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The whole answer."""

    schema: str = SCHEMA
    captures: tuple[PublishedCapture, ...]
    unreadable: tuple[Unreadable, ...] = ()


def publish(diagnoses: Iterable[CaptureDiagnosis], unreadable: Sequence[Unreadable] = ()) -> Published:
    """Return `diagnoses` in the published form."""
    return Published(captures=tuple(map(_capture, diagnoses)), unreadable=tuple(unreadable))


def main_finding(exchange: Exchange) -> Finding | None:
    """Return the finding that stands for the exchange's cause; None where there is none."""
    return next((each for each in exchange.findings if each.cause is exchange.cause), None)


def _capture(diagnosis: CaptureDiagnosis) -> PublishedCapture:
    summary = diagnosis.summary
    return PublishedCapture(
        file=diagnosis.file,
        vantage=diagnosis.vantage.value,
        packets=summary.packets,
        tcp_segments=summary.tcp_segments,
        truncated=summary.truncated,
        notes=summary.notes,
        connections=tuple(map(_connection, diagnosis.connections)),
        exchanges=tuple(map(_exchange, diagnosis.exchanges)),
    )


def _connection(connection: Connection) -> PublishedConnection:
    return PublishedConnection(
        index=connection.index,
        client=str(connection.client),
        server=str(connection.server),
        protocol=connection.protocol.value,
        revision=connection.revision,
        vantage=connection.vantage.value,
        vantage_reason=connection.vantage_reason,
        handshake_rtt_ms=_ms(connection.handshake_rtt),
        min_rtt_ms=_ms(connection.min_rtt),
        mss=connection.mss,
        complete=connection.complete,
        notes=connection.notes,
    )


def _exchange(exchange: Exchange) -> PublishedExchange:
    found = main_finding(exchange)
    start = exchange.sent_at
    return PublishedExchange(
        connection=exchange.connection,
        index=exchange.index,
        kind=exchange.kind.value,
        query=exchange.query,
        exception=exchange.exception,
        sent_at=start,
        cause=exchange.cause.value,
        also=tuple(cause.value for cause in exchange.also),
        confidence=round(exchange.confidence, 3),
        extra_round_trips=exchange.extra_round_trips,
        first_byte_ms=_since(exchange.first_byte_at, start),
        first_row_ms=_since(exchange.first_row_at, start),
        eos_ms=_since(exchange.eos_at, start),
        last_byte_ms=_since(exchange.last_byte_at, start),
        tail_ms=_ms(exchange.tail),
        idle_before_ms=_ms(exchange.idle_before),
        rtt_ms=_ms(exchange.rtt),
        first_flight_segments=exchange.first_flight_segments,
        request_bytes=exchange.request_bytes,
        response_bytes=exchange.response_bytes,
        evidence=PublishedEvidence(frames=(), text="") if found is None else _evidence(found),
        findings=tuple(map(_finding, exchange.findings)),
        settle=exchange.settle,
        baselines={baseline.method: baseline.verdict for baseline in exchange.baselines},
    )


def _finding(finding: Finding) -> PublishedFinding:
    return PublishedFinding(
        cause=finding.cause.value,
        cost_ms=as_ms(finding.cost),
        round_trips=round(finding.round_trips, 3),
        confidence=round(finding.confidence, 3),
        evidence=_evidence(finding),
    )


def _evidence(finding: Finding) -> PublishedEvidence:
    return PublishedEvidence(frames=finding.evidence.frames, text=finding.evidence.text)


def _since(instant: int | None, start: int) -> float | None:
    return None if instant is None else as_ms(instant - start)


def _ms(duration: int | None) -> float | None:
    return None if duration is None else as_ms(duration)

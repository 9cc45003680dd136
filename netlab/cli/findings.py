"""A diagnosis as lines of text: connections, and under each its exchanges. What a peer sent goes through `plain`."""

from collections.abc import Iterator

from netlab.cli.render import DASH
from netlab.diagnosis import CaptureDiagnosis, Cause, Connection, Exchange, ExchangeKind, Finding
from netlab.text import plain
from netlab.units import as_ms

_LONGEST_QUERY = 160
_FRAMES = 12  # shown of one finding


def diagnosis_lines(diagnosis: CaptureDiagnosis) -> Iterator[str]:
    """Yield the lines of `diagnosis`."""
    summary = diagnosis.summary
    queries = sum(exchange.kind is ExchangeKind.QUERY for exchange in diagnosis.exchanges)
    name = "standard input" if diagnosis.file == "-" else plain(diagnosis.file)
    counted = (
        number(summary.packets, "packet"),
        number(summary.tcp_segments, "TCP segment"),
        number(len(diagnosis.connections), "connection"),
        number(queries, "exchange"),
    )
    yield f"{name}: {', '.join(counted)}; captured at: {diagnosis.vantage.value}"
    if summary.comment:
        yield f"  the file says of itself: {plain(summary.comment)}"
    if summary.truncated:
        yield "  the capture is cut short: what is whole was read"
    for note in summary.notes:
        yield f"  note: {plain(note)}"
    by_connection: dict[int, list[Exchange]] = {}
    for exchange in diagnosis.exchanges:
        by_connection.setdefault(exchange.connection, []).append(exchange)
    for connection in diagnosis.connections:
        yield ""
        yield from _connection(connection)
        for exchange in by_connection.get(connection.index, ()):
            yield from _exchange(exchange)


def _connection(connection: Connection) -> Iterator[str]:
    revision = f" revision {connection.revision}" if connection.revision else ""
    ends = f"{connection.client} to {connection.server}"
    yield f"connection {connection.index}: {ends}, {connection.protocol.value}{revision}"
    yield f"  captured at: {connection.vantage.value} ({plain(connection.vantage_reason)})"
    mss = DASH if connection.mss is None else str(connection.mss)
    yield f"  handshake RTT {_ms(connection.handshake_rtt)}, least RTT {_ms(connection.min_rtt)}, MSS {mss}"
    for note in connection.notes:
        yield f"  note: {plain(note)}"


def _exchange(exchange: Exchange) -> Iterator[str]:
    name = exchange.kind.value if exchange.index is None else f"exchange {exchange.index}"
    query = "" if exchange.query is None else f": {plain(exchange.query, longest=_LONGEST_QUERY)}"
    yield f"  {name}{query}"
    start = exchange.sent_at
    if exchange.first_row_at is not None:
        parts = [f"first row {_ms(exchange.first_row_at - start)}"]
    else:
        parts = [f"first byte {_ms(None if exchange.first_byte_at is None else exchange.first_byte_at - start)}"]
    parts.append(f"tail {_ms(exchange.tail)}")
    trips = exchange.extra_round_trips
    parts.append(f"extra round trips {DASH if trips is None else trips}")
    yield f"    {', '.join(parts)}"
    if exchange.exception is not None:
        yield f"    exception: {plain(exchange.exception, longest=_LONGEST_QUERY)}"
    for finding in exchange.findings:
        yield f"    {_finding(finding)}"
    if not exchange.findings:
        yield f"    {exchange.cause.value} (confidence {exchange.confidence:.0%})"
    if exchange.cause is Cause.UNDETERMINED and exchange.settle:
        yield f"    to settle it: {plain(exchange.settle)}"


def _finding(finding: Finding) -> str:
    frames = finding.evidence.frames
    more = f" and {len(frames) - _FRAMES} more" if len(frames) > _FRAMES else ""
    where = f" [frames {', '.join(map(str, frames[:_FRAMES]))}{more}]" if frames else ""
    cost = f", {_ms(finding.cost)}" if finding.cost else ""
    return f"{finding.cause.value} (confidence {finding.confidence:.0%}{cost}): {plain(finding.evidence.text)}{where}"


def number(count: int, what: str) -> str:
    """Return `count` with its noun, in the plural where it must be."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _ms(value: int | None) -> str:
    return DASH if value is None else f"{as_ms(value):.2f} ms"

"""Two captures side by side as other programs read it: what `netlab compare --json` prints. Durations are in ms.

Figures that grow with a capture's length are given per exchange too; null was not measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from netlab.analysis.tail import Summary, summarise
from netlab.diagnosis import Exchange, PshTable
from netlab.report import counts
from netlab.report.compare import Side
from netlab.units import as_ms

SCHEMA = "netlab.comparison/1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles of a duration."""

    n: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCount:
    """How many segments had a payload of `size` bytes."""

    size: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The server's segments with a payload in exchanges, by size."""

    segments: int
    bytes: int
    segments_per_exchange: float | None
    sizes: tuple[SizeCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """One capture's figures."""

    file: str
    vantage: str
    exchanges: int
    psh: Histogram  # about one segment a write
    all: Histogram
    psh_whole_capture: Histogram | None
    fill: float | None  # bytes over segments x MSS
    bytes_per_exchange: float | None
    extra_round_trips: tuple[int | None, ...]  # of each exchange
    first_flight_segments: tuple[int | None, ...]
    rtt: Spread | None
    first_byte: Spread | None
    first_row: Spread | None
    eos: Spread | None
    last_byte: Spread | None
    tail: Spread | None
    causes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The whole answer."""

    schema: str = SCHEMA
    before: ComparedSide
    after: ComparedSide
    causes_gone: tuple[str, ...]
    causes_new: tuple[str, ...]


def comparison(before: Side, after: Side) -> Comparison:
    """Return the comparison in the published form."""
    old, new = (set(counts.causes(side.diagnosis)) - {"healthy"} for side in (before, after))
    return Comparison(
        before=_side(before),
        after=_side(after),
        causes_gone=tuple(sorted(old - new)),
        causes_new=tuple(sorted(new - old)),
    )


def _side(side: Side) -> ComparedSide:
    exchanges, found = counts.measured(side.diagnosis), counts.sizes(side.diagnosis)
    number = len(exchanges)
    return ComparedSide(
        file=side.diagnosis.file,
        vantage=side.diagnosis.vantage.value,
        exchanges=number,
        psh=_histogram(found.pushed, found.exchanges),
        all=_histogram(found.all, found.exchanges),
        psh_whole_capture=None if side.psh is None else _histogram(side.psh, 0),
        fill=None if found.fill is None else round(found.fill, 4),
        bytes_per_exchange=round(sum(e.response_bytes for e in exchanges) / number, 1) if number else None,
        extra_round_trips=tuple(e.extra_round_trips for e in exchanges),
        first_flight_segments=tuple(e.first_flight_segments for e in exchanges),
        rtt=_spread(e.rtt for e in exchanges),
        first_byte=_since(exchanges, "first_byte_at"),
        first_row=_since(exchanges, "first_row_at"),
        eos=_since(exchanges, "eos_at"),
        last_byte=_since(exchanges, "last_byte_at"),
        tail=_spread(e.tail for e in exchanges),
        causes=dict(sorted(counts.causes(side.diagnosis).items())),
    )


def _histogram(table: PshTable, exchanges: int) -> Histogram:
    return Histogram(
        segments=table.segments,
        bytes=table.bytes,
        segments_per_exchange=round(table.segments / exchanges, 3) if exchanges else None,
        sizes=tuple(SizeCount(size=size, count=count) for size, count in table.sizes),
    )


def _since(exchanges: Iterable[Exchange], field: str) -> Spread | None:
    return _spread(counts.since(getattr(exchange, field), exchange) for exchange in exchanges)


def _spread(values: Iterable[int | None]) -> Spread | None:
    found: Summary | None = summarise(value for value in values if value is not None)
    if found is None:
        return None
    return Spread(n=found.n, p50_ms=as_ms(found.p50), p99_ms=as_ms(found.p99), max_ms=as_ms(found.maximum))

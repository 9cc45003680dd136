"""Figures of a capture's measured exchanges, for its report and for comparing two."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netlab.analysis.tail import Summary, summarise
from netlab.diagnosis import CaptureDiagnosis, Exchange, ExchangeKind, PshTable
from netlab.segments import Direction
from netlab.units import as_ms

DASH = "–"  # a figure that was not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Segments from the server in measured exchanges: all with a payload, and those of them with PSH."""

    exchanges: int  # that have their segments listed
    all: PshTable
    pushed: PshTable
    fill: float | None  # bytes over segments x MSS, 0 to 1; above 1 where offloads join segments


def measured(diagnosis: CaptureDiagnosis) -> list[Exchange]:
    """Return the exchanges that are requests: no handshake, no ping."""
    return [exchange for exchange in diagnosis.exchanges if exchange.kind is ExchangeKind.QUERY]


def sizes(diagnosis: CaptureDiagnosis) -> Sizes:
    """Return what the server sent in the measured exchanges, by size."""
    every: Counter[int] = Counter()
    pushed: Counter[int] = Counter()
    room = listed = 0
    for exchange in measured(diagnosis):
        sent = answer(exchange)
        listed += bool(sent)
        every.update(length for length, _ in sent)
        pushed.update(length for length, push in sent if push)
        mss = diagnosis.connections[exchange.connection].mss
        room += (mss or 0) * len(sent)
    table = _table(every)
    return Sizes(exchanges=listed, all=table, pushed=_table(pushed), fill=table.bytes / room if room else None)


def answer(exchange: Exchange) -> list[tuple[int, bool]]:
    """Return (payload bytes, PSH) of each segment of the answer, as captured."""
    return [(s.length, s.push) for s in exchange.segments if s.direction is Direction.TO_CLIENT and s.length]


def since(instant: int | None, exchange: Exchange) -> int | None:
    """Return the ns from the request to `instant`."""
    return None if instant is None else instant - exchange.sent_at


def causes(diagnosis: CaptureDiagnosis) -> Counter[str]:
    """Return how many measured exchanges have each main cause."""
    return Counter(exchange.cause.value for exchange in measured(diagnosis))


def summary(values: Iterable[int | None]) -> Summary | None:
    """Return the summary of those of `values` (ns) that were measured."""
    return summarise(value for value in values if value is not None)


def quartet(found: Summary | None) -> str:
    """Return p50, p99, maximum (ms) and n as one cell."""
    if found is None:
        return DASH
    times = (f"{as_ms(value):.2f}" for value in (found.p50, found.p99, found.maximum))
    return " / ".join([*times, str(found.n)])


def ms(value: int | None) -> str:
    """Return `value` (ns) in ms."""
    return DASH if value is None else f"{as_ms(value):.2f} ms"


def count(value: int | None) -> str:
    """Return a whole number."""
    return DASH if value is None else f"{value:,}"


def share(part: int, whole: int, digits: int = 1) -> str:
    """Return `part` a `whole`, such as segments an exchange."""
    return f"{part / whole:.{digits}f}" if whole else DASH


def spread(values: Sequence[int | None]) -> str:
    """Return the least and the most of `values`, which may be one; how many are unknown is said."""
    known = [value for value in values if value is not None]
    if not known:
        return DASH
    low, high = min(known), max(known)
    unknown = len(values) - len(known)
    return (f"{low}" if low == high else f"{low} to {high}") + (f" ({unknown} unknown)" if unknown else "")


def _table(counts: Counter[int]) -> PshTable:
    total = sum(size * number for size, number in counts.items())
    return PshTable(segments=counts.total(), bytes=total, sizes=tuple(sorted(counts.items())))

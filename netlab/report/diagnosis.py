"""The report of one capture: what was found, why each answer took longer than its bytes, and the pictures of it."""

import shlex
from collections.abc import Sequence

from netlab.diagnosis import CaptureDiagnosis, Cause, Exchange, Finding
from netlab.report import counts, plots, waterfall
from netlab.report.counts import DASH
from netlab.report.document import Block, Document, Plate, Section, Table, Text, Tone
from netlab.report.waterfall import Scene

# What one page shows; the JSON and the frames hold everything.
_CONNECTIONS, _EXCHANGES, _FRAMES = 50, 200, 12
# Exchanges told one by one: of each cause, and in all.
_OF_EACH, _IN_ALL = 3, 12


def diagnosis_document(diagnosis: CaptureDiagnosis) -> Document:
    """Return the report of `diagnosis`: causes first, then the exchanges that show them."""
    exchanges = counts.measured(diagnosis)
    told = _worth_telling(exchanges)
    blocks: list[Block] = [_summary(diagnosis), _causes(diagnosis)]
    blocks += _plates(exchanges)
    for exchange in told:
        blocks.append(_story(exchange))
        if counts.answer(exchange):
            blocks.append(_waterfall(diagnosis, exchange))
    blocks += [_connections(diagnosis), _exchanges(exchanges)]
    blocks.append(Text(text="Again:", code=shlex.join(["netlab", "diagnose", diagnosis.file])))
    return Document(title=f"netlab: {diagnosis.file}", blocks=tuple(blocks))


def _worth_telling(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return a few of each cause, common causes and long answers first; healthy ones only where there is no other."""
    by_cause: dict[Cause, list[Exchange]] = {}
    for exchange in sorted(exchanges, key=lambda e: -(counts.since(e.last_byte_at, e) or 0)):
        by_cause.setdefault(exchange.cause, []).append(exchange)
    if len(by_cause) > 1:
        by_cause.pop(Cause.HEALTHY, None)
    common = sorted(by_cause.values(), key=len, reverse=True)
    return [exchange for found in common for exchange in found[:_OF_EACH]][:_IN_ALL]


def _summary(diagnosis: CaptureDiagnosis) -> Section:
    summary = diagnosis.summary
    exchanges, connections = counts.measured(diagnosis), diagnosis.connections
    sentences = [
        f"packets: {summary.packets:,}; TCP segments: {summary.tcp_segments:,}; connections: {len(connections):,}; "
        f"exchanges: {len(exchanges):,}",
        f"captured at: {diagnosis.vantage.value}",
    ]
    if summary.comment:
        sentences.append(f"the file says of itself: {summary.comment}")
    if summary.truncated:
        sentences.append("the capture is cut short: what is whole was read")
    sentences += [f"{i.name or i.number}: {i.drops:,} packets were not captured" for i in summary.interfaces if i.drops]
    sentences += summary.notes
    bad = sum(1 for e in exchanges if e.cause not in (Cause.HEALTHY, Cause.UNDETERMINED))
    title = f"A cause in {bad} of {len(exchanges)} exchanges" if exchanges else "No exchange in this capture"
    tone = Tone.BAD if bad else Tone.GOOD if exchanges and not bad else Tone.PLAIN
    if any(e.cause is Cause.UNDETERMINED for e in exchanges) and tone is Tone.GOOD:
        tone = Tone.PLAIN
    return Section(title=title, sentences=tuple(sentences), tone=tone)


def _causes(diagnosis: CaptureDiagnosis) -> Table:
    exchanges = counts.measured(diagnosis)
    rows = []
    for cause, number in counts.causes(diagnosis).most_common():
        mine = [e for e in exchanges if e.cause.value == cause]
        cost = counts.summary(f.cost for e in mine for f in e.findings if f.cause is e.cause)
        trips = counts.spread([e.extra_round_trips for e in mine])
        tail = counts.summary(e.tail for e in mine)
        rows.append((cause, str(number), trips, counts.quartet(cost), counts.quartet(tail)))
    columns = (
        "cause",
        "exchanges",
        "extra round trips",
        "cost, ms: p50 / p99 / max / n",
        "tail, ms: p50 / p99 / max / n",
    )
    return Table(title="Causes", columns=columns, rows=tuple(rows))


def _story(exchange: Exchange) -> Section:
    sentences = [_told(finding) for finding in exchange.findings]
    if exchange.query:
        sentences.append(f"query: {exchange.query}")
    if exchange.exception:
        sentences.append(f"exception: {exchange.exception}")
    if exchange.settle:
        sentences.append(f"to settle it: {exchange.settle}")
    sentences += [f"{base.method} would say: {base.verdict}" for base in exchange.baselines]
    tone = Tone.GOOD if exchange.cause is Cause.HEALTHY else Tone.BAD
    also = "".join(f" + {cause.value}" for cause in exchange.also)
    return Section(
        title=f"{_name(exchange)}: {exchange.cause.value}{also}",
        sentences=tuple(sentences),
        tone=Tone.PLAIN if exchange.cause is Cause.UNDETERMINED else tone,
    )


def _told(finding: Finding) -> str:
    frames = ", ".join(map(str, finding.evidence.frames[:_FRAMES]))
    more = f" and {len(finding.evidence.frames) - _FRAMES} more" if len(finding.evidence.frames) > _FRAMES else ""
    trips = f" = {finding.round_trips:.2f} RTT" if finding.round_trips else ""
    cost = f"{finding.cause.value}, {counts.ms(finding.cost)}{trips}, confidence {finding.confidence:.0%}"
    return f"{finding.evidence.text} [{cost}; frames {frames}{more}]"


def _name(exchange: Exchange) -> str:
    return f"connection {exchange.connection}, exchange {exchange.index}"


def _waterfall(diagnosis: CaptureDiagnosis, exchange: Exchange) -> Plate:
    scene = Scene(title=_name(exchange), exchange=exchange, vantage=diagnosis.vantage)
    return Plate(
        name=f"exchange-{exchange.connection}-{exchange.index}.png",
        what=f"{_name(exchange)}, packet by packet",
        picture=waterfall.waterfalls([scene]),
    )


def _plates(exchanges: Sequence[Exchange]) -> list[Plate]:
    if not any(exchange.flights for exchange in exchanges):
        return []
    what = "Segments of each exchange's first flight and of its whole answer"
    return [Plate(name="windows.png", what=what, picture=plots.windows([e for e in exchanges if e.flights]))]


def _connections(diagnosis: CaptureDiagnosis) -> Table:
    rows = [
        (
            str(c.index),
            str(c.client),
            str(c.server),
            c.protocol.value + (f" {c.revision}" if c.revision else ""),
            f"{c.vantage.value}: {c.vantage_reason}",
            counts.ms(c.handshake_rtt),
            counts.ms(c.min_rtt),
            counts.count(c.mss),
            "; ".join(c.notes),
        )
        for c in diagnosis.connections[:_CONNECTIONS]
    ]
    columns = ("", "client", "server", "protocol", "captured at", "handshake RTT", "least RTT", "MSS", "notes")
    notes = _more(len(diagnosis.connections), _CONNECTIONS)
    return Table(title="Connections", columns=columns, rows=tuple(rows), notes=notes)


def _exchanges(exchanges: Sequence[Exchange]) -> Table:
    rows = [
        (
            f"{e.connection}:{e.index}",
            e.cause.value,
            counts.count(e.extra_round_trips),
            counts.ms(e.rtt),
            counts.ms(e.idle_before),
            counts.ms(counts.since(e.first_byte_at, e)),
            counts.ms(counts.since(e.last_byte_at, e)),
            counts.ms(e.tail),
            DASH if not e.flights else " + ".join(str(f.segments) for f in e.flights[:6]) + " …" * (len(e.flights) > 6),
            f"{e.response_bytes:,}",
        )
        for e in exchanges[:_EXCHANGES]
    ]
    columns = (
        "exchange",
        "cause",
        "extra round trips",
        "RTT",
        "idle before",
        "first byte",
        "last byte",
        "tail",
        "flights, segments",
        "bytes",
    )
    return Table(title="Exchanges", columns=columns, rows=tuple(rows), notes=_more(len(exchanges), _EXCHANGES))


def _more(number: int, most: int) -> tuple[str, ...]:
    return (f"{number - most:,} more are in the JSON.",) if number > most else ()

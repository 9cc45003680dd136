"""Findings into words: what happened to a server's queries, why, what would heal it. The words follow the packets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from netlab.analysis.tail import summarise
from netlab.diagnosis import Cause, Exchange
from netlab.record import ServerRun
from netlab.scenario import Scenario
from netlab.segments import Direction
from netlab.units import NS_PER_MS
from netlab.wire import ServerPacket

_EVENTS = ServerPacket.PROFILE_EVENTS.label
# Who can apply what, where the packets themselves say no more.
_REMEDIES: dict[Cause, tuple[tuple[str, str], ...]] = {
    Cause.FRESH_SLOW_START: (("client", "reuse connections, or warm them up"), ("operator", "a larger initcwnd")),
    Cause.NAGLE_DELAYED_ACK: (("server's authors", "set TCP_NODELAY, or write the answer in one go"),),
    Cause.CORK_TIMER: (("server's authors", "uncork (or flush) at the end of each answer"),),
    Cause.RECEIVE_WINDOW: (("client", "read faster, or give the socket a larger receive buffer"),),
    Cause.SEND_BUFFER: (("server's authors", "a larger send buffer (SO_SNDBUF, net.ipv4.tcp_wmem)"),),
    Cause.SERVER_THINK_TIME: (("server's authors", "look into the server: the network did not wait"),),
    Cause.BANDWIDTH_SERIALISATION: (("operator", "a faster path, or a smaller answer"),),
    Cause.PATH_JITTER: (("operator", "look for a full queue on the path"),),
    Cause.PACING: (("operator", "a congestion control that does not pace, or fewer and larger writes"),),
    Cause.CLIENT_DELAY: (("client", "send the request in one write, without a Ping before it"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run says of one server. `extra_round_trips` has one entry a sound query; None: undetermined."""

    server: str
    headline: str
    cause: str | None
    extra_round_trips: tuple[int | None, ...]
    sentences: tuple[str, ...]
    remedies: tuple[tuple[str, str], ...]  # (who can apply it, what)


def explain(run: ServerRun, exchanges: Sequence[Exchange | None], scenario: Scenario) -> Verdict:
    """Return the words for `run`, whose sound samples have these `exchanges` in the capture, in order."""
    trips = tuple(None if e is None else e.extra_round_trips for e in exchanges)
    known = [e for e in exchanges if e is not None]
    causes = Counter(e.cause for e in known)
    main = next((c for c, _ in causes.most_common() if c is not Cause.HEALTHY), Cause.HEALTHY) if causes else None
    typical = _typical([e for e in known if e.cause is main])
    sentences: list[str] = []
    remedies: tuple[tuple[str, str], ...] = ()
    if typical is not None and typical.cause is not Cause.HEALTHY:
        sentences += _evidence(run, typical, list(exchanges).index(typical) + 1)
        remedies = _remedies(typical, scenario)
    elif typical is not None:
        sentences.append(_healthy(known, scenario))
    sentences += _kernel_words(run, typical)
    return Verdict(
        server=run.server.label,
        headline=_headline(trips, causes, main),
        cause=None if main is None else main.value,
        extra_round_trips=trips,
        sentences=tuple(sentences),
        remedies=remedies,
    )


def _headline(trips: Sequence[int | None], causes: Counter[Cause], main: Cause | None) -> str:
    total = len(trips)
    if not total or main is None:
        return "no query could be matched with the capture, so the cause is undetermined"
    unknown = trips.count(None)
    stalled = [t for t in trips if t]
    why = "" if main is Cause.HEALTHY else f": {main.value}"
    if causes[main] not in (total, 0) and main is not Cause.HEALTHY:
        why += f" (in {causes[main]} of {total} queries)"
    doubt = f"; {unknown} undetermined" if unknown else ""
    if not stalled:
        return f"no extra round trip in {total - unknown} of {total} queries{why}{doubt}"
    each = f"{stalled[0]}" if len(set(stalled)) == 1 else f"{min(stalled)} to {max(stalled)}"
    noun = "extra round trip" if each == "1" else "extra round trips"
    every = "the one query" if total == 1 else f"each of {total} queries"
    where = every if len(stalled) == total else f"{len(stalled)} of {total} queries"
    return f"{each} {noun} in {where}{why}{doubt}"


def _typical(exchanges: Sequence[Exchange]) -> Exchange | None:
    """Return the exchange with the median tail."""
    ordered = sorted(exchanges, key=lambda e: -1 if e.tail is None else e.tail)
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def _evidence(run: ServerRun, exchange: Exchange, number: int) -> list[str]:
    file = "" if run.diagnosis is None else f" of {run.diagnosis.file}"
    lines = []
    for finding in exchange.findings:
        frames = ", ".join(str(frame) for frame in finding.evidence.frames)
        trips = f", {finding.round_trips:.2f} RTT" if finding.round_trips else ""
        lines.append(
            f"query {number}: {finding.evidence.text} "
            f"[{finding.cause.value}, {finding.cost / NS_PER_MS:.1f} ms{trips}; frames {frames}{file}]"
        )
    if exchange.settle:
        lines.append(f"to settle it: {exchange.settle}")
    return lines


def _healthy(exchanges: Sequence[Exchange], scenario: Scenario) -> str:
    most = max((sum(f.segments for f in e.flights) for e in exchanges), default=0)
    tail = summarise([e.tail for e in exchanges if e.tail is not None])
    window = scenario.server_tcp.initcwnd
    text = f"the answer needs {most} segments"
    if window is not None:
        text += f"; the window after idleness holds {window} or more"
    if tail is not None:
        text += f"; between the first row and the end pass {tail.p50 / NS_PER_MS:.2f} ms (p50 of {tail.n})"
    return text


def _kernel_words(run: ServerRun, exchange: Exchange | None) -> list[str]:
    if exchange is None:
        return []
    sample = min(run.samples, key=lambda s: abs(s.sent_at - exchange.sent_at))
    before, after = sample.server_before, sample.server_after
    if before is None or after is None:
        return []
    text = f"the server's kernel says of the connection: snd_cwnd {before.snd_cwnd} before the query"
    text += f" and {after.snd_cwnd} after it, rto {after.rto / NS_PER_MS:.0f} ms, retransmissions {after.total_retrans}"
    return [text]


def _remedies(exchange: Exchange, scenario: Scenario) -> tuple[tuple[str, str], ...]:
    if exchange.cause is not Cause.IDLE_WINDOW_RESTART:
        return _REMEDIES.get(exchange.cause, ())
    needed = sum(flight.segments for flight in exchange.flights)
    window = exchange.first_flight_segments or 0
    events = sum(
        1 for s in exchange.segments if s.direction is Direction.TO_CLIENT and s.length and s.labels == (_EVENTS,)
    )
    found: list[tuple[str, str]] = []
    if events and needed - events <= window:
        found.append(("client", f"SETTINGS send_profile_events = 0: {events} segments less, {needed - events} in all"))
    found.append(("server operator", "net.ipv4.tcp_slow_start_after_idle = 0: the window survives idleness"))
    found.append(("server operator", f"ip route ... initcwnd {needed} or more: the whole answer fits the first flight"))
    found.append(("server's authors", "write the packets after the rows in one go, as ClickHouse 26.9 does"))
    return tuple(found)

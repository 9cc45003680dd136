"""Segments in, diagnosis out: follow every connection, judge each exchange once its connection's RTT is known.

Memory is flat: a finished exchange keeps what `diagnosis.Exchange` holds, and a connection that has long been silent
is judged and closed out.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from netlab.analysis.causes.gaps import window_stops
from netlab.analysis.exchange import Conversation
from netlab.analysis.flow import ACK, SYN, Half, Placed, server_is_source
from netlab.analysis.judge import judge
from netlab.analysis.options import DEFAULT_OPTIONS, Detail, Options
from netlab.analysis.raw import Raw
from netlab.analysis.vantage import Paths
from netlab.analysis.vantage import judge as judge_paths
from netlab.analysis.view import Context, Past, View, advance, build_view, segment_size, waited_a_timer
from netlab.diagnosis import CaptureDiagnosis, Cause, Connection, Exchange, ExchangeKind, Vantage
from netlab.segments import CaptureSummary, Endpoint, Segment
from netlab.units import NS_PER_S

# A Pong this soon before the query was waited for.
_PING_THEN_QUERY = NS_PER_S // 20

Key = tuple[int, Endpoint, Endpoint]


class Followed:
    """A connection, its past as both senders, and the last Ping."""

    __slots__ = ("conversation", "down_past", "keys", "pong", "up_past")

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.down_past = Past()
        self.up_past = Past()
        self.pong: tuple[Raw, int] | None = None  # the newest Ping exchange, and what it took
        self.keys: list[Key] = []


class Diagnoser:
    """Takes segments one by one; `connections` and `exchanges` fill as they end."""

    def __init__(self, options: Options = DEFAULT_OPTIONS) -> None:
        self.options = options
        self.connections: list[Connection | None] = []
        self.exchanges: list[Exchange] = []
        self._directions: dict[Key, tuple[Followed, bool]] = {}
        self._open: OrderedDict[int, Followed] = OrderedDict()
        self._kept = 0
        self._waiting = 0

    def feed(self, segment: Segment) -> None:
        """Take the capture's next segment."""
        key = (segment.interface, segment.source, segment.destination)
        found = self._directions.get(key)
        if found is None or (segment.flags & SYN and self._reused(found[0], found[1], segment)):
            found = self._follow(key, segment)
        followed, down = found
        conversation = followed.conversation
        before = conversation.waiting
        conversation.feed(segment, down)
        if conversation.waiting != before:
            self._waiting += conversation.waiting - before
            if self._waiting > self.options.waiting_segments:
                self._settle_all()

    def finish(self) -> None:
        """End all connections."""
        for followed in list(self._open.values()):
            self._close(followed)

    def _follow(self, key: Key, segment: Segment) -> tuple[Followed, bool]:
        interface, source, destination = key
        reverse = (interface, destination, source)
        other = self._directions.get(reverse)
        if key in self._directions:
            self._close(self._directions[key][0])
            other = None
        if other is not None:
            followed, down = other[0], not other[1]
            self._directions[key] = (followed, down)
            followed.keys.append(key)
            return followed, down
        elsewhere = self._other_interface(key)
        if elsewhere is not None:
            return elsewhere
        down = server_is_source(segment)
        client, server = (destination, source) if down else (source, destination)
        conversation = Conversation(len(self.connections), client, server, self.options.exchange_segments)
        conversation.last_at = segment.at
        followed = Followed(conversation)
        self.connections.append(None)
        self._open[conversation.index] = followed
        self._directions[key] = (followed, down)
        followed.keys.append(key)
        if len(self._open) > self.options.open_connections:
            self._evict()
        return followed, down

    def _other_interface(self, key: Key) -> tuple[Followed, bool] | None:
        """Find the half of an asymmetric path: the other direction was captured on another interface only."""
        interface, source, destination = key
        for number in range(8):
            if number == interface:
                continue
            found = self._directions.get((number, destination, source))
            if found is not None and (number, source, destination) not in self._directions:
                self._directions[key] = (found[0], not found[1])
                found[0].keys.append(key)
                return self._directions[key]
        return None

    def _reused(self, followed: Followed, down: bool, segment: Segment) -> bool:
        """Whether a SYN begins a new connection on the same ports."""
        half: Half = followed.conversation.down if down else followed.conversation.up
        if segment.flags & ACK:
            return False
        return half.isn != segment.seq if half.isn >= 0 else half.started

    def _evict(self) -> None:
        silent = sorted(self._open.values(), key=lambda each: (each.conversation.last_at, each.conversation.index))
        for followed in silent[: max(1, len(silent) // 16)]:
            self._close(followed)

    def _settle_all(self) -> None:
        for followed in self._open.values():
            if followed.conversation.finished:
                self._settle(followed)

    def _close(self, followed: Followed) -> None:
        conversation = followed.conversation
        for key in followed.keys:
            self._directions.pop(key, None)
        self._open.pop(conversation.index, None)
        before = conversation.waiting
        conversation.finish()
        self._waiting += conversation.waiting - before
        paths = self._settle(followed)
        self.connections[conversation.index] = _connection(conversation, paths)

    def _settle(self, followed: Followed) -> Paths:
        """Judge the finished exchanges of a connection."""
        conversation = followed.conversation
        paths = judge_paths(conversation.timing())
        timers = sum(waited_a_timer(raw, paths) for raw in conversation.finished)
        for raw in conversation.finished:
            self._judge(followed, raw, paths, timers)
        conversation.finished.clear()
        self._waiting -= conversation.waiting
        conversation.waiting = 0
        return paths

    def _judge(self, followed: Followed, raw: Raw, paths: Paths, timers: int) -> None:
        conversation = followed.conversation
        pong, cost = _waited_pong(followed, raw)
        context = Context(
            paths=paths,
            past=followed.down_past,
            request_past=followed.up_past,
            timer_waits=timers,
            pong=pong,
            ping_cost=cost,
            shortest=self.options.shortest_pause,
        )
        view = build_view(conversation, raw, context)
        index = None
        if raw.kind is ExchangeKind.QUERY:
            index = conversation.queries
            conversation.queries += 1
        keep = self.options.detail is not Detail.NONE and self._kept < self.options.kept_segments
        exchange = judge(view, conversation.index, index, keep=keep)
        if self.options.detail is Detail.CAUSES and exchange.cause is Cause.HEALTHY:
            exchange = replace(exchange, segments=())
        self._kept += len(exchange.segments)
        self.exchanges.append(exchange)
        _remember(followed, view, raw)


def diagnose(
    segments: Iterable[Segment],
    *,
    file: str,
    summary: CaptureSummary | Callable[[], CaptureSummary],
    options: Options = DEFAULT_OPTIONS,
) -> CaptureDiagnosis:
    """Return the diagnosis of a capture's segments, in file order.

    `summary` may be a function, called when the segments are used up. Errors of the iterator pass through.
    """
    diagnoser = Diagnoser(options)
    feed = diagnoser.feed
    for segment in segments:
        feed(segment)
    diagnoser.finish()
    connections = tuple(each for each in diagnoser.connections if each is not None)
    exchanges = sorted(diagnoser.exchanges, key=lambda exchange: (exchange.connection, exchange.sent_at))
    return CaptureDiagnosis(
        file=file,
        summary=summary() if callable(summary) else summary,
        vantage=_vantage(connections, exchanges),
        connections=connections,
        exchanges=tuple(exchanges),
    )


def stream(segments: Iterable[Segment], options: Options = DEFAULT_OPTIONS) -> Iterator[Exchange]:
    """Yield exchanges as they are judged and keep none: for captures of any length."""
    diagnoser = Diagnoser(options)
    for segment in segments:
        diagnoser.feed(segment)
        if diagnoser.exchanges:
            yield from diagnoser.exchanges
            diagnoser.exchanges.clear()
    diagnoser.finish()
    yield from diagnoser.exchanges


def _waited_pong(followed: Followed, raw: Raw) -> tuple[Placed | None, int]:
    """Return the Pong that the client waited for just before this request, and the time that took."""
    if followed.pong is None or raw.first_up is None or raw.kind is not ExchangeKind.QUERY:
        return None, 0
    pong, took = followed.pong
    answer = pong.first_down
    if answer is None or raw.first_up.at - answer.at > _PING_THEN_QUERY:
        return None, 0
    return answer, took


def _remember(followed: Followed, view: View, raw: Raw) -> None:
    """Update what the connection's senders have shown."""
    fresh = followed.down_past.segments == 0 or (view.idle is not None and view.idle > view.rto)
    stops = window_stops(view.response, view.past, view.rtt)
    followed.down_past = advance(followed.down_past, view.response, fresh=fresh, stops=stops)
    up_stops = window_stops(view.request, view.request_past, view.rtt)
    followed.up_past = advance(followed.up_past, view.request, fresh=followed.up_past.segments == 0, stops=up_stops)
    if raw.kind is ExchangeKind.PING and raw.first_up is not None and raw.first_down is not None:
        followed.pong = (raw, raw.first_down.at - raw.first_up.at)
    else:
        followed.pong = None


def _connection(conversation: Conversation, paths: Paths) -> Connection:
    timing = conversation.timing()
    handshake = timing.syn + timing.syn_ack if timing.syn >= 0 and timing.syn_ack >= 0 else None
    return Connection(
        index=conversation.index,
        client=conversation.client,
        server=conversation.server,
        protocol=conversation.protocol,
        vantage=paths.vantage,
        vantage_reason=paths.reason,
        handshake_rtt=handshake,
        min_rtt=paths.rtt,
        mss=segment_size(conversation, down=True) if conversation.down.largest or conversation.complete else None,
        complete=conversation.complete,
        revision=conversation.labeller.revision if conversation.labeller is not None else None,
        notes=tuple(_notes(conversation)),
    )


def _notes(conversation: Conversation) -> Iterator[str]:
    if not conversation.complete:
        yield "the capture begins mid-connection: options, window scale and the age of the window are not known"
    if conversation.syn_resent:
        yield f"the client sent its SYN {conversation.syn_resent + 1} times before it was answered"
    lost = conversation.up.lost_captured + conversation.down.lost_captured
    if lost:
        yield f"{lost} bytes were acknowledged but are not in the capture"
    if conversation.reset:
        yield "the connection was reset"
    if conversation.keep_alives:
        yield f"{conversation.keep_alives} keep-alives or window probes"


def _vantage(connections: tuple[Connection, ...], exchanges: list[Exchange]) -> Vantage:
    votes: Counter[Vantage] = Counter()
    weight = Counter(exchange.connection for exchange in exchanges)
    for connection in connections:
        if connection.vantage is not Vantage.UNKNOWN:
            votes[connection.vantage] += 1 + weight[connection.index]
    return votes.most_common(1)[0][0] if votes else Vantage.UNKNOWN

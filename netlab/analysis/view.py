"""What the cause functions look at: one exchange, both its transfers, its connection's past, and the paths."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

from netlab.analysis.exchange import Conversation
from netlab.analysis.flow import Placed
from netlab.analysis.raw import Raw
from netlab.analysis.transfer import Gap, SenderClock, Transfer, TransferBuilder
from netlab.analysis.vantage import Paths
from netlab.diagnosis import ExchangeKind, Vantage
from netlab.units import ms

# Linux floors the variance part of the RTO at 200 ms (TCP_RTO_MIN; net/ipv4/tcp_input.c, tcp_set_rto).
RTO_MIN = ms(200)
_TAIL = 8  # segments looked at for a response's last two
DEFAULT_MSS = 1460


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a sender showed on this connection before an exchange. Windows in segments."""

    window: int = 0  # what the congestion window grew to, by the rules of slow start, since the last loss
    proved: int = 0  # most segments seen in flight at once since the last loss or silence
    peak: int = 0  # the same since the last loss
    initial: int | None = None  # where its first, fresh flight stopped for an ACK
    burst: int = 0  # a flight after silence, or a first one, that went out without a stop held this many
    restarts: tuple[int, ...] = ()  # where flights after silence stopped
    peak_before_loss: int = 0  # most in flight before the last loss; 0 without one
    segments: int = 0  # sent so far
    exchanges: int = 0
    pause: int = 0  # of the exchange before, before its response's last segment (ns)
    small: int = 0  # most segments below the MSS in flight at once: two or more, and Nagle's rule is off


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """One exchange with all that is known of its connection. Times ns.

    Compared by identity, so that what several causes ask of one view is computed once (functools.lru_cache).
    """

    raw: Raw
    kind: ExchangeKind
    paths: Paths
    rtt: int | None
    response: Transfer
    request: Transfer
    past: Past  # of the server as a sender
    request_past: Past
    complete: bool  # the capture holds the SYN
    clock: SenderClock | None  # of the server, where the tap is not at it
    wait: int | None  # from the request's last byte to the response's first, less the way to the server and back
    idle: int | None  # silence of the server as a sender before its first byte
    timer_waits: int  # exchanges of this connection, judged together, that waited about one RTO for a small answer
    ping: Placed | None  # the Pong that the client waited for just before this request
    ping_cost: int

    @property
    def round_trip(self) -> int:
        """The RTT, at least 1 ns, for divisions."""
        return max(self.rtt or 0, 1)

    @property
    def rto(self) -> int:
        """The retransmission timeout of a quiet path: RFC 6298 with Linux's floor."""
        return RTO_MIN + (self.rtt or 0)

    @property
    def at_sender(self) -> bool:
        """Whether effects of ACKs on the response are seen when they happen."""
        return self.paths.vantage is Vantage.SERVER

    @property
    def think_floor(self) -> int:
        """The least server time that counts as a pause rather than as work."""
        return max(ms(8), min((self.rtt or 0) // 4, ms(20)))

    def round_trips(self, cost: int) -> float:
        """`cost` in round trips, rounded for people."""
        return round(cost / self.round_trip, 2) if self.rtt else 0.0


def waited_a_timer(raw: Raw, paths: Paths) -> bool:
    """Whether the response's first byte, or its last segment, came about one RTO late: a cork, or a retransmission."""
    if raw.first_down is None or raw.request_end_at is None:
        return False
    rtt = paths.rtt or 0
    wait = raw.first_down.at - raw.request_end_at - (paths.upstream or 0)
    if abs(wait - RTO_MIN - rtt) <= ms(10) + rtt // 20 or abs(wait - RTO_MIN) <= ms(10):
        return True
    last = [placed for placed in raw.placed[-_TAIL:] if placed.down and placed.end > placed.start][-2:]
    return len(last) == 2 and RTO_MIN <= last[1].at - last[0].at <= 2 * RTO_MIN + 2 * rtt


def floor_for(rtt: int | None, shortest: int) -> int:
    """Return the silence from which a gap is looked at."""
    return max(shortest, min((rtt or 0) * 15 // 100, ms(10)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What an exchange's connection was before it. `shortest`: the shortest gap to look at (ns)."""

    paths: Paths
    past: Past = Past()
    request_past: Past = Past()
    timer_waits: int = 0
    pong: Placed | None = None
    ping_cost: int = 0
    shortest: int = ms(2)


def build_view(conversation: Conversation, raw: Raw, context: Context) -> View:
    """Return the view of `raw`."""
    paths, known = context.paths, conversation.complete
    up, up_acks, down, down_acks = _sort(raw)
    floor = floor_for(paths.rtt, context.shortest)
    clock = None if paths.vantage is Vantage.SERVER else raw.clock
    mss = segment_size(conversation, down=True)
    builder = TransferBuilder(mss=mss, lag=paths.response_lag, floor=floor, knows_window=known, clock=clock)
    response = builder.build(down, up_acks, raw.down_una, raw.down_edge)
    mss = segment_size(conversation, down=False)
    builder = TransferBuilder(mss=mss, lag=paths.request_lag, floor=floor, knows_window=known)
    request = _own_gaps(builder.build(up, down_acks, raw.up_una, raw.up_edge), down)
    first = raw.first_down
    idle = first.at - raw.last_down_at if first is not None and raw.last_down_at is not None else None
    return View(
        raw=raw,
        kind=raw.kind,
        paths=paths,
        rtt=paths.rtt,
        response=response,
        request=request,
        past=context.past,
        request_past=context.request_past,
        complete=known,
        clock=clock,
        wait=_wait(request, first, paths),
        idle=idle,
        timer_waits=context.timer_waits,
        ping=context.pong,
        ping_cost=context.ping_cost,
    )


def _sort(raw: Raw) -> tuple[list[Placed], list[Placed], list[Placed], list[Placed]]:
    """Return the client's data and ACKs, and the server's data and ACKs."""
    up: list[Placed] = []
    up_acks: list[Placed] = []
    down: list[Placed] = []
    down_acks: list[Placed] = []
    for placed in raw.placed:
        data, acks = (down, down_acks) if placed.down else (up, up_acks)
        if placed.end > placed.start:
            data.append(placed)
        if placed.ack >= 0:
            acks.append(placed)
    return up, up_acks, down, down_acks


def _own_gaps(request: Transfer, answers: list[Placed]) -> Transfer:
    """Return the request without the gaps in which the server spoke: there the client waited its turn."""
    if not request.gaps:
        return request
    spoke = [each.at for each in answers]
    gaps = tuple(gap for gap in request.gaps if bisect_left(spoke, gap.resume.at) <= bisect_right(spoke, gap.before.at))
    return request if len(gaps) == len(request.gaps) else replace(request, gaps=gaps)


def segment_size(conversation: Conversation, *, down: bool) -> int:
    """Return the MSS of a direction: what the receiver's SYN allows, less the timestamp option when it is used."""
    mine, other = (conversation.down, conversation.up) if down else (conversation.up, conversation.down)
    advertised = other.mss
    if advertised is None:
        # No SYN: the largest segment seen, unless offloads made it larger than any link carries.
        return mine.largest if 536 <= mine.largest <= 9_000 else DEFAULT_MSS
    if conversation.stamped:
        advertised -= 12
    return max(advertised, 1)


def _wait(request: Transfer, first: Placed | None, paths: Paths) -> int | None:
    if first is None or not request.data:
        return None
    sent = max((packet.at for packet in request.data if packet.at <= first.at), default=None)
    return None if sent is None else max(0, first.at - sent - (paths.upstream or 0))


def advance(past: Past, transfer: Transfer, *, fresh: bool, stops: list[Gap]) -> Past:
    """Return `past` after a transfer. `fresh`: the sender began it idle, or new; `stops`: where its window was full."""
    if not transfer.data:
        return replace(past, exchanges=past.exchanges + 1)
    segments = past.segments + sum(each.segments for each in transfer.rounds)
    small = max(past.small, transfer.most_small)
    if transfer.losses:
        peak = max(past.peak_before_loss, past.window, transfer.peak)
        return Past(peak_before_loss=peak, segments=segments, exchanges=past.exchanges + 1, small=small)
    # After silence the window may have shrunk: only what this transfer shows counts.
    proved = transfer.peak if fresh else max(past.proved, transfer.peak)
    window = proved if fresh else max(past.window, proved)
    if stops and not past.peak_before_loss:
        # Slow start adds what each ACK covers: a full window acknowledged is at least doubled.
        window = max(window, 2 * max(stop.segments for stop in stops))
    paused = bool(transfer.gaps) and transfer.gaps[-1].position == len(transfer.data) - 1
    first = transfer.rounds[0].segments
    burst = past.burst
    initial, restarts = past.initial, past.restarts
    if fresh:
        burst = max(burst, first)
        if stops and past.window <= stops[0].segments and initial is None:
            initial = stops[0].segments
        elif stops:
            restarts = (*restarts[-7:], stops[0].segments)
    return replace(
        past,
        window=window,
        proved=proved,
        peak=max(past.peak, transfer.peak),
        initial=initial,
        burst=burst,
        restarts=restarts,
        segments=segments,
        exchanges=past.exchanges + 1,
        small=small,
        pause=transfer.gaps[-1].duration if paused else 0,
    )

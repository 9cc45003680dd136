"""One connection to a ClickHouse server, and one query on it at a time: each gives a `Sample`.

A packet's instant is the stamp of the received piece that made it whole, so decoding never shifts it. The clock starts
right before the one write that carries the Query and the empty Data block the server waits for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from netlab.errors import NetlabError, ProbeError, RemoteProtocolError
from netlab.native.connection import Connection, Login
from netlab.native.messages import ServerBlock, ServerException, ServerHello
from netlab.native.stream import Event
from netlab.probe import clock as clocks
from netlab.probe.clock import Clock, SystemClock
from netlab.probe.peer import describe, plain, refusal
from netlab.probe.transport import Chunk, Transport
from netlab.samples import Arrival, QueryException, Sample, StampSource, TcpInfo
from netlab.units import format_duration, ms, seconds
from netlab.wire import ServerPacket

_NO_DATA_HINT = "the server works on it still, or the path drops packets; a larger timeout tells them apart"
_TICK = ms(100)
_FIRST_BYTES = 64
_BANNER_WAIT = ms(300)
_HANDSHAKE_TIMEOUT = seconds(10)


class BrokenAnswerError(ProbeError):
    """The answer to a query did not come to its end. `sample` holds what had arrived."""

    def __init__(self, what: str, sample: Sample, *, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.sample = sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Where a sample's tcp_info comes from; either end may be out of reach."""

    client: Callable[[], TcpInfo | None] = lambda: None
    server: Callable[[], TcpInfo | None] = lambda: None


@dataclass(slots=True, kw_only=True)
class _Answer:
    """What came of one query so far."""

    index: int
    sent: clocks.Reading
    idle: int
    bytes: int = 0
    rows: int = 0
    first_row_at: int | None = None
    eos_at: int | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    stamps: StampSource = StampSource.KERNEL
    exception: QueryException | None = None

    @property
    def over(self) -> bool:
        """Whether EndOfStream or an Exception has come."""
        return self.eos_at is not None or self.exception is not None

    def take(self, event: Event, at: int) -> None:
        """Add a packet that was whole `at`."""
        packet = event.packet
        rows = packet.rows if isinstance(packet, ServerBlock) else None
        kind = event.kind
        assert isinstance(kind, ServerPacket)  # a client's connection reads nothing else
        self.arrivals.append(Arrival(kind=kind, at=at, size=event.size, rows=rows))
        if kind is ServerPacket.DATA and rows:
            self.rows += rows
            self.first_row_at = at if self.first_row_at is None else self.first_row_at
        elif kind is ServerPacket.END_OF_STREAM:
            self.eos_at = at
        elif isinstance(packet, ServerException):
            self.exception = QueryException(code=packet.code, name=packet.name, message=plain(packet))


class Session:
    """A connection with its handshake done, on which queries are timed one after the other."""

    def __init__(
        self, transport: Transport, login: Login, *, clock: Clock | None = None, watch: Watch | None = None
    ) -> None:
        self._transport = transport
        self._clock = clock or SystemClock()
        self._watch = watch or Watch()
        self._connection = Connection(login)
        self._last_activity = self._clock.monotonic()
        self._dead = ""

    def handshake(self, timeout: int = _HANDSHAKE_TIMEOUT) -> ServerHello:
        """Log in and return the server's Hello.

        Raises ServerExceptionError where the server refuses, RemoteProtocolError where the peer is no ClickHouse
        server (the message names what it sent), ProbeError where nothing comes within `timeout` ns.
        """
        deadline = self._clock.monotonic() + timeout
        self._send(self._connection.hello_bytes(), deadline)
        seen = b""
        while True:
            chunk = self._receive(deadline)
            if chunk is None:
                raise self._no_hello(seen, f"within {format_duration(timeout)}")
            seen = (seen + chunk.data)[:_FIRST_BYTES]
            if not chunk.data:
                raise self._no_hello(seen, "and closed the connection")
            for packet in self._greeting(chunk, seen):
                if isinstance(packet, ServerException):
                    raise refusal(packet, self._connection.login.password)
                addendum = self._connection.addendum_bytes()
                if addendum:
                    self._send(addendum, deadline)
                return packet

    def run(self, query: str, *, settings: Mapping[str, str], index: int, timeout: int) -> Sample:
        """Run `query` and return what it took. An Exception of the server ends the query, not the session.

        `timeout` (ns) is for the whole answer. Raises BrokenAnswerError where the answer does not come to its end; the
        session is then over.
        """
        if self._dead:
            raise ProbeError(f"the connection is no longer usable: {self._dead}", hint="open a new one")
        client_before, server_before = self._watch.client(), self._watch.server()
        request = self._connection.query_bytes(query, settings=settings)
        sent = clocks.read(self._clock)
        answer = _Answer(index=index, sent=sent, idle=sent.monotonic - self._last_activity)
        try:
            self._send(request, sent.monotonic + timeout)
            self._collect(answer, timeout)
        except NetlabError as error:
            self._dead = error.what
            sample = self._sample(answer, client_before, server_before, void=error.what)
            raise BrokenAnswerError(error.what, sample, hint=error.hint) from error
        return self._sample(answer, client_before, server_before)

    def wait_idle(self, duration: int, *, tick: Callable[[int], None] | None = None) -> None:
        """Stay silent until `duration` ns have passed since the last byte either way.

        `tick` is called with what is left (ns), about every 100 ms. Raises ProbeError where the server closes
        meanwhile. Bytes that come unasked start the silence anew.
        """
        while (left := self._last_activity + duration - self._clock.monotonic()) > 0:
            if tick is not None:
                tick(left)
            if self._transport.wait_readable(min(left, _TICK)):
                self._unasked()

    def close(self) -> None:
        """Close the connection."""
        self._dead = self._dead or "it was closed"
        self._transport.close()

    def _collect(self, answer: _Answer, timeout: int) -> None:
        """Receive until the answer is over. Raises ProbeError."""
        deadline = answer.sent.monotonic + timeout
        while not answer.over:
            chunk = self._receive(deadline)
            if chunk is None:
                what = f"query {answer.index}: no end of the answer within {format_duration(timeout)}"
                raise ProbeError(f"{what} ({_progress(answer)})", hint=_NO_DATA_HINT)
            answer.bytes += len(chunk.data)
            if chunk.stamp is StampSource.PROCESS:
                answer.stamps = StampSource.PROCESS
            for event in self._connection.receive(chunk.data):
                answer.take(event, chunk.at)
            if not chunk.data:
                what = f"{self._transport.peer} closed the connection during query {answer.index}"
                raise ProbeError(f"{what} ({_progress(answer)})", hint="look into the server's log")

    def _sample(
        self, answer: _Answer, client_before: TcpInfo | None, server_before: TcpInfo | None, void: str | None = None
    ) -> Sample:
        after = clocks.read(self._clock)
        step = clocks.step_between(answer.sent, after)
        if step is not None and void is None:
            void = f"the wall clock was set by {format_duration(step)} while the query ran"
        return Sample(
            index=answer.index,
            sent_at=answer.sent.realtime,
            idle=answer.idle,
            first_row_at=answer.first_row_at,
            eos_at=answer.eos_at,
            rows=answer.rows,
            bytes=answer.bytes,
            arrivals=tuple(answer.arrivals),
            stamps=answer.stamps if answer.arrivals else StampSource.PROCESS,
            exception=answer.exception,
            client_before=client_before,
            client_after=self._watch.client(),
            server_before=server_before,
            server_after=self._watch.server(),
            void=void,
        )

    def _send(self, data: bytes, deadline: int) -> None:
        self._transport.send(data, max(deadline - self._clock.monotonic(), 0))
        self._last_activity = self._clock.monotonic()

    def _receive(self, deadline: int) -> Chunk | None:
        chunk = self._transport.receive(max(deadline - self._clock.monotonic(), 0))
        if chunk is not None:
            self._last_activity = self._clock.monotonic()
        return chunk

    def _greeting(self, chunk: Chunk, seen: bytes) -> list[ServerHello | ServerException]:
        try:
            packets = [event.packet for event in self._connection.receive(chunk.data)]
        except RemoteProtocolError as error:
            raise describe(self._transport.peer, self._more(seen)) from error
        return [packet for packet in packets if isinstance(packet, ServerHello | ServerException)]

    def _more(self, seen: bytes) -> bytes:
        """Return the first bytes of a stranger, waiting a moment for those that name it."""
        deadline = self._clock.monotonic() + _BANNER_WAIT
        while len(seen) < _FIRST_BYTES and (chunk := self._receive(deadline)) is not None and chunk.data:
            seen += chunk.data
        return seen[:_FIRST_BYTES]

    def _no_hello(self, seen: bytes, how: str) -> ProbeError:
        if seen:
            return describe(self._transport.peer, seen)
        hint = "a ClickHouse server answers a login at once: is this its native port (9000 by default)?"
        return RemoteProtocolError(f"{self._transport.peer} sent nothing {how}", hint=hint)

    def _unasked(self) -> None:
        """Take what came while no query ran. Raises ProbeError where it means the end."""
        chunk = self._receive(self._clock.monotonic())
        if chunk is None:
            return
        if not chunk.data:
            self._dead = f"{self._transport.peer} closed the connection while it was idle"
            raise ProbeError(self._dead, hint="the gap is longer than the server's idle_connection_timeout, or it died")
        for event in self._connection.receive(chunk.data):
            if isinstance(event.packet, ServerException):
                self._dead = "the server ended it"
                raise refusal(event.packet, self._connection.login.password)


def _progress(answer: _Answer) -> str:
    last = answer.arrivals[-1].kind.label if answer.arrivals else "nothing"
    return f"{len(answer.arrivals)} packets, {answer.rows} rows, {answer.bytes} bytes had come, {last} last"

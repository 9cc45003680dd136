"""One direction of a connection: bytes in, packets out, each with where it lies in the stream.

A packet is read by a chain of generators: chunks (54470) around the packet, compressed frames around its block, the
block's columns inside. Bytes go in as they come; the chain stops where they end and goes on there. What the two
directions must know of each other (revision, chunks, compression of the query in hand) is a `Link` that both share.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from netlab.errors import NetlabError, RemoteProtocolError
from netlab.native import client, revisions, server
from netlab.native.blocks import Dialect, Values
from netlab.native.client import Addendum, ClientHello, ClientMessage, Query
from netlab.native.compression import CompressionError, Method
from netlab.native.messages import CHUNKED, NOT_CHUNKED, ServerHello, ServerMessage
from netlab.native.types import UnsupportedError
from netlab.native.wire import Reader, Step
from netlab.wire import ClientPacket, ServerPacket


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A packet that was passed over unread: only its chunks told where it ends."""

    kind: ServerPacket | ClientPacket
    reason: str


Message: TypeAlias = ServerMessage | ClientMessage | Opaque


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One packet and where it lies in its direction's stream (bytes, `end` exclusive)."""

    packet: Message
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes on the wire, framing included."""
        return self.end - self.start

    @property
    def kind(self) -> ServerPacket | ClientPacket | None:
        """The packet's type; the addendum has none."""
        return None if isinstance(self.packet, Addendum) else self.packet.kind


@dataclass(slots=True, kw_only=True)
class Link:
    """What both directions of one connection agreed on so far. Each direction updates it as its packets pass."""

    client_revision: int | None = None
    server_revision: int | None = None
    client_chunked: bool = False  # from the client on
    server_chunked: bool = False
    compression: deque[bool] = field(default_factory=deque)  # of queries sent and not ended
    server_modes: tuple[str, str] = (NOT_CHUNKED, NOT_CHUNKED)  # what the server's Hello offers: sending, receiving
    newest: int = revisions.NEWEST

    @property
    def revision(self) -> int:
        """The revision that both speak. Raises UnsupportedError beyond what is read here."""
        assert self.client_revision is not None and self.server_revision is not None
        spoken = min(self.client_revision, self.server_revision)
        if spoken > self.newest:
            raise UnsupportedError(f"both ends speak revision {spoken}; packets are read up to {self.newest}")
        return spoken

    @property
    def method(self) -> Method | None:
        """Whether blocks are compressed now: any method will do for a reader."""
        return Method.LZ4 if self.compression and self.compression[0] else None

    def client_sent(self, packet: Message) -> None:
        """Take note of a packet from the client."""
        if isinstance(packet, ClientHello):
            self.client_revision = packet.revision
        elif isinstance(packet, Addendum):
            self.client_chunked = packet.send_mode == CHUNKED
            self.server_chunked = packet.receive_mode == CHUNKED
        elif isinstance(packet, Query):
            self.compression.append(packet.compression)

    def server_sent(self, packet: Message) -> None:
        """Take note of a packet from the server."""
        if isinstance(packet, ServerHello):
            self.server_revision = packet.revision
            self.server_modes = (packet.send_mode, packet.receive_mode)
        elif not isinstance(packet, Addendum) and packet.kind in _QUERY_ENDS and self.compression:
            self.compression.popleft()


_QUERY_ENDS = (ServerPacket.END_OF_STREAM, ServerPacket.EXCEPTION)


class Decoder:
    """The packets of one direction. Subclasses say what a packet is and when it can be read."""

    whose = ""

    def __init__(self, link: Link, values: Values = Values.SKIP) -> None:
        self.link = link
        self.values = values
        self.kind: ServerPacket | ClientPacket | None = None  # of the packet in hand, once its type is read
        self._reader = Reader()
        self._start = 0
        self._step: Step[Message] | None = None
        self._failed: NetlabError | None = None

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the stream."""
        self._reader.feed(data)

    def packets(self) -> Iterator[Event]:
        """Yield each packet that is now whole.

        Raises RemoteProtocolError at the first byte that is not the protocol, UnsupportedError or CompressionError
        where it uses what is not read here; nothing can be read after any of these.
        """
        while (event := self._next()) is not None:
            yield event

    @property
    def pending(self) -> int | None:
        """Where the packet in hand, or the one that failed, starts; None between packets."""
        inside = self._step is not None or self._failed is not None or self._reader.unread
        return self._start if inside else None

    @property
    def waiting(self) -> int:
        """Bytes that cannot be read before the other direction has gone on."""
        return self._reader.unread if self._step is None else 0

    @property
    def failed(self) -> NetlabError | None:
        """What stopped the decoder."""
        return self._failed

    @property
    def offset(self) -> int:
        """Where the next unread byte lies."""
        return self._reader.offset

    def finish(self) -> Iterator[Event]:
        """Take the end of the stream and yield the packets that only it made whole. Raises like `packets`."""
        self._reader.ended = True
        return self.packets()

    def end(self) -> None:
        """Raise RemoteProtocolError if the stream, which has ended, did so inside a packet."""
        if self._failed is None and self.pending is not None:
            kind = f" a {self.kind.label}" if self.kind is not None else " a"
            had = self._reader.offset + self._reader.unread - self._start
            raise RemoteProtocolError(f"{self.whose} closed the connection inside{kind} packet, {had} bytes into it")

    def _next(self) -> Event | None:
        if self._failed is not None:
            raise self._failed
        try:
            if self._step is None:
                self._start = self._reader.offset
                self.kind = None
                if not self._reader.unread or not self._ready():
                    return None
                self._step = self._read()
            next(self._step)
        except StopIteration as stop:
            self._step = None
            event = Event(packet=stop.value, start=self._start, end=self._reader.offset)
            self._passed(event.packet)
            return event
        except (RemoteProtocolError, UnsupportedError, CompressionError) as error:
            self._step = None
            kind = f"in {self.kind.label}, " if self.kind is not None else ""
            what = f"{self.whose}'s stream, {kind}byte {self._reader.offset}: {error.what}"
            self._failed = type(error)(what, hint=error.hint)
            raise self._failed from error
        return None

    def _ready(self) -> bool:
        """Whether enough is known of the other direction to read on."""
        raise NotImplementedError

    def _read(self) -> Step[Message]:
        """Read one packet with its framing."""
        raise NotImplementedError

    def _passed(self, packet: Message) -> None:
        """Take note of a whole packet."""
        raise NotImplementedError

    def _read_packet(self, reader: Reader) -> Step[Message]:
        """Read one packet without framing."""
        raise NotImplementedError

    def _read_chunked(self) -> Step[Message]:
        """Read one packet out of its chunks: sizes before pieces, a zero size after the last."""
        inner = Reader()
        step = self._read_packet(inner)
        packet: Message | None = None
        while size := (yield from self._reader.integer(4)):
            while size:
                piece = yield from self._reader.some(size)
                size -= len(piece)
                if isinstance(packet, Opaque):
                    continue
                if packet is not None:
                    raise RemoteProtocolError("bytes after the packet in its chunk")
                inner.feed(piece)
                packet = self._advance(step)
                if packet is not None and not isinstance(packet, Opaque) and inner.unread:
                    raise RemoteProtocolError("bytes after the packet in its chunk")
        inner.ended = True
        packet = packet or self._advance(step)
        if packet is None:
            raise RemoteProtocolError("the chunks end inside their packet")
        return packet

    def _advance(self, step: Step[Message]) -> Message | None:
        """Go on with a packet inside chunks; return it when it is whole."""
        try:
            next(step)
        except StopIteration as stop:
            packet: Message = stop.value
            return packet
        except (UnsupportedError, CompressionError) as error:
            if self.kind is None:
                raise
            return Opaque(kind=self.kind, reason=error.what)
        return None


class ServerDecoder(Decoder):
    """Packets from the server."""

    whose = "the server"

    def _ready(self) -> bool:
        return self.link.client_revision is not None

    def _read(self) -> Step[Message]:
        return self._read_chunked() if self.link.server_chunked else self._read_packet(self._reader)

    def _passed(self, packet: Message) -> None:
        self.link.server_sent(packet)

    def _read_packet(self, reader: Reader) -> Step[Message]:
        number = yield from reader.varuint()
        if number not in _SERVER_KINDS:
            raise RemoteProtocolError(f"no packet has type {number}")
        kind = self.kind = ServerPacket(number)
        if self.link.server_revision is None:
            if kind not in _BEFORE_HELLO:
                raise RemoteProtocolError(f"a {kind.label} packet before the handshake")
            dialect = Dialect(revision=self.link.client_revision or 0, values=self.values)
        elif kind is ServerPacket.HELLO:
            raise RemoteProtocolError("a second Hello")
        else:
            dialect = Dialect(revision=self.link.revision, compression=self.link.method, values=self.values)
        return (yield from server.read_body(reader, kind, dialect))


class ClientDecoder(Decoder):
    """Packets from the client, the addendum among them."""

    whose = "the client"

    def __init__(self, link: Link, values: Values = Values.SKIP, *, addendum_due: bool = True) -> None:
        super().__init__(link, values)
        self._addendum_due = addendum_due

    def _ready(self) -> bool:
        # What follows the client's Hello depends on the server's.
        return self.link.client_revision is None or self.link.server_revision is not None

    def _read(self) -> Step[Message]:
        if self.link.client_revision is not None and self._addendum_due:
            self._addendum_due = False
            if self.link.revision >= revisions.ADDENDUM:
                return client.read_addendum(self._reader, self.link.revision)
        return self._read_chunked() if self.link.client_chunked else self._read_packet(self._reader)

    def _passed(self, packet: Message) -> None:
        self.link.client_sent(packet)

    def _read_packet(self, reader: Reader) -> Step[Message]:
        number = yield from reader.varuint()
        if number not in _CLIENT_KINDS:
            raise RemoteProtocolError(f"no packet has type {number}")
        kind = self.kind = ClientPacket(number)
        if (kind is ClientPacket.HELLO) != (self.link.client_revision is None):
            raise RemoteProtocolError(f"a {kind.label} packet out of turn")
        method = Method.LZ4 if self.link.compression and self.link.compression[-1] else None
        revision = 0 if self.link.client_revision is None else self.link.revision
        dialect = Dialect(revision=revision, compression=method, values=self.values)
        return (yield from client.read_body(reader, kind, dialect))


_SERVER_KINDS = frozenset(int(kind) for kind in ServerPacket)
_CLIENT_KINDS = frozenset(int(kind) for kind in ClientPacket)
_BEFORE_HELLO = (ServerPacket.HELLO, ServerPacket.EXCEPTION, ServerPacket.SSH_CHALLENGE)

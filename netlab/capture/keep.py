"""What a redacted capture keeps of payloads, so that a diagnosis reads it as before: the shape, not the words.

Of ClickHouse Native, packets of the same type and size (`native.disguise`); of TLS, record heads; of PostgreSQL, heads
of messages. All else is plain filler. Only connections whose beginning was captured keep their shape.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol

from netlab.analysis.labels import Reassembler
from netlab.analysis.native import native_labeller
from netlab.capture.redact import StreamOffsets, plain_filler
from netlab.native.disguise import Disguise, Piece
from netlab.segments import Direction, Endpoint, Flag, Segment

_MOST_KEPT = 256 << 20  # bytes over all connections
_PIECE = 100  # what a piece costs beside its bytes
_TLS_HANDSHAKE = b"\x16\x03"
_LONGEST_HEAD = 8
_TLS_TYPES = range(0x14, 0x18)
_POSTGRES = frozenset({b"\x00\x03\x00\x00", b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"})

Pair = tuple[Endpoint, Endpoint]


class Shape(Protocol):
    """Bytes of one connection in, what is kept of them out."""

    def feed(self, direction: Direction, data: bytes) -> Iterable[Piece]:
        """Take the next bytes of one direction."""


class _Heads:
    """Keeps the head of each message of one stream, as `measure` finds them."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction
        self._buffer = b""
        self._at = 0  # where the buffer lies in the stream
        self._skip = 0
        self._lost = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Take the next bytes; yield the heads that are whole now."""
        if self._lost:
            return
        self._buffer += data
        position = 0
        while True:
            passed = min(self._skip, len(self._buffer) - position)
            position += passed
            self._skip -= passed
            start = self._buffer[position : position + _LONGEST_HEAD]
            found = self.measure(start) if start and not self._skip else None
            if found is None:
                break
            head, body = found
            if body < 0:
                self._lost = True
                break
            place = self._at + position
            yield Piece(self._direction, place, place + head, start[:head])
            self._skip = head + body
        self._buffer = self._buffer[position:]
        self._at += position

    def measure(self, data: bytes) -> tuple[int, int] | None:
        """Return the sizes of the head with which `data` begins and of what follows it; None for too few bytes.

        A negative size says that this is no head.
        """
        raise NotImplementedError


class _TlsRecords(_Heads):
    def measure(self, data: bytes) -> tuple[int, int] | None:
        if len(data) < 5:
            return None
        return (5, int.from_bytes(data[3:5])) if data[0] in _TLS_TYPES and data[1] == 3 else (0, -1)


class _PostgresMessages(_Heads):
    """The client's: a start-up message without a type first, or a request for encryption and then one."""

    started = False

    def measure(self, data: bytes) -> tuple[int, int] | None:
        if len(data) < (5 if self.started else _LONGEST_HEAD):
            return None
        if self.started:
            return 5, int.from_bytes(data[1:5]) - 4
        if data[4:8] not in _POSTGRES:
            return 0, -1
        self.started = data[4:8] == b"\x00\x03\x00\x00"
        return 8, int.from_bytes(data[:4]) - 8


class _Tls:
    def __init__(self) -> None:
        self._streams = {direction: _TlsRecords(direction) for direction in Direction}

    def feed(self, direction: Direction, data: bytes) -> Iterable[Piece]:
        return self._streams[direction].feed(data)


class _Postgres:
    def __init__(self) -> None:
        self._client = _PostgresMessages(Direction.TO_SERVER)

    def feed(self, direction: Direction, data: bytes) -> Iterable[Piece]:
        return self._client.feed(data) if direction is Direction.TO_SERVER else ()


def _shape(first: bytes) -> Shape | None:
    """Return the shape of a connection by the client's first bytes."""
    if first.startswith(_TLS_HANDSHAKE):
        return _Tls()
    if first[4:8] in _POSTGRES:
        return _Postgres()
    return Disguise() if native_labeller(first, complete=True) is not None else None


class _Connection:
    def __init__(self, client: Endpoint, server: Endpoint, seq: int) -> None:
        self.pairs = {Direction.TO_SERVER: (client, server), Direction.TO_CLIENT: (server, client)}
        self.seq = seq
        self.shape: Shape | None = None
        self.sniffed = False
        self.streams = {direction: Reassembler() for direction in Direction}
        for stream in self.streams.values():
            stream.first = 0

    def feed(self, direction: Direction, start: int, segment: Segment) -> Iterable[Piece]:
        data = self.streams[direction].feed(start, segment.payload, segment.length)
        if not data:
            return ()
        if not self.sniffed and direction is Direction.TO_SERVER:
            self.sniffed = True
            self.shape = _shape(data)
        return self.shape.feed(direction, data) if self.shape is not None else ()


class KeptShape:
    """Learns from a capture's segments what to keep; then it is the filler of its redaction."""

    def __init__(self) -> None:
        self._offsets = StreamOffsets()
        self._connections: dict[Pair, tuple[_Connection, Direction]] = {}
        self._reused: set[Pair] = set()
        self._kept: dict[Pair, list[Piece]] = {}
        self._room = _MOST_KEPT

    def learn(self, segments: Iterable[Segment]) -> None:
        """Take all segments of the capture."""
        for segment in segments:
            pair = (segment.source, segment.destination)
            start = self._offsets.offset(segment)
            if segment.flags & Flag.SYN:
                if not segment.flags & Flag.ACK:
                    self._begin(pair, segment.seq)
                continue
            found = self._connections.get(pair)
            if found is None or not segment.length or self._room <= 0:
                continue
            connection, direction = found
            for piece in connection.feed(direction, start, segment):
                self._kept.setdefault(connection.pairs[piece.direction], []).append(piece)
                self._room -= len(piece.head) + _PIECE

    def _begin(self, pair: Pair, seq: int) -> None:
        known = self._connections.get(pair)
        back = (pair[1], pair[0])
        if known is not None:
            if known[0].seq != seq:
                # One pair of ports, two connections: offsets alone do not tell them apart.
                for each in (pair, back):
                    self._reused.add(each)
                    self._kept.pop(each, None)
                    self._connections.pop(each, None)
            return
        if pair in self._reused:
            return
        connection = _Connection(*pair, seq)
        self._connections[pair] = (connection, Direction.TO_SERVER)
        self._connections[back] = (connection, Direction.TO_CLIENT)

    def fill(self, source: Endpoint, destination: Endpoint, start: int, stop: int) -> bytes:
        """Return what stands at `start` to `stop` of that direction's stream: a Filler."""
        made = bytearray(plain_filler(source, destination, start, stop))
        pieces = self._kept.get((source, destination), ())
        at = max(0, bisect_right(pieces, start, key=lambda piece: piece.start) - 1)
        while at < len(pieces) and pieces[at].start < stop:
            _lay(made, start, pieces[at])
            at += 1
        return bytes(made)


def _lay(made: bytearray, start: int, piece: Piece) -> None:
    """Put the part of `piece` that overlaps with `made`, which begins at `start`, in its place."""
    low, high = max(piece.start, start), min(piece.end, start + len(made))
    if low < high:
        held = piece.head[low - piece.start : high - piece.start]
        made[low - start : high - start] = held.ljust(high - low, b"\0")

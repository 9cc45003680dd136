"""Packets that stand for others: same type, same size, same place in the stream, and nothing of what they said.

What decides how a stream is read on stays (revisions, chunks, compression, an error's code, whether a block has rows),
and so do the counters of Progress and ProfileInfo. Texts, values, names and types do not.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from netlab.errors import RemoteProtocolError
from netlab.native import client, server, wire
from netlab.native.blocks import Block, Column, Dialect
from netlab.native.client import Addendum, ClientBlock, ClientHello, ClientSignal, ClientText, Query
from netlab.native.client_info import ClientInfo
from netlab.native.compression import CompressionError, Method
from netlab.native.connection import chunk
from netlab.native.messages import (
    CHUNKED,
    NOT_CHUNKED,
    PartUUIDs,
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerHello,
    ServerSignal,
    ServerText,
    TableColumns,
)
from netlab.native.stream import ClientDecoder, Decoder, Event, Link, Message, ServerDecoder
from netlab.native.types import UnsupportedError
from netlab.segments import Direction

_CHUNK = 8  # a size before the packet, and a zero after it
_ADDRESS = ClientInfo().address
# Its checksum is worked out in plain Python.
_LARGEST_COMPRESSED = 4 << 20
# (padding, slack) -> a message with a text or a column of `padding` bytes, and with another text of `slack`.
_Build = Callable[[int, int], Message]


class Piece(NamedTuple):
    """What stands at bytes `start` to `end` of one direction: `head`, then zeros."""

    direction: Direction
    start: int
    end: int
    head: bytes


class Disguise:
    """The stand-ins for one connection's packets, as its bytes come. The capture holds its beginning."""

    def __init__(self) -> None:
        self._link = Link()
        self._decoders: dict[Direction, Decoder] = {
            Direction.TO_SERVER: ClientDecoder(self._link),
            Direction.TO_CLIENT: ServerDecoder(self._link),
        }
        self._ended: set[Direction] = set()

    def feed(self, direction: Direction, data: bytes) -> Iterator[Piece]:
        """Take the next bytes of one direction; yield stand-ins for the packets that are whole now, of either.

        After the first packet for which there is none, its direction yields nothing more.
        """
        if direction not in self._ended:
            self._decoders[direction].feed(data)
        other = Direction.TO_CLIENT if direction is Direction.TO_SERVER else Direction.TO_SERVER
        # A Hello of one side lets the other go on, whose bytes may have come first.
        for turn in (direction, other, direction):
            yield from self._drain(turn)

    def _drain(self, direction: Direction) -> Iterator[Piece]:
        if direction in self._ended:
            return
        try:
            for event in self._decoders[direction].packets():
                made = self._stand_in(direction, event)
                if made is None:
                    break
                yield Piece(direction, event.start, event.end, made.rstrip(b"\0"))
            else:
                return
        except (RemoteProtocolError, UnsupportedError, CompressionError):
            pass
        self._ended.add(direction)

    def _stand_in(self, direction: Direction, event: Event) -> bytes | None:
        link, packet = self._link, event.packet
        up = direction is Direction.TO_SERVER
        framed = link.client_chunked if up else link.server_chunked
        if isinstance(packet, Addendum):
            framed = False  # chunks begin after it
        compressed = (link.compression[-1] if up else link.compression[0]) if link.compression else False
        known = None not in (link.client_revision, link.server_revision) and not isinstance(packet, ServerHello)
        revision = link.revision if known else link.client_revision or 0
        dialect = Dialect(revision=revision, compression=Method.NONE if compressed else None)
        if compressed and event.size > _LARGEST_COMPRESSED:
            return None
        made = stand_in(packet, event.size - _CHUNK * framed, dialect)
        return chunk(made) if made is not None and framed else made


def stand_in(packet: Message, size: int, dialect: Dialect) -> bytes | None:
    """Return a packet like `packet` in exactly `size` bytes, without framing; None where there is none."""
    for build, least in _builders(packet):
        for slack in (0, 1):
            made = _fitted(build, least, slack, size, dialect)
            if made is not None:
                return made
    return None


def _fitted(build: _Build, least: int, slack: int, size: int, dialect: Dialect) -> bytes | None:
    base = len(_encode(build(least, slack), dialect)) - least
    # A number of `padding` stands before the padding, and grows with it.
    for longer in range(6):
        padding = size - base - longer
        if padding >= least and len(wire.varuint(padding)) == 1 + longer:
            made = _encode(build(padding, slack), dialect)
            return made if len(made) == size else None
    return None


def _encode(message: Message, dialect: Dialect) -> bytes:
    if isinstance(message, Addendum | ClientHello | Query | ClientBlock | ClientText | ClientSignal):
        return client.encode(message, dialect)
    assert isinstance(message, _SERVERS)
    return server.encode(message, dialect)


_SERVERS = (
    ServerHello, ServerBlock, ServerException, Progress, ProfileInfo, TableColumns, ServerText, PartUUIDs, ServerSignal,
)  # fmt: skip


def _x(count: int) -> str:
    return "x" * count


def _builders(packet: Message) -> Iterator[tuple[_Build, int]]:
    """Yield ways to build what stands for `packet`, the best first, each with the least padding it takes."""
    match packet:
        case ServerBlock() | ClientBlock():
            if not packet.block.opaque:
                yield from _blocks(packet)
        case Query():
            info = ClientInfo(query_kind=packet.info.query_kind, revision=packet.info.revision)
            for address in (_ADDRESS, ""):
                yield _query(packet, replace(info, address=address)), 0
        case ClientHello():
            name = _x(min(max(len(packet.name), 2), 64))
            yield lambda n, s: replace(packet, name=name, database=_x(n), user=_x(s), password=""), 0
        case ServerHello():
            yield lambda n, s: replace(_bare(packet), display_name=_x(n), timezone=_x(s)), 0
            # Before it had a display name.
            yield lambda n, s: replace(_bare(packet), name=_x(n), timezone=_x(s)), 0
        case Addendum():
            sending, receiving = _mode(packet.send_mode), _mode(packet.receive_mode)
            yield lambda n, s: replace(packet, quota_key=_x(n), send_mode=sending, receive_mode=receiving), 0
        case ServerException():
            yield lambda n, s: ServerException(code=packet.code, name=_x(s), message=_x(n)), 0
        case TableColumns():
            yield lambda n, s: TableColumns(table=_x(s), description=_x(n)), 0
        case ServerText() | ClientText():
            yield lambda n, s: replace(packet, text=_x(n)), 0
        case PartUUIDs():
            yield lambda n, s: PartUUIDs(parts=(bytes(16),) * n), 0
        case Progress() | ProfileInfo() | ServerSignal() | ClientSignal():
            yield lambda n, s: packet, 0


def _bare(packet: ServerHello) -> ServerHello:
    sending, receiving = _mode(packet.send_mode), _mode(packet.receive_mode)
    plain = replace(packet, name="", display_name="", timezone="", send_mode=sending, receive_mode=receiving)
    return replace(plain, password_rules=(), nonce=0, settings=())


def _mode(text: str) -> str:
    return text if text.removesuffix("_optional") in {CHUNKED, NOT_CHUNKED} else ""


def _query(packet: Query, info: ClientInfo) -> _Build:
    return lambda n, s: Query(
        query_id=_x(s), info=info, stage=packet.stage, compression=packet.compression, sql=_x(n)
    )  # fmt: skip


def _blocks(packet: ServerBlock | ClientBlock) -> Iterator[tuple[_Build, int]]:
    def with_rows(rows: int, slack: int) -> Message:
        column = Column(name=_x(slack), type="UInt8", values=bytes(rows))
        return replace(packet, table="", block=Block(columns=(column,), rows=rows))

    def without_rows(padding: int, slack: int) -> Message:
        column = Column(name=_x(padding), type="UInt8", values=())
        return replace(packet, table=_x(slack), block=Block(columns=(column,), rows=0))

    def empty(padding: int, slack: int) -> Message:
        return replace(packet, table=_x(padding), block=Block())

    if packet.rows:
        yield with_rows, 1
    elif packet.block.columns:
        yield without_rows, 0
    else:
        yield empty, 0

"""The bytes of a write train's packets: valid blocks, padded to the size that the train asks for."""

from collections.abc import Sequence
from typing import Any

from netlab.errors import UsageError
from netlab.native import server
from netlab.native.blocks import Block, Column, Dialect
from netlab.native.connection import chunk
from netlab.native.messages import (
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerMessage,
    ServerSignal,
    ServerText,
    TableColumns,
)
from netlab.servers.scripted_train import Part, Send
from netlab.wire import ServerPacket

_HOST = "netlab"
_LONGEST_VARUINT = 9
_FIXED = {"UInt8": 8, "UInt16": 16, "UInt32": 32, "UInt64": 64, "Int8": 7, "Int16": 15, "Int32": 31, "Int64": 63}
_EVENT_TYPES = "Enum8('increment' = 1, 'gauge' = 2)"
# What a packet that is named without details carries.
_USUAL_ROWS = {Part.DATA: 1, Part.TOTALS: 1, Part.EXTREMES: 2, Part.LOG: 1}
_USUAL_EVENT = 48  # bytes a row of ProfileEvents takes on real servers, its name included
# From which revision on a server sends it.
_GATES = {Part.LOG: 54406, Part.TABLE_COLUMNS: 54410, Part.PROFILE_EVENTS: 54451, Part.TIMEZONE_UPDATE: 54464}
_BLOCKS = {
    Part.HEADER: ServerPacket.DATA,
    Part.DATA: ServerPacket.DATA,
    Part.TOTALS: ServerPacket.TOTALS,
    Part.EXTREMES: ServerPacket.EXTREMES,
    Part.EMPTY_DATA: ServerPacket.DATA,
    Part.PROFILE_EVENTS: ServerPacket.PROFILE_EVENTS,
    Part.LOG: ServerPacket.LOG,
}


class Packets:
    """Makes one answer's packets for one client. Rows are numbered on from packet to packet."""

    def __init__(self, columns: tuple[tuple[str, str], ...], dialect: Dialect, *, chunked: bool = False) -> None:
        self._columns = columns
        self._dialect = dialect
        self._chunked = chunked
        self._rows_sent = 0

    def knows(self, part: Part) -> bool:
        """Whether the client's revision has this packet."""
        return self._dialect.revision >= _GATES.get(part, 0)

    def encode(self, send: Send) -> bytes:
        """Return the packet. Raises UsageError for values that do not fit the columns."""
        if send.part is Part.OPAQUE:
            return opaque(send)
        if send.part in _BLOCKS:
            message: ServerMessage = ServerBlock(kind=_BLOCKS[send.part], block=self._block(send))
        else:
            message = self._plain(send)
        encoded = server.encode(message, self._dialect)
        return chunk(encoded) if self._chunked else encoded

    def _plain(self, send: Send) -> ServerMessage:
        match send.part:
            case Part.PROGRESS:
                rows = self._rows_sent if send.rows is None else send.rows
                return Progress(rows=rows, bytes=8 * rows, total_rows=rows, elapsed=send.elapsed)
            case Part.PROFILE_INFO:
                rows = self._rows_sent if send.rows is None else send.rows
                return ProfileInfo(rows=rows, blocks=1, bytes=4104, calculated_rows_before_limit=True)
            case Part.TABLE_COLUMNS:
                lines = "".join(f"`{name}` {kind}\n" for name, kind in self._columns)
                return TableColumns(description=f"columns format version: 1\n{len(self._columns)} columns:\n{lines}")
            case Part.TIMEZONE_UPDATE:
                return ServerText(kind=ServerPacket.TIMEZONE_UPDATE, text=send.text or "UTC")
            case Part.EXCEPTION:
                text = send.text or "the train ends in an exception"
                return ServerException(code=send.code or 1, name="DB::Exception", message=f"DB::Exception: {text}")
        return ServerSignal(kind=ServerPacket.END_OF_STREAM)

    def _block(self, send: Send) -> Block:
        match send.part:
            case Part.EMPTY_DATA:
                return Block()
            case Part.HEADER:
                return Block(columns=tuple(Column(name=name, type=kind, values=()) for name, kind in self._columns))
            case Part.PROFILE_EVENTS:
                return self._padded(_events, send)
            case Part.LOG:
                return self._padded(lambda rows, texts: _log_rows(rows, texts, send.text), send)
        if send.values:
            self._rows_sent += len(send.values)
            return self._given_rows(send)
        block = self._padded(self._numbered_rows, send)
        self._rows_sent += block.rows
        return block

    def _given_rows(self, send: Send) -> Block:
        width = len(self._columns)
        if any(len(row) != width for row in send.values):
            raise UsageError(f"each row of values needs {width} of them", hint="one for each of the columns")
        turned = list(zip(*send.values, strict=True))
        columns = [Column(name=name, type=kind, values=turned[at]) for at, (name, kind) in enumerate(self._columns)]
        return Block(columns=tuple(columns), rows=len(send.values))

    def _numbered_rows(self, rows: int, texts: Sequence[str] | None) -> Block:
        columns = []
        for name, kind in self._columns:
            numbers = range(self._rows_sent, self._rows_sent + rows)
            values: Sequence[Any]
            if kind == "String":
                values = texts if texts is not None else [f"row {number}" for number in numbers]
            elif kind == "Float64":
                values = [float(number) for number in numbers]
            else:
                values = [number % (1 << _FIXED[kind]) for number in numbers]
            columns.append(Column(name=name, type=kind, values=values))
        return Block(columns=tuple(columns), rows=rows)

    def _padded(self, make: Any, send: Send) -> Block:
        """Return a block of `send.rows` rows whose packet is `send.size` bytes, as nearly as its columns allow."""
        rows = send.rows if send.rows is not None else _USUAL_ROWS.get(send.part)
        if send.size is None:
            usual: Block = make(20 if rows is None else rows, None)
            return usual
        target = send.size - (8 if self._chunked else 0)
        if send.rows is None:
            rows = self._fitting_rows(make, send.part, target)
        texts = self._string_columns(send.part)
        if not rows or not texts:
            plain: Block = make(rows, None)
            return plain
        bare = self._size(make(rows, [""] * rows), send.part)
        padding = spread(target - bare + rows * texts, rows, texts)
        padded: Block = make(rows, padding)
        return padded

    def _fitting_rows(self, make: Any, part: Part, target: int) -> int:
        """Return how many rows make a packet of `target` bytes look natural."""
        empty, one = self._size(make(0, []), part), self._size(make(1, [""]), part)
        if part is Part.PROFILE_EVENTS:
            return max(1, round((target - empty) / _USUAL_EVENT))
        if self._string_columns(part):
            return 1
        return max(1, (target - empty) // max(1, one - empty))

    def _string_columns(self, part: Part) -> int:
        if part in (Part.LOG, Part.PROFILE_EVENTS):
            return 1
        return sum(kind == "String" for _, kind in self._columns)

    def _size(self, block: Block, part: Part) -> int:
        return len(server.encode(ServerBlock(kind=_BLOCKS[part], block=block), self._dialect))


def opaque(send: Send) -> bytes:
    """Return a step's opaque bytes: its text, padded to its size."""
    text = send.text.encode()
    if send.size is None:
        return text
    return text[: send.size] + b"." * (send.size - len(text))


def spread(size: int, count: int, columns: int = 1) -> list[str]:
    """Return `count` texts whose Strings take `size` bytes in all, or a few less; each stands in `columns` columns."""
    each = max(0, size // columns)
    low, high = 0, each
    while low < high:  # the most characters that fit: a length of 128 and more takes another byte
        middle = (low + high + 1) // 2
        if _strings_size(middle, count) <= each:
            low = middle
        else:
            high = middle - 1
    base, more = divmod(low, count)
    return ["x" * (base + (at < more)) for at in range(count)]


def _strings_size(characters: int, count: int) -> int:
    base, more = divmod(characters, count)
    return characters + more * _varuint_size(base + 1) + (count - more) * _varuint_size(base)


def _varuint_size(value: int) -> int:
    return next(size for size in range(1, _LONGEST_VARUINT + 1) if value < 1 << 7 * size)


def _events(rows: int, names: Sequence[str] | None) -> Block:
    names = [f"Event{at:02}" for at in range(rows)] if names is None else names
    columns = (
        ("host_name", "String", [_HOST] * rows),
        ("current_time", "DateTime", [1] * rows),
        ("thread_id", "UInt64", [0] * rows),
        ("type", _EVENT_TYPES, ["increment"] * rows),
        ("name", "String", names),
        ("value", "Int64", list(range(rows))),
    )
    return Block(columns=tuple(Column(name=n, type=t, values=v) for n, t, v in columns), rows=rows)


def _log_rows(rows: int, texts: Sequence[str] | None, text: str) -> Block:
    columns = (
        ("event_time", "DateTime", [1] * rows),
        ("event_time_microseconds", "UInt32", [0] * rows),
        ("host_name", "String", [_HOST] * rows),
        ("query_id", "String", [""] * rows),
        ("thread_id", "UInt64", [1] * rows),  # 0 reads as "absent" to clickhouse-driver
        ("priority", "Int8", [8] * rows),
        ("source", "String", ["executeQuery"] * rows),
        ("text", "String", [text or "a line of the log"] * rows if texts is None else texts),
    )
    return Block(columns=tuple(Column(name=n, type=t, values=v) for n, t, v in columns), rows=rows)

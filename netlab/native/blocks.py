"""Blocks: the table-shaped body of Data, Totals, Extremes, Log and ProfileEvents, read and written.

Layout: ClickHouse src/Formats/NativeReader.cpp, src/Core/BlockInfo.cpp.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from netlab.errors import RemoteProtocolError, UsageError
from netlab.native import revisions, wire
from netlab.native.columns import Codec, Tuples
from netlab.native.compression import METHOD_AT, Method, can_decompress, compress, pass_frames, read_compressed
from netlab.native.low_cardinality import Sparse
from netlab.native.types import UnsupportedError, codec
from netlab.native.wire import MAX_COLUMNS, MAX_LIST, MAX_ROWS, Reader, Step

_KIND_DEFAULT = 0
_KIND_SPARSE = 1


class Values(Enum):
    """What becomes of the values in blocks."""

    SKIP = "skip"  # passed over as they stream by: memory stays flat whatever the block's size
    READ = "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How the two ends of a connection talk at this moment."""

    revision: int  # min(client's, server's)
    compression: Method | None = None  # of blocks; reading takes any method, writing uses this one
    values: Values = Values.SKIP


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a block. `values` is None where they were passed over."""

    name: str
    type: str
    values: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block: `rows` rows of `columns`. No columns: the end of a stream of blocks."""

    columns: tuple[Column, ...] = ()
    rows: int = 0
    overflows: bool = False
    bucket: int = -1
    out_of_order_buckets: tuple[int, ...] = field(default=())
    opaque: bool = False  # compressed by a method that cannot be read here: columns and rows are not known


def read_block(reader: Reader, dialect: Dialect) -> Step[Block]:
    """Read a block, through its compression where there is one.

    Raises RemoteProtocolError, and UnsupportedError for a column whose layout is not known here.
    """
    if dialect.compression is None:
        return (yield from _read_plain(reader, dialect))
    if dialect.values is Values.SKIP:
        head = yield from reader.peek(METHOD_AT + 1)
        if len(head) > METHOD_AT and head[METHOD_AT] in set(Method) and not can_decompress(Method(head[METHOD_AT])):
            yield from pass_frames(reader)
            return Block(opaque=True)
    return (yield from read_compressed(reader, lambda inner: _read_plain(inner, dialect)))


def encode_block(block: Block, dialect: Dialect) -> bytes:
    """Encode `block`, all of whose columns have values. Raises UsageError for a value that does not fit its type."""
    out = [_encode_info(block, dialect.revision), wire.varuint(len(block.columns)), wire.varuint(block.rows)]
    for column in block.columns:
        out += [wire.string(column.name), wire.string(column.type)]
        if dialect.revision >= revisions.CUSTOM_SERIALIZATION:
            out.append(b"\0")
        if block.rows:
            out.append(_encode_values(column, block.rows, dialect.revision))
    body = b"".join(out)
    return body if dialect.compression is None else compress(body, dialect.compression)


def _read_plain(reader: Reader, dialect: Dialect) -> Step[Block]:
    overflows, bucket, out_of_order = yield from _read_info(reader)
    width = yield from reader.count("a block's number of columns", MAX_COLUMNS)
    rows = yield from reader.count("a block's number of rows", MAX_ROWS)
    columns = []
    for _ in range(width):
        columns.append((yield from _read_column(reader, rows, dialect)))
    return Block(
        columns=tuple(columns),
        rows=rows,
        overflows=overflows,
        bucket=bucket,
        out_of_order_buckets=out_of_order,
    )


def _read_info(reader: Reader) -> Step[tuple[bool, int, tuple[int, ...]]]:
    overflows, bucket = False, -1
    out_of_order: tuple[int, ...] = ()
    seen = 0
    while number := (yield from reader.varuint()):
        if number <= seen:
            raise RemoteProtocolError(f"BlockInfo repeats field {number}")
        seen = number
        if number == 1:
            overflows = yield from reader.flag()
        elif number == 2:
            bucket = yield from reader.integer(4, signed=True)
        elif number == 3:
            count = yield from reader.count("a list of buckets", MAX_LIST)
            out_of_order = struct.unpack(f"<{count}i", (yield from reader.take(4 * count)))
        else:
            raise RemoteProtocolError(f"BlockInfo has an unknown field {number}")
    return overflows, bucket, out_of_order


def _encode_info(block: Block, revision: int) -> bytes:
    out = b"\x01" + wire.flag(block.overflows) + b"\x02" + wire.integer(block.bucket, 4, signed=True)
    if revision >= revisions.OUT_OF_ORDER_BUCKETS:
        buckets = block.out_of_order_buckets
        out += b"\x03" + wire.varuint(len(buckets)) + struct.pack(f"<{len(buckets)}i", *buckets)
    return out + b"\x00"


def _read_column(reader: Reader, rows: int, dialect: Dialect) -> Step[Column]:
    name = yield from reader.string()
    type_name = yield from reader.string()
    offsets = dialect.revision >= revisions.STRING_OFFSETS
    layout: Codec | None = codec(type_name, offsets=offsets) if rows else None
    if dialect.revision >= revisions.CUSTOM_SERIALIZATION and (yield from reader.flag()):
        layout = yield from _read_kinds(reader, codec(type_name, offsets=offsets))
    if layout is None or not rows:
        return Column(name=name, type=type_name, values=() if dialect.values is Values.READ else None)
    yield from layout.read_prefix(reader)
    if dialect.values is Values.SKIP:
        yield from layout.skip(reader, rows)
        return Column(name=name, type=type_name)
    return Column(name=name, type=type_name, values=(yield from layout.read(reader, rows)))


def _read_kinds(reader: Reader, plain: Codec) -> Step[Codec]:
    """Read which columns are sparse: a byte for the column, and one for each element of a Tuple."""
    kind = yield from reader.byte()
    if kind not in {_KIND_DEFAULT, _KIND_SPARSE}:
        raise UnsupportedError(f"a column's serialization of kind {kind} is not read here")
    layout = plain
    if isinstance(plain, Tuples):
        inners = []
        for inner in plain.inners:
            inners.append((yield from _read_kinds(reader, inner)))
        layout = Tuples(inners)
    return Sparse(layout) if kind == _KIND_SPARSE else layout


def _encode_values(column: Column, rows: int, revision: int) -> bytes:
    if column.values is None or len(column.values) != rows:
        raise UsageError(f"column {column.name}: a block of {rows} rows needs as many values")
    layout = codec(column.type, offsets=revision >= revisions.STRING_OFFSETS)
    try:
        return layout.write_prefix() + layout.write(column.values)
    except (struct.error, TypeError, ValueError, OverflowError, KeyError, AttributeError, ArithmeticError) as error:
        raise UsageError(f"column {column.name}: a value does not fit {column.type}: {error}") from error

"""Columns that store values by reference: LowCardinality (a dictionary and indices) and sparse columns.

Layout: ClickHouse src/DataTypes/Serializations/SerializationLowCardinality.cpp, SerializationSparse.cpp.
"""

import struct
from collections.abc import Sequence
from typing import Any

from netlab.errors import RemoteProtocolError
from netlab.native import wire
from netlab.native.columns import Codec, Nullable
from netlab.native.wire import MAX_ROWS, MAX_STRING, Reader, Step, bounded

_VERSION = 1  # SharedDictionariesWithAdditionalKeys, the only one there is
_GLOBAL_DICTIONARY = 1 << 8  # never in the Native protocol
_ADDITIONAL_KEYS = 1 << 9
_UPDATE_DICTIONARY = 1 << 10
_INDEX_CODES = "BHIQ"

_END_OF_GRANULE = 1 << 62
_MAX_SPARSE_ROWS = 1 << 24  # a sparse column costs nothing on the wire: rows read into a list need a limit of their own


class LowCardinality:
    """LowCardinality: a dictionary, then an index a row. Index 0 of a Nullable dictionary is NULL."""

    def __init__(self, inner: Codec) -> None:
        self.nullable = isinstance(inner, Nullable)
        self.keys: Codec = inner.inner if isinstance(inner, Nullable) else inner
        self.default = inner.default

    def read_prefix(self, reader: Reader) -> Step[None]:
        version = yield from reader.integer(8)
        if version != _VERSION:
            raise RemoteProtocolError(f"a LowCardinality column of version {version}, expected {_VERSION}")

    def _read_head(self, reader: Reader) -> Step[tuple[str, int]]:
        """Read the flags and the dictionary's size; return the indices' struct code and that size."""
        flags = yield from reader.integer(8)
        if flags & 0xFF >= len(_INDEX_CODES) or not flags & _ADDITIONAL_KEYS or flags & _GLOBAL_DICTIONARY:
            raise RemoteProtocolError(f"a LowCardinality column with flags {flags:#x}")
        keys = bounded((yield from reader.integer(8)), "a dictionary's size", MAX_ROWS)
        return _INDEX_CODES[flags & 0xFF], keys

    def _read_part(self, reader: Reader, left: int) -> Step[int]:
        """Read how many rows the indices are for, of `left` rows still to come."""
        part = yield from reader.integer(8)
        if not 0 < part <= left:
            raise RemoteProtocolError(f"a LowCardinality column with {part} indices for {left} rows")
        return part

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        while rows:
            code, keys = yield from self._read_head(reader)
            yield from self.keys.skip(reader, keys)
            part = yield from self._read_part(reader, rows)
            yield from reader.skip(part * struct.calcsize("<" + code))
            rows -= part

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        out: list[Any] = []
        while len(out) < rows:
            code, count = yield from self._read_head(reader)
            keys = yield from self.keys.read(reader, count)
            if self.nullable and keys:
                keys[0] = None
            part = yield from self._read_part(reader, rows - len(out))
            size = bounded(part * struct.calcsize("<" + code), "a column's size", MAX_STRING)
            indices = struct.unpack(f"<{part}{code}", (yield from reader.take(size)))
            if max(indices) >= len(keys):
                raise RemoteProtocolError(f"a LowCardinality index {max(indices)} for {len(keys)} keys")
            out.extend([keys[index] for index in indices])
        return out

    def write_prefix(self) -> bytes:
        return wire.integer(_VERSION, 8)

    def write(self, values: Sequence[Any]) -> bytes:
        if not values:
            return b""
        # The server itself puts the type's default first, whether or not a row has it.
        keys: dict[Any, int] = {None if self.nullable else self.keys.default: 0}
        indices = [keys.setdefault(value, len(keys)) for value in values]
        code = next(at for at, letter in enumerate(_INDEX_CODES) if len(keys) <= 1 << 8 * struct.calcsize("<" + letter))
        head = wire.integer(code | _ADDITIONAL_KEYS | _UPDATE_DICTIONARY, 8) + wire.integer(len(keys), 8)
        written = self.keys.write([self.keys.default if key is None else key for key in keys])
        packed = struct.pack(f"<{len(indices)}{_INDEX_CODES[code]}", *indices)
        return head + written + wire.integer(len(indices), 8) + packed


class Sparse:
    """A sparse column: how many defaults lie before each other value, then those values."""

    def __init__(self, inner: Codec) -> None:
        self.inner = inner
        self.default = inner.default

    def read_prefix(self, reader: Reader) -> Step[None]:
        yield from self.inner.read_prefix(reader)

    def _read_gap(self, reader: Reader, left: int) -> Step[tuple[int, bool]]:
        """Read a run of defaults; return its length and whether the column ends with it."""
        group = yield from reader.varuint()
        last, size = bool(group & _END_OF_GRANULE), group & ~_END_OF_GRANULE
        if size + (not last) > left:
            raise RemoteProtocolError(f"a sparse column with a run of {size} where {left} rows are left")
        return size, last

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        left, values = rows, 0
        while True:
            size, last = yield from self._read_gap(reader, left)
            if last:
                break
            values += 1
            left -= size + 1
        yield from self.inner.skip(reader, values)

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        bounded(rows, "a sparse column's rows", _MAX_SPARSE_ROWS)
        at: list[int] = []
        left = rows
        while True:
            size, last = yield from self._read_gap(reader, left)
            if last:
                break
            left -= size + 1
            at.append(rows - left - 1)
        out = [self.default] * rows
        for index, value in zip(at, (yield from self.inner.read(reader, len(at))), strict=True):
            out[index] = value
        return out

    def write_prefix(self) -> bytes:
        return self.inner.write_prefix()

    def write(self, values: Sequence[Any]) -> bytes:
        at = [index for index, value in enumerate(values) if value != self.default]
        runs = [index - before - 1 for before, index in zip([-1, *at], at, strict=False)]
        tail = len(values) - (at[-1] + 1 if at else 0)
        groups = b"".join(wire.varuint(run) for run in runs) + wire.varuint(tail | _END_OF_GRANULE)
        return groups + self.inner.write([values[index] for index in at])

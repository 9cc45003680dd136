"""Columns of a block: how the values of each data type lie on the wire.

A codec passes over values (`skip`, holding nothing), reads them into a list, and writes them. Instants and dates stay
the integers they are on the wire (days, seconds, ticks); String is text where it is UTF-8 (other bytes survive as
surrogate escapes), FixedString is bytes. Layout: ClickHouse src/DataTypes/Serializations.
"""

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from ipaddress import IPv4Address, IPv6Address
from itertools import accumulate, pairwise
from typing import Any, Protocol
from uuid import UUID

from netlab.errors import RemoteProtocolError
from netlab.native import wire
from netlab.native.wire import MAX_ROWS, MAX_STRING, Reader, Step, bounded

_EXACT = Context(prec=100)


class Codec(Protocol):
    """How one data type lies on the wire. `prefix` comes once before the values of a whole column."""

    default: Any

    def read_prefix(self, reader: Reader) -> Step[None]:
        """Read the state that precedes the values."""

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        """Pass over `rows` values."""

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        """Read `rows` values."""

    def write_prefix(self) -> bytes:
        """Encode the state that precedes the values."""

    def write(self, values: Sequence[Any]) -> bytes:
        """Encode `values`."""


class _Plain:
    """A type without a prefix."""

    def read_prefix(self, reader: Reader) -> Step[None]:
        return
        yield

    def write_prefix(self) -> bytes:
        return b""


class Fixed(_Plain):
    """Values of one width. `decode` and `encode` turn the column's bytes into a list and back."""

    def __init__(
        self,
        width: int,
        default: Any,
        decode: Callable[[bytes], list[Any]],
        encode: Callable[[Sequence[Any]], bytes],
    ) -> None:
        self.width = width
        self.default = default
        self._decode = decode
        self._encode = encode

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        yield from reader.skip(self.width * rows)

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        size = bounded(self.width * rows, "a column's size", MAX_STRING)
        return self._decode((yield from reader.take(size)))

    def write(self, values: Sequence[Any]) -> bytes:
        return self._encode(values)


def numbers(code: str) -> Fixed:
    """Numbers that struct knows by `code`."""

    def encode(values: Sequence[Any]) -> bytes:
        return struct.pack(f"<{len(values)}{code}", *values)

    return Fixed(struct.calcsize("<" + code), 0.0 if code in "fd" else 0, lambda data: wire.unpack(code, data), encode)


def mapped(base: Fixed, default: Any, load: Callable[[Any], Any], dump: Callable[[Any], Any]) -> Fixed:
    """Values of `base`, each turned by `load` when read and by `dump` when written."""

    def decode(data: bytes) -> list[Any]:
        return [load(value) for value in base._decode(data)]

    def encode(values: Sequence[Any]) -> bytes:
        return base._encode([dump(value) for value in values])

    return Fixed(base.width, default, decode, encode)


def items(width: int) -> Fixed:
    """Byte strings of one width (FixedString): shorter ones are padded with zero bytes."""

    def decode(data: bytes) -> list[Any]:
        return [data[start : start + width] for start in range(0, len(data), width)]

    def encode(values: Sequence[Any]) -> bytes:
        padded = [bytes(value).ljust(width, b"\0") for value in values]
        if any(len(value) != width for value in padded):
            raise ValueError(f"a value is longer than {width} bytes")
        return b"".join(padded)

    return Fixed(width, bytes(width), decode, encode)


def wide_integers(width: int, *, signed: bool) -> Fixed:
    """Integers that struct has no code for (128 and 256 bits)."""
    return mapped(
        items(width),
        0,
        lambda data: int.from_bytes(data, "little", signed=signed),
        lambda value: int(value).to_bytes(width, "little", signed=signed),
    )


def integers(width: int, *, signed: bool) -> Fixed:
    """Little-endian integers of `width` bytes."""
    code = {1: "b", 2: "h", 4: "i", 8: "q"}.get(width)
    if code is None:
        return wide_integers(width, signed=signed)
    return numbers(code if signed else code.upper())


def booleans() -> Fixed:
    """Bool: one byte, 0 or 1."""
    return mapped(numbers("B"), False, bool, int)


def brain_floats() -> Fixed:
    """BFloat16: the upper half of a Float32."""
    return Fixed(
        2,
        0.0,
        lambda data: wire.unpack("f", b"".join(b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2))),
        lambda values: b"".join(struct.pack("<f", value)[2:] for value in values),
    )


def decimals(width: int, scale: int) -> Fixed:
    """Decimal: an integer of `width` bytes that counts 10**-scale."""
    return mapped(
        integers(width, signed=True),
        Decimal(0),
        lambda value: Decimal(f"{value}E-{scale}"),
        lambda value: int(_EXACT.scaleb(Decimal(value), scale)),
    )


def uuids() -> Fixed:
    """UUID: its two halves as UInt64, each little-endian."""
    return mapped(
        items(16),
        UUID(int=0),
        lambda data: UUID(bytes=data[7::-1] + data[:7:-1]),
        lambda value: value.bytes[7::-1] + value.bytes[:7:-1],
    )


def ipv4() -> Fixed:
    """IPv4: a UInt32."""
    return mapped(numbers("I"), IPv4Address(0), IPv4Address, int)


def ipv6() -> Fixed:
    """IPv6: 16 bytes in network order."""
    return mapped(items(16), IPv6Address(0), IPv6Address, lambda value: value.packed)


def enums(width: int, names: dict[int, str]) -> Fixed:
    """Enum8 and Enum16: read as names. Raises RemoteProtocolError for a number without a name."""
    values = {name: number for number, name in names.items()}

    def load(number: int) -> str:
        if number not in names:
            raise RemoteProtocolError(f"an Enum has no value {number}")
        return names[number]

    first = min(names.values(), key=values.__getitem__) if names else ""
    return mapped(
        integers(width, signed=True), first, load, lambda value: values[value] if isinstance(value, str) else value
    )


class Strings(_Plain):
    """String: a length and bytes, value by value."""

    default = ""

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        yield from wire.skip_strings(reader, rows)

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        out = []
        for _ in range(rows):
            out.append((yield from reader.raw(MAX_STRING)).decode("utf-8", "surrogateescape"))
        return out

    def write(self, values: Sequence[Any]) -> bytes:
        return b"".join(wire.string(value) for value in values)


class OffsetStrings(_Plain):
    """String from 54492 on: where each value ends, as UInt64, then the bytes of all values."""

    default = ""

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        if rows:
            yield from reader.skip(8 * (rows - 1))
            yield from reader.skip(bounded((yield from reader.integer(8)), "a column's size", MAX_ROWS))

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        ends = yield from _read_ends(reader, rows)
        data = yield from reader.take(bounded(ends[-1] if ends else 0, "a column's size", MAX_STRING))
        starts = (0, *ends)
        return [data[start:end].decode("utf-8", "surrogateescape") for start, end in zip(starts, ends, strict=False)]

    def write(self, values: Sequence[Any]) -> bytes:
        bodies = [_encoded(value) for value in values]
        return struct.pack(f"<{len(bodies)}Q", *accumulate(map(len, bodies))) + b"".join(bodies)


def _encoded(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _read_ends(reader: Reader, rows: int) -> Step[tuple[int, ...]]:
    """Read where each row's part ends."""
    size = bounded(8 * rows, "a column's size", MAX_STRING)
    ends = struct.unpack(f"<{rows}Q", (yield from reader.take(size)))
    if any(left > right for left, right in pairwise(ends)):
        raise RemoteProtocolError("a column's offsets run backwards")
    return ends


class Nothing(_Plain):
    """Nothing, and an empty Tuple: a byte a row."""

    def __init__(self, default: Any) -> None:
        self.default = default

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        yield from reader.skip(rows)

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        yield from reader.take(bounded(rows, "a column's size", MAX_STRING))
        return [self.default] * rows

    def write(self, values: Sequence[Any]) -> bytes:
        return b"0" * len(values)


class Nullable:
    """Nullable: a byte a row that says which are NULL, then the values, some of them without a meaning."""

    default = None

    def __init__(self, inner: Codec) -> None:
        self.inner = inner

    def read_prefix(self, reader: Reader) -> Step[None]:
        yield from self.inner.read_prefix(reader)

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        yield from reader.skip(rows)
        yield from self.inner.skip(reader, rows)

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        nulls = yield from reader.take(bounded(rows, "a column's size", MAX_STRING))
        values = yield from self.inner.read(reader, rows)
        return [None if null else value for null, value in zip(nulls, values, strict=True)]

    def write_prefix(self) -> bytes:
        return self.inner.write_prefix()

    def write(self, values: Sequence[Any]) -> bytes:
        nulls = bytes(value is None for value in values)
        return nulls + self.inner.write([self.inner.default if value is None else value for value in values])


class Arrays:
    """Array: where each row ends, as UInt64, then the elements of all rows."""

    def __init__(self, inner: Codec) -> None:
        self.inner = inner
        self.default: Any = []

    def read_prefix(self, reader: Reader) -> Step[None]:
        yield from self.inner.read_prefix(reader)

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        if rows:
            yield from reader.skip(8 * (rows - 1))
            total = bounded((yield from reader.integer(8)), "an Array's size", MAX_ROWS)
            yield from self.inner.skip(reader, total)

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        ends = yield from _read_ends(reader, rows)
        total = bounded(ends[-1] if ends else 0, "an Array's size", MAX_ROWS)
        values = yield from self.inner.read(reader, total)
        return [values[start:end] for start, end in zip((0, *ends), ends, strict=False)]

    def write_prefix(self) -> bytes:
        return self.inner.write_prefix()

    def write(self, values: Sequence[Any]) -> bytes:
        ends, flat = [], []
        for value in values:
            flat.extend(value)
            ends.append(len(flat))
        return struct.pack(f"<{len(ends)}Q", *ends) + self.inner.write(flat)


class Tuples:
    """Tuple: one column after the other."""

    def __init__(self, inners: Sequence[Codec]) -> None:
        self.inners = tuple(inners)
        self.default: Any = tuple(inner.default for inner in self.inners)

    def read_prefix(self, reader: Reader) -> Step[None]:
        for inner in self.inners:
            yield from inner.read_prefix(reader)

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        for inner in self.inners:
            yield from inner.skip(reader, rows)

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        columns = []
        for inner in self.inners:
            columns.append((yield from inner.read(reader, rows)))
        return list(zip(*columns, strict=True))

    def write_prefix(self) -> bytes:
        return b"".join(inner.write_prefix() for inner in self.inners)

    def write(self, values: Sequence[Any]) -> bytes:
        if any(len(value) != len(self.inners) for value in values):
            raise ValueError(f"a Tuple has {len(self.inners)} elements")
        return b"".join(inner.write([value[at] for value in values]) for at, inner in enumerate(self.inners))


class Maps:
    """Map: an Array of (key, value), read as dicts."""

    def __init__(self, key: Codec, value: Codec) -> None:
        self.inner = Arrays(Tuples((key, value)))
        self.default: Any = {}

    def read_prefix(self, reader: Reader) -> Step[None]:
        yield from self.inner.read_prefix(reader)

    def skip(self, reader: Reader, rows: int) -> Step[None]:
        yield from self.inner.skip(reader, rows)

    def read(self, reader: Reader, rows: int) -> Step[list[Any]]:
        pairs = yield from self.inner.read(reader, rows)
        return [_as_dict(row) for row in pairs]

    def write_prefix(self) -> bytes:
        return self.inner.write_prefix()

    def write(self, values: Sequence[Any]) -> bytes:
        return self.inner.write([list(value.items()) for value in values])


def _as_dict(pairs: list[Any]) -> dict[Any, Any]:
    try:
        return dict(pairs)
    except TypeError as error:  # an Array or a Map as the key, which the server itself forbids
        raise RemoteProtocolError(f"a Map's key cannot be one: {error}") from error

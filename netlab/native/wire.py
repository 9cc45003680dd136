"""Primitives of the Native protocol, read from a stream that arrives in pieces, and written.

A read is a generator (a `Step`): it yields how many more bytes it is waiting for, and returns its value once they are
there. So every reader works on any cut of the stream, in linear time, and holds no more than the value it waits for.
A length beyond its limit raises RemoteProtocolError at once: nothing is ever allocated on the peer's word.
"""

import struct
from collections.abc import Generator
from typing import TypeAlias, TypeVar

from netlab.errors import RemoteProtocolError

T = TypeVar("T")
Step: TypeAlias = Generator[int, None, T]

# The limits of ClickHouse's own reader (src/IO/ReadHelpers.h, src/Formats/NativeReader.cpp), or tighter: things of two
# bytes each take the longest to read, so how many there may be bounds the time that bytes without a meaning can cost.
MAX_STRING = 1 << 30  # a value in a column, SQL text, an exception's text
MAX_NAME = 1 << 20  # a name, a type, a setting
MAX_COLUMNS = 1 << 16
MAX_SETTINGS = 1 << 12
MAX_ROWS = 10**12
MAX_LIST = 1 << 20


class Reader:
    """The unread part of a byte stream, and where it lies in the whole (`offset`)."""

    __slots__ = ("_base", "buffer", "ended", "position")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.position = 0
        self.ended = False  # nothing will be fed any more
        self._base = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Append the next bytes of the stream; bytes already read are let go."""
        if self.position:
            self._base += self.position
            del self.buffer[: self.position]
            self.position = 0
        self.buffer += data

    @property
    def offset(self) -> int:
        """Bytes read since the stream began."""
        return self._base + self.position

    @property
    def unread(self) -> int:
        """Bytes here that nobody has read."""
        return len(self.buffer) - self.position

    def take(self, count: int) -> Step[bytes]:
        """Read exactly `count` bytes. The caller has bounded `count`."""
        while (missing := count - self.unread) > 0:
            yield missing
        start = self.position
        self.position = start + count
        return bytes(self.buffer[start : self.position])

    def some(self, limit: int) -> Step[bytes]:
        """Read what is here, at least 1 and at most `limit` bytes."""
        while not self.unread:
            yield 1
        return (yield from self.take(min(limit, self.unread)))

    def peek(self, count: int) -> Step[bytes]:
        """Return the next `count` bytes, fewer only where the stream ends, without passing over them."""
        while self.unread < count and not self.ended:
            yield count - self.unread
        return bytes(self.buffer[self.position : self.position + count])

    def skip(self, count: int) -> Step[None]:
        """Pass over `count` bytes without holding them."""
        while count > self.unread:
            count -= self.unread
            self.position = len(self.buffer)
            yield count
        self.position += count

    def byte(self) -> Step[int]:
        """Read a UInt8."""
        while not self.unread:
            yield 1
        value = self.buffer[self.position]
        self.position += 1
        return value

    def varuint(self) -> Step[int]:
        """Read an unsigned LEB128 number of at most 64 bits."""
        value = 0
        for shift in range(0, 70, 7):
            byte = yield from self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    break
                return value
        raise RemoteProtocolError("a variable-length number exceeds 64 bits")

    def count(self, what: str, limit: int) -> Step[int]:
        """Read a number of things. Raises RemoteProtocolError beyond `limit`."""
        value = yield from self.varuint()
        return bounded(value, what, limit)

    def raw(self, limit: int = MAX_NAME) -> Step[bytes]:
        """Read a String's bytes."""
        return (yield from self.take((yield from self.count("a String's length", limit))))

    def string(self, limit: int = MAX_NAME) -> Step[str]:
        """Read a String as text; bytes that are no UTF-8 become backslash escapes, so that any terminal prints it."""
        return (yield from self.raw(limit)).decode("utf-8", "backslashreplace")

    def integer(self, width: int, *, signed: bool = False) -> Step[int]:
        """Read a little-endian integer of `width` bytes."""
        return int.from_bytes((yield from self.take(width)), "little", signed=signed)

    def flag(self) -> Step[bool]:
        """Read a Bool. Raises RemoteProtocolError for a byte that is neither 0 nor 1."""
        value = yield from self.byte()
        if value > 1:
            raise RemoteProtocolError(f"a flag is 0 or 1, got {value}")
        return bool(value)


def bounded(value: int, what: str, limit: int) -> int:
    """Return `value`. Raises RemoteProtocolError beyond `limit`."""
    if value > limit:
        raise RemoteProtocolError(f"{what} is {value}, beyond {limit}")
    return value


def varuint(value: int) -> bytes:
    """Encode an unsigned LEB128 number."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is no unsigned 64-bit number")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str | bytes) -> bytes:
    """Encode a String."""
    body = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return varuint(len(body)) + body


def strings(*texts: str) -> bytes:
    """Encode several Strings, one after the other."""
    return b"".join(string(text) for text in texts)


def integer(value: int, width: int, *, signed: bool = False) -> bytes:
    """Encode a little-endian integer of `width` bytes."""
    return value.to_bytes(width, "little", signed=signed)


def flag(value: bool) -> bytes:
    """Encode a Bool."""
    return b"\x01" if value else b"\x00"


def skip_strings(reader: Reader, rows: int) -> Step[None]:
    """Pass over `rows` Strings, holding none.

    Results of many short strings are the slow case of a large answer, so lengths of one or two bytes go
    through a loop without calls.
    """
    done = 0
    while done < rows:
        buffer, position, end = reader.buffer, reader.position, len(reader.buffer)
        while done < rows and position < end:
            length, body = buffer[position], position + 1
            if length >= 0x80:
                if body == end or buffer[body] >= 0x80:
                    break
                length, body = length & 0x7F | buffer[body] << 7, body + 1
            if body + length > end:
                break
            position = body + length
            done += 1
        reader.position = position
        if done < rows:
            yield from reader.skip((yield from reader.count("a String's length", MAX_STRING)))
            done += 1


def unpack(code: str, data: bytes) -> list[int | float]:
    """Return the little-endian numbers of struct format `code` in `data`."""
    return list(struct.unpack(f"<{len(data) // struct.calcsize('<' + code)}{code}", data))

"""Compressed blocks: a block becomes a run of frames, each with a checksum, a method and two sizes.

Frame: 16 bytes CityHash128 of the rest, method U8, compressed size U32 (these 9 bytes of head included), raw size U32,
payload. Packet type and table name stay outside. NONE and LZ4 are read here; ZSTD needs the `zstandard` package
(`pip install netlab-toolkit[compression]`), LZ4 is faster with `lz4`.
"""

import importlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from netlab.errors import ProbeError, RemoteProtocolError, UsageError
from netlab.native import wire
from netlab.native.cityhash import checksum
from netlab.native.wire import Reader, Step, bounded

T = TypeVar("T")
_HEAD = 9
_CHECKSUM = 16
METHOD_AT = _CHECKSUM  # where a frame's method byte stands
# ClickHouse's own limit on a frame (DBMS_MAX_COMPRESSED_SIZE, 1 GiB) exceeds what a client can hold; blocks of frames
# are at most max_compress_block_size = 1 MiB by default.
_MAX_FRAME = 1 << 28
_MAX_PASSED_FRAME = 1 << 24


class Method(IntEnum):
    """A frame's method byte."""

    NONE = 0x02
    LZ4 = 0x82
    ZSTD = 0x90


class CompressionError(ProbeError):
    """A frame's method cannot be read or written here: a package is missing."""


class Frame(NamedTuple):
    """One compressed frame as it stands on the wire."""

    method: Method
    raw_size: int
    payload: bytes


def read_frame(reader: Reader) -> Step[Frame]:
    """Read one frame, not decompressed. Raises RemoteProtocolError for sizes or a method that cannot be."""
    yield from reader.skip(_CHECKSUM)
    number = yield from reader.byte()
    if number not in _METHODS:
        raise RemoteProtocolError(f"a compressed block of unknown method {number:#04x}")
    size = bounded((yield from reader.integer(4)), "a compressed block's size", _MAX_FRAME)
    raw_size = bounded((yield from reader.integer(4)), "a compressed block's raw size", _MAX_FRAME)
    if size < _HEAD:
        raise RemoteProtocolError(f"a compressed block of {size} bytes is shorter than its own head")
    return Frame(Method(number), raw_size, (yield from reader.take(size - _HEAD)))


def decompress(frame: Frame) -> bytes:
    """Return the frame's raw bytes.

    Raises RemoteProtocolError for a payload that is not what its head says, CompressionError without `zstandard`.
    """
    raw = _METHODS[frame.method](frame.payload, frame.raw_size)
    if len(raw) != frame.raw_size:
        raise RemoteProtocolError(f"a compressed block held {len(raw)} bytes, its head says {frame.raw_size}")
    return raw


def pass_frames(reader: Reader) -> Step[None]:
    """Pass over the frames of one block without decompressing them.

    Nothing says how many there are: a next frame is one whose checksum is right, which no other packet's bytes are. So
    the block's end shows only once the bytes after it are there.
    """
    while True:
        head = yield from reader.peek(_CHECKSUM + _HEAD)
        if len(head) < _CHECKSUM + _HEAD or head[_CHECKSUM] not in _METHODS:
            return
        size = int.from_bytes(head[_CHECKSUM + 1 : _CHECKSUM + 5], "little")
        if not _HEAD < size <= _MAX_PASSED_FRAME:
            return
        frame = yield from reader.peek(_CHECKSUM + size)
        if len(frame) < _CHECKSUM + size or checksum(frame[_CHECKSUM:]) != frame[:_CHECKSUM]:
            return
        yield from reader.skip(len(frame))


def can_decompress(method: Method) -> bool:
    """Whether frames of `method` can be read here."""
    return method is not Method.ZSTD or _package("zstandard") is not None


def read_compressed(reader: Reader, parse: Callable[[Reader], Step[T]]) -> Step[T]:
    """Run `parse` on what the frames hold; the frames must end where it ends."""
    inner = Reader()
    step = parse(inner)
    while True:
        try:
            next(step)
        except StopIteration as stop:
            if inner.unread:
                raise RemoteProtocolError(f"a compressed block has {inner.unread} bytes after its end") from None
            value: T = stop.value
            return value
        inner.feed(decompress((yield from read_frame(reader))))


def compress(body: bytes, method: Method) -> bytes:
    """Return `body` as one frame. Raises UsageError for a method whose package is missing."""
    if method is Method.NONE:
        payload = body
    elif method is Method.LZ4:
        payload = _lz4_literals(body)
    else:
        zstandard = _package("zstandard")
        if zstandard is None:
            raise UsageError("ZSTD needs the zstandard package", hint="pip install netlab-toolkit[compression]")
        payload = zstandard.ZstdCompressor().compress(body)
    head = bytes([method]) + wire.integer(len(payload) + _HEAD, 4) + wire.integer(len(body), 4)
    return checksum(head + payload) + head + payload


def _package(name: str) -> Any:
    """Return an optional package, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _plain(payload: bytes, raw_size: int) -> bytes:
    return payload


def _unzstd(payload: bytes, raw_size: int) -> bytes:
    zstandard = _package("zstandard")
    if zstandard is None:
        raise CompressionError(
            "blocks are compressed with ZSTD and the zstandard package is not installed",
            hint="pip install netlab-toolkit[compression]",
        )
    try:
        raw: bytes = zstandard.ZstdDecompressor().decompress(payload, max_output_size=max(raw_size, 1))
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(f"a ZSTD block is broken: {error}") from error
    return raw


def _unlz4(payload: bytes, raw_size: int) -> bytes:
    package = _package("lz4.block")
    if package is None:
        return unlz4(payload, raw_size)
    try:
        raw: bytes = package.decompress(payload, uncompressed_size=raw_size)
    except package.LZ4BlockError as error:
        raise RemoteProtocolError(f"an LZ4 block is broken: {error}") from error
    return raw


def unlz4(payload: bytes, raw_size: int) -> bytes:
    """Decompress an LZ4 block in plain Python (format: lz4 doc/lz4_Block_format.md). Raises RemoteProtocolError."""
    out = bytearray()
    at = 0
    try:
        while at < len(payload):
            token = payload[at]
            literals, at = _lz4_length(payload, at + 1, token >> 4)
            if at + literals > len(payload):
                raise RemoteProtocolError("an LZ4 block ends in the middle")
            out += payload[at : at + literals]
            at += literals
            if at == len(payload):  # the last sequence has literals only
                return bytes(out)
            distance = payload[at] | payload[at + 1] << 8
            size, at = _lz4_length(payload, at + 2, token & 15)
            _lz4_copy(out, distance, size + 4, raw_size)
    except IndexError as error:
        raise RemoteProtocolError("an LZ4 block ends in the middle") from error
    return bytes(out)


def _lz4_length(payload: bytes, at: int, nibble: int) -> tuple[int, int]:
    """Return a length that starts with `nibble` and where the bytes after it begin."""
    length = nibble
    if nibble == 15:
        while True:
            more = payload[at]
            at += 1
            length += more
            if more != 255:
                break
    return length, at


def _lz4_copy(out: bytearray, distance: int, size: int, raw_size: int) -> None:
    """Append `size` bytes that stand `distance` back; the two may overlap."""
    if not 0 < distance <= len(out) or len(out) + size > raw_size:
        raise RemoteProtocolError("an LZ4 block points outside itself")
    start = len(out) - distance
    piece = bytes(out[start : start + min(distance, size)])
    out += (piece * (size // len(piece) + 1))[:size]


def _lz4_literals(body: bytes) -> bytes:
    """Return a valid LZ4 block for `body` that does not shrink it: literals only."""
    package = _package("lz4.block")
    if package is not None:
        packed: bytes = package.compress(body, store_size=False)
        return packed
    size = len(body)
    if size < 15:
        return bytes([size << 4]) + body
    rest = size - 15
    return b"\xf0" + b"\xff" * (rest // 255) + bytes([rest % 255]) + body


_METHODS: dict[int, Callable[[bytes, int], bytes]] = {
    Method.NONE: _plain,
    Method.LZ4: _unlz4,
    Method.ZSTD: _unzstd,
}

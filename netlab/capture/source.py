"""Bytes of a capture file: plain, gzip or zstd, from a path or from standard input, in bounded memory.

zstd comes from the `zstandard` package: Python has none before 3.14, and it reads a stream in pieces of a size we
choose, so that a small file that unpacks to gigabytes costs no memory.
"""

import sys
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Protocol, cast

from netlab.errors import CaptureError

CHUNK = 1 << 18
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# The decoder's window is memory that the file chooses; zstd's own default limit is 128 MiB.
_ZSTD_LARGEST_WINDOW = 1 << 27


class ByteSource(Protocol):
    """A stream of uncompressed bytes. `note` says, after the end, why the end may be too early."""

    note: str | None

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; b"" at the end. Raises CaptureError."""


class _Raw(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


def open_source(path: str | Path, stack: ExitStack) -> ByteSource:
    """Open `path` ("-" is standard input), looking through gzip and zstd; `stack` closes it.

    Raises CaptureError when it cannot be opened or is empty.
    """
    raw = _Plain(_open_raw(path, stack), str(path))
    while len(raw.head) < 4:
        more = raw.fetch(CHUNK)
        if not more:
            break
        raw.head += more
    if not raw.head:
        raise CaptureError(f"{path}: the file is empty", hint="was the capture stopped before a packet was written?")
    if raw.head.startswith(_GZIP_MAGIC):
        return _Gzip(raw)
    if raw.head.startswith(_ZSTD_MAGIC):
        return _zstd(raw, stack)
    return raw


def _open_raw(path: str | Path, stack: ExitStack) -> _Raw:
    if str(path) == "-":
        return _ReadOne(sys.stdin.buffer)
    try:
        return stack.enter_context(Path(path).open("rb", buffering=0))
    except FileNotFoundError as error:
        raise CaptureError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise CaptureError(f"{path}: is a folder", hint="name a capture file in it") from error
    except (OSError, ValueError) as error:
        raise CaptureError(f"{path}: cannot be opened: {error}") from error


class _ReadOne:
    """Standard input, read as it comes: `read` would wait until a whole chunk is there."""

    def __init__(self, stream: object) -> None:
        self._read = getattr(stream, "read1", None) or stream.read  # type: ignore[attr-defined]

    def read(self, size: int, /) -> bytes | None:
        data: bytes | None = self._read(size)
        return data


class _Plain:
    def __init__(self, stream: _Raw, name: str) -> None:
        self._stream = stream
        self.name = name
        self.head = b""
        self.note: str | None = None

    def fetch(self, size: int) -> bytes:
        try:
            return self._stream.read(size) or b""
        except OSError as error:
            raise CaptureError(f"{self.name}: cannot be read: {error.strerror or error}") from error

    def read(self, size: int) -> bytes:
        if self.head:
            data, self.head = self.head[:size], self.head[size:]
            return data
        return self.fetch(size)


class _Gzip:
    """Several members one after the other are one stream (RFC 1952, 2.2); zero padding after the last is ignored."""

    def __init__(self, raw: _Plain) -> None:
        self._raw = raw
        self._pending = b""
        self._inflate = zlib.decompressobj(31)
        self._done = False
        self.note: str | None = None

    def read(self, size: int) -> bytes:
        while not self._done:
            if not self._pending:
                self._pending = self._raw.read(CHUNK)
                if not self._pending and not self._inflate.eof:
                    return self._end("the gzip data ends early")
            if self._inflate.eof and not self._next_member():
                return b""
            try:
                data = self._inflate.decompress(self._pending, size)
            except zlib.error as error:
                return self._end(f"the gzip data is damaged ({error})")
            self._pending = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if data:
                return data
        return b""

    def _next_member(self) -> bool:
        while self._pending and not self._pending.strip(b"\0"):
            self._pending = self._raw.read(CHUNK)
        self._pending = self._pending.lstrip(b"\0")
        self._done = not self._pending
        self._inflate = zlib.decompressobj(31)
        return not self._done

    def _end(self, note: str) -> bytes:
        self._done, self.note = True, note
        return b""


def _zstd(raw: _Plain, stack: ExitStack) -> ByteSource:
    try:
        import zstandard
    except ImportError as error:
        raise CaptureError(
            f"{raw.name}: zstd needs the Python package zstandard",
            hint="pip install zstandard, or unpack the file first",
        ) from error
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_LARGEST_WINDOW)
    reader = stack.enter_context(decoder.stream_reader(cast(IO[bytes], raw), read_across_frames=True, closefd=False))

    class Zstd:
        note: str | None = None

        def read(self, size: int) -> bytes:
            try:
                data: bytes = reader.read(size)
            except zstandard.ZstdError as error:
                self.note = f"the zstd data is damaged ({error})"
                return b""
            return data

    return Zstd()

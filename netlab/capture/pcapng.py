"""Write pcapng (draft-ietf-opsawg-pcapng), and rewrite a capture with comments on the frames that matter.

Little-endian blocks, nanosecond stamps. This module needs nothing but the standard library and netlab's pure
values when it is imported, since the dumper's own process starts with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntFlag
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from netlab import __version__
from netlab.errors import CaptureError, UsageError
from netlab.segments import Interface

_HEAD = Struct("<II")
_SECTION = Struct("<IIIHHq")
_INTERFACE = Struct("<IIHHI")
_PACKET = Struct("<IIIIIII")
_STATISTICS = Struct("<IIIII")
_WORD = Struct("<I")
_CODE = Struct("<HH")
_COUNT = Struct("<Q")
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
_END_OF_OPTIONS = b"\0\0\0\0"
_LARGEST_STAMP = (1 << 64) - 1
_LONGEST_OPTION = 65_000
_COMMENT, _FLAGS = 1, 2


class Course(IntFlag):
    """Which way a packet crossed the interface: the low bits of epb_flags."""

    UNKNOWN = 0
    INBOUND = 1
    OUTBOUND = 2


def section_header(comment: str | None = None, hardware: str | None = None) -> bytes:
    """Return a section header block that says what the capture is and what wrote it."""
    system = os.uname()
    options = _texts(
        ((_COMMENT, comment), (2, hardware), (3, f"{system.sysname} {system.release}"), (4, f"netlab {__version__}"))
    )
    return _block(0x0A0D0D0A, _SECTION.pack(0, 0, 0x1A2B3C4D, 1, 0, -1)[8:] + options)


def anonymous_section_header() -> bytes:
    """Return a section header block that says nothing."""
    return _block(0x0A0D0D0A, _SECTION.pack(0, 0, 0x1A2B3C4D, 1, 0, -1)[8:])


def interface_block(
    link_type: int, snaplen: int, *, name: str | None = None, capture_filter: str | None = None
) -> bytes:
    """Return an interface description block with nanosecond stamps. `capture_filter` is its text form."""
    options = _option(2, name.encode()) if name is not None else b""
    options += _option(9, b"\x09")
    if capture_filter is not None:
        options += _option(11, b"\0" + capture_filter.encode())
    return _block(1, _INTERFACE.pack(0, 0, link_type, 0, snaplen)[8:] + options + _END_OF_OPTIONS)


def packet_block(at: int, data: bytes, wire: int, interface: int, *, options: bytes = b"") -> bytes:
    """Return an enhanced packet block. `options` is the body of its option list, from `packet_options`."""
    captured = len(data)
    padding = _PADDING[captured & 3]
    size = 32 + captured + len(padding) + len(options)
    head = _PACKET.pack(6, size, interface, at >> 32, at & 0xFFFFFFFF, captured, wire)
    return b"".join((head, data, padding, options, _WORD.pack(size)))


def packet_options(comments: Sequence[str] = (), course: Course = Course.UNKNOWN) -> bytes:
    """Return the option list of a packet with these comments and that direction."""
    parts = [_option(_COMMENT, comment.encode()) for comment in comments]
    if course:
        parts.append(_option(_FLAGS, _WORD.pack(course)))
    return b"".join(parts) + _END_OF_OPTIONS if parts else b""


def statistics_block(interface: int, at: int, received: int, dropped: int) -> bytes:
    """Return an interface statistics block: packets the interface delivered, and those lost for lack of room."""
    body = _STATISTICS.pack(0, 0, interface, at >> 32, at & 0xFFFFFFFF)[8:]
    return _block(5, body + _option(4, _COUNT.pack(received)) + _option(5, _COUNT.pack(dropped)) + _END_OF_OPTIONS)


class Writer:
    """Writes one pcapng section to a binary stream, which the caller opened and closes."""

    def __init__(self, stream: BinaryIO, header: bytes) -> None:
        self._stream = stream
        self.interfaces = 0  # how many were described
        stream.write(header)

    def interface(self, block: bytes) -> int:
        """Write an interface description block; return the interface's number."""
        self._stream.write(block)
        self.interfaces += 1
        return self.interfaces - 1

    def packet(self, at: int, data: bytes, wire: int, interface: int, *, options: bytes = b"") -> None:
        """Write a packet: `at` in ns, clamped to what the format holds; `wire` is its length before any cut."""
        if not 0 <= interface < self.interfaces:
            raise UsageError(f"pcapng: packet of interface {interface}, of which there are {self.interfaces}")
        stamp = min(max(at, 0), _LARGEST_STAMP)
        self._stream.write(packet_block(stamp, data, wire, interface, options=options))

    def statistics(self, interface: int, at: int, received: int, dropped: int) -> None:
        """Write an interface statistics block."""
        self._stream.write(statistics_block(interface, at, received, dropped))


def annotate(source: str | Path, target: str | Path, comments: Mapping[int, str]) -> None:
    """Rewrite the capture `source` as the pcapng `target`, with `comments` on its frames (1-based).

    Packets, interfaces and the packets' own options are kept; names, secrets and custom blocks are not. Raises
    CaptureError when either file fails.
    """
    from netlab.capture.container import read_options
    from netlab.capture.read import open_capture

    with open_capture(source) as capture, replacing(source, target) as stream:
        container, frames = capture.container, capture.frames()
        first = next(frames, None)  # the section's comment is known when its first packet is
        writer = Writer(stream, section_header(container.comment))
        for number, buffer, start, end, wire, at, interface, stop in chain([first] if first else [], frames):
            describe(writer, container.interfaces[: interface + 1])
            kept = read_options(buffer, end + (start - end & 3), stop, container.order)
            options = _merge(kept, container.order, comments.get(number))
            writer.packet(at, buffer[start:end], wire, interface, options=options)
        describe(writer, container.interfaces)
        count_drops(writer, container.interfaces)


def describe(writer: Writer, interfaces: Sequence[Interface], *, named: bool = True) -> None:
    """Write descriptions of those `interfaces` that `writer` has not described yet."""
    for facts in interfaces[writer.interfaces :]:
        name = facts.name if named else None
        writer.interface(interface_block(facts.link_type, facts.snaplen or 0, name=name))


def count_drops(writer: Writer, interfaces: Sequence[Interface]) -> None:
    """Write the statistics of those `interfaces` whose drops are known."""
    for facts in interfaces:
        if facts.drops is not None:
            writer.statistics(facts.number, 0, 0, facts.drops)


@contextmanager
def replacing(source: str | Path, target: str | Path) -> Iterator[BinaryIO]:
    """Yield a stream whose content becomes `target` when the block succeeds; a failure leaves `target` as it was.

    Raises CaptureError when `target` is `source`, or cannot be written.
    """
    final = Path(target)
    if final.exists() and str(source) != "-" and Path(source).exists() and final.samefile(source):
        raise CaptureError(f"{target}: would overwrite the capture it is made from", hint="name another file")
    partial = final.with_name(final.name + ".partial")
    try:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(final)
    except OSError as error:
        raise CaptureError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _merge(kept: Iterator[tuple[int, bytes]], order: str, comment: str | None) -> bytes:
    """Return a packet's own comments and flags, and the new comment after them."""
    parts = []
    for code, value in kept:
        if code == _COMMENT:
            parts.append(_option(_COMMENT, value))
        elif code == _FLAGS and len(value) == 4:
            parts.append(_option(_FLAGS, _WORD.pack(Struct(order + "I").unpack(value)[0])))
    if comment is not None:
        parts.append(_option(_COMMENT, comment.encode()))
    return b"".join(parts) + _END_OF_OPTIONS if parts else b""


def _texts(options: Sequence[tuple[int, str | None]]) -> bytes:
    return b"".join(_option(code, text.encode()) for code, text in options if text) + _END_OF_OPTIONS


def _option(code: int, value: bytes) -> bytes:
    value = value[:_LONGEST_OPTION]
    return _CODE.pack(code, len(value)) + value + _PADDING[len(value) & 3]


def _block(kind: int, body: bytes) -> bytes:
    size = 12 + len(body)
    return _HEAD.pack(kind, size) + body + _WORD.pack(size)

"""Capture files: from bytes to frames, for pcap and pcapng, in one pass and bounded memory.

A frame is a plain tuple that points into a shared buffer, so that a reader that only looks at a few bytes of each
packet copies nothing. Formats: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng. What is whole before a cut or a
damaged place is always yielded; a note says what stopped the reader and at which offset.
"""

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct
from typing import Protocol, TypeAlias

from netlab.capture.source import CHUNK, ByteSource
from netlab.errors import CaptureError
from netlab.segments import Interface
from netlab.units import NS_PER_S

# (frame number, buffer, start, end, wire length, at, interface number, options end): the captured bytes are
# buffer[start:end]; in a pcapng the packet's options, padded, are buffer[end:options end].
Frame: TypeAlias = tuple[int, bytes, int, int, int, int, int, int]

# No packet is this long; a longer record is damage, and reading on would take memory that the file chooses.
LARGEST_RECORD = 64 << 20

_PCAP_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1_000),
    b"\xa1\xb2\xc3\xd4": (">", 1_000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_OTHER_FORMATS = {
    b"\x34\xcd\xb2\xa1": "a modified pcap",
    b"\xa1\xb2\xcd\x34": "a modified pcap",
    b"snoo": "a snoop capture",
    b"BZh9": "a bzip2 archive",
    b"\xfd7zX": "an xz archive",
    b"\x04\x22\x4d\x18": "an lz4 archive",
    b"PK\x03\x04": "a zip archive",
}
SECTION = b"\x0a\x0d\x0d\x0a"
_IDB, _PB, _SPB, _ISB, _EPB = 1, 2, 3, 5, 6
OPT_COMMENT, _IF_NAME, _IF_TSRESOL, _IF_TSOFFSET, _ISB_IFDROP = 1, 2, 9, 14, 5


class Container(Protocol):
    """An open capture file. All attributes but `order` are final once `frames` is exhausted."""

    interfaces: list[Interface]
    comment: str | None
    notes: list[str]
    truncated: bool
    ended: bool  # nothing is left to read
    packets: int
    order: str  # byte order of the current section: "<" or ">"

    def frames(self) -> Iterator[Frame]:
        """Yield every packet of the file, in file order. Raises CaptureError when the file cannot be read."""


def open_container(source: ByteSource, name: str) -> Container:
    """Return the reader for what `source` holds. Raises CaptureError when that is no capture."""
    window = Window(source, name)
    head = window.refill(0, 4)
    if head.startswith(SECTION):
        return Pcapng(window)
    found = _PCAP_MAGICS.get(head[:4])
    if found:
        return Pcap(window, *found)
    other = _OTHER_FORMATS.get(head[:4])
    if other:
        raise CaptureError(f"{name}: {other}, not a pcap or pcapng", hint="convert it with editcap, or unpack it")
    because = f": {source.note}" if source.note else f" (it starts with the bytes {head[:8].hex(' ') or 'of nothing'})"
    raise CaptureError(
        f"{name}: not a capture file{because}", hint="pcap and pcapng are read, also gzip and zstd of them"
    )


class Window:
    """The piece of the file that is in memory. `base` is the file offset of its first byte."""

    def __init__(self, source: ByteSource, name: str) -> None:
        self.source = source
        self.name = name
        self.base = 0
        self.buffer = b""

    def refill(self, position: int, need: int) -> bytes:
        """Drop what lies before `position`, read on until `need` bytes are there or the file ends, return all."""
        parts = [self.buffer[position:]]
        have = len(parts[0])
        self.base += position
        while have < need:
            data = self.source.read(max(CHUNK, min(need - have, 1 << 22)))
            if not data:
                break
            parts.append(data)
            have += len(data)
        self.buffer = b"".join(parts)
        return self.buffer


class _Reader:
    """What the two formats share: facts about the file, and how reading ends."""

    def __init__(self, window: Window, order: str) -> None:
        self._window = window
        self.order = order
        self.interfaces: list[Interface] = []
        self.comment: str | None = None
        self.notes: list[str] = []
        self.truncated = False
        self.ended = False
        self.packets = 0

    def _stop(self, what: str, position: int) -> int:
        """Note that reading ends here because of `what`; `position` is in the buffer. Return -1: no next record."""
        self.truncated = self.ended = True
        self.notes.append(f"{what} at offset {self._window.base + position}; what came before it was read")
        return -1

    def _end(self, have: int, need: int) -> int:
        """Note how the file ended, `have` bytes into a record of at least `need`. Return -1: no next record."""
        self.ended = True
        early = self._window.source.note
        if early:
            self.notes.append(early)
            self.truncated = True
        if have:
            self._stop(f"the file is cut short: at least {need - have} bytes are missing from the record", 0)
        return -1


class Pcap(_Reader):
    """A classic pcap: one interface, a 24-byte header, 16 bytes before each packet."""

    def __init__(self, window: Window, order: str, scale: int) -> None:
        super().__init__(window, order)
        self._scale = scale
        header = window.refill(0, 24)
        if len(header) < 24:
            raise CaptureError(f"{window.name}: the pcap header is cut short: {len(header)} of 24 bytes")
        snaplen, network = Struct(order + "II").unpack_from(header, 16)
        # The upper bits of the last field hold the length of a frame check sequence.
        interface = Interface(number=0, name=None, link_type=network & 0xFFFF, snaplen=snaplen or None)
        self.interfaces.append(interface)

    def frames(self) -> Iterator[Frame]:
        unpack, scale = Struct(self.order + "IIII").unpack_from, self._scale
        buffer, position, number = self._window.buffer, 24, 0
        try:
            while True:
                size = len(buffer)
                limit, need = size - 16, 16
                while position <= limit:
                    seconds, fraction, captured, wire = unpack(buffer, position)
                    start = position + 16
                    end = start + captured
                    if end > size:
                        need = end - position
                        break
                    number += 1
                    yield (number, buffer, start, end, wire, seconds * NS_PER_S + fraction * scale, 0, end)
                    position = end
                if need > LARGEST_RECORD:
                    self._stop(f"frame {number + 1} claims {need - 16} bytes", position)
                    return
                buffer, position = self._window.refill(position, need), 0
                if len(buffer) < need:
                    self._end(len(buffer), need)
                    return
        finally:
            self.packets = number


class Pcapng(_Reader):
    """A pcapng: blocks, in sections of either byte order, with any number of interfaces."""

    def __init__(self, window: Window) -> None:
        super().__init__(window, "<")
        self._first = 0  # number of the section's first interface
        self._clocks: list[tuple[int, int, int]] = []  # per interface of the section: multiply, divide, add (ns)
        self._unstamped = 0
        self._odd: Frame | None = None  # a packet from one of the rare blocks
        if self._section(window.refill(0, 28), 0) < 0:
            raise CaptureError(f"{window.name}: the pcapng section header (offset 0) is damaged or cut short")

    def frames(self) -> Iterator[Frame]:
        position = 0
        try:
            while position >= 0:
                buffer, size = self._window.buffer, len(self._window.buffer)
                unpack, number, clocks, first = self._packet, self.packets, self._clocks, self._first
                limit, known = size - 32, len(self._clocks)
                while position <= limit:
                    kind, length, interface, high, low, captured, wire = unpack(buffer, position)
                    after = position + length
                    if kind != _EPB or after > size or captured > length - 32 or interface >= known or length & 3:
                        break
                    multiply, divide, add = clocks[interface]
                    at = (high << 32 | low) * multiply // divide + add
                    start = position + 28
                    number += 1
                    yield (number, buffer, start, start + captured, wire, at, interface + first, after - 4)
                    position = after
                self.packets = number
                position = self._step(position)
                if self._odd is not None:
                    yield self._odd
                    self._odd = None
        finally:
            if self._unstamped:
                self.notes.append(f"{self._unstamped} packets carry no time stamp; their time is shown as 0")

    def _step(self, position: int) -> int:
        """Read on, or take the one block at `position`; return where the next one starts, -1 at the end."""
        buffer, fresh = self._window.buffer, False
        if len(buffer) - position < 28:
            fresh = True
            buffer, position = self._window.refill(position, 28), 0
            need = 28 if buffer.startswith(SECTION) else 12
            if len(buffer) < need:
                return self._end(len(buffer), need)
        kind, length = self._head(buffer, position)
        if buffer.startswith(SECTION, position):
            length = self._section(buffer, position)
        if length < 12 or length & 3 or length > LARGEST_RECORD:
            return self._stop(f"a block of type {kind:#x} that claims {length} bytes", position)
        if position + length > len(buffer):
            fresh = True
            buffer, position = self._window.refill(position, length), 0
            if len(buffer) < length:
                return self._end(len(buffer), length)
        if fresh and kind == _EPB:
            return position
        after: int = position + length
        if self._word(buffer, after - 4)[0] != length or not self._take(kind, buffer, position, after):
            return self._stop(f"a damaged block of type {kind:#x}, after frame {self.packets}", position)
        return after

    def _take(self, kind: int, buffer: bytes, position: int, after: int) -> bool:
        """Take one whole block that is no plain packet block; return False if it is damaged."""
        body, end = position + 8, after - 4
        if kind == 0x0A0D0D0A:
            self._first, self._clocks = len(self.interfaces), []
            comments = [v for code, v in read_options(buffer, body + 16, end, self.order) if code == OPT_COMMENT]
            if comments and self.comment is None:
                self.comment = b"\n".join(comments).decode("utf-8", "replace")
        elif kind == _IDB:
            return end - body >= 8 and self._interface(buffer, body, end)
        elif kind == _ISB:
            return end - body >= 12 and self._statistics(buffer, body, end)
        elif kind == _SPB:
            return end - body >= 4 and self._simple_packet(buffer, body, end)
        elif kind == _PB:
            return end - body >= 20 and self._old_packet(buffer, body, end)
        return kind != _EPB

    def _section(self, buffer: bytes, position: int) -> int:
        """Take the byte order from the section header at `position`; return its length, -1 if it is none."""
        mark = buffer[position + 8 : position + 12]
        order = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}.get(mark)
        if order is None or len(buffer) < position + 28:
            return -1
        self.order = order
        self._head, self._word = Struct(order + "II").unpack_from, Struct(order + "I").unpack_from
        self._packet = Struct(order + "IIIIIII").unpack_from
        length: int = self._head(buffer, position)[1]
        return length if length >= 28 else -1

    def _interface(self, buffer: bytes, body: int, end: int) -> bool:
        link_type, _, snaplen = Struct(self.order + "HHI").unpack_from(buffer, body)
        options = dict(read_options(buffer, body + 8, end, self.order))
        resolution = options.get(_IF_TSRESOL, b"\x06")[:1] or b"\x06"
        offset = options.get(_IF_TSOFFSET, b"")
        add = int.from_bytes(offset, "little" if self.order == "<" else "big", signed=True) if len(offset) == 8 else 0
        units = (1 << (resolution[0] & 0x7F)) if resolution[0] & 0x80 else 10 ** resolution[0]
        exact = NS_PER_S % units == 0
        self._clocks.append((NS_PER_S // units if exact else NS_PER_S, 1 if exact else units, add * NS_PER_S))
        name = options.get(_IF_NAME)
        self.interfaces.append(
            Interface(
                number=len(self.interfaces),
                name=None if name is None else name.decode("utf-8", "replace"),
                link_type=link_type,
                snaplen=snaplen or None,
            )
        )
        return True

    def _statistics(self, buffer: bytes, body: int, end: int) -> bool:
        number = self._first + self._word(buffer, body)[0]
        for code, value in read_options(buffer, body + 12, end, self.order):
            if code == _ISB_IFDROP and len(value) == 8 and number < len(self.interfaces):
                drops = int.from_bytes(value, "little" if self.order == "<" else "big")
                self.interfaces[number] = replace(self.interfaces[number], drops=drops)
        return True

    def _simple_packet(self, buffer: bytes, body: int, end: int) -> bool:
        wire = self._word(buffer, body)[0]
        if not self._clocks:
            return False
        snaplen = self.interfaces[self._first].snaplen or wire
        start, self._unstamped = body + 4, self._unstamped + 1
        captured = min(wire, snaplen, end - start)
        self.packets += 1
        self._odd = (self.packets, buffer, start, start + captured, wire, 0, self._first, start + captured)
        return True

    def _old_packet(self, buffer: bytes, body: int, end: int) -> bool:
        interface, _, high, low, captured, wire = Struct(self.order + "HHIIII").unpack_from(buffer, body)
        if interface >= len(self._clocks) or captured > end - body - 20:
            return False
        multiply, divide, add = self._clocks[interface]
        at = (high << 32 | low) * multiply // divide + add
        self.packets += 1
        start = body + 20
        self._odd = (self.packets, buffer, start, start + captured, wire, at, interface + self._first, end)
        return True


def read_options(buffer: bytes, position: int, end: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield the (code, value) options of a pcapng block; a damaged list ends early."""
    unpack = Struct(order + "HH").unpack_from
    while position + 4 <= end:
        code, length = unpack(buffer, position)
        if code == 0 or position + 4 + length > end:
            return
        yield code, buffer[position + 4 : position + 4 + length]
        position += 4 + length + (-length & 3)

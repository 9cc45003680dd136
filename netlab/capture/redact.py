"""Rewrite a capture so that it can be shown to others: no payload, no address, no name; the same diagnosis.

What stays is what a diagnosis needs: every packet with its number, time and length, the ports, the sequence numbers,
flags, windows, and the TCP options that this tool knows. Payloads become filler of the same length, addresses and
hardware addresses are numbered in the order they appear, checksums are right, and comments, interface names and the
description of the machine are dropped. Anything else, of protocols that are not TCP too, becomes zeros.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from netlab.capture.container import Frame
from netlab.capture.decode import ETHERNET, LINUX_SLL, LINUX_SLL2, LOOP, NULL, RAW_IP, TCP, find_tcp, locator
from netlab.capture.pcapng import Writer, anonymous_section_header, count_drops, describe, replacing
from netlab.capture.read import open_capture
from netlab.errors import CaptureError, UsageError
from netlab.segments import Endpoint, Flag, Segment

# (source, destination, start, stop) -> stop - start bytes: what stands for the bytes of that direction's stream
# from offset `start` to `stop`. Offset 0 is the byte after the SYN, or, where the capture begins later, the first
# one captured; offsets before that are negative, and none wrap. It must depend on its arguments alone, or
# retransmissions differ from what they repeat.
Filler: TypeAlias = Callable[[Endpoint, Endpoint, int, int], bytes]

_LINKS = frozenset({ETHERNET, LINUX_SLL, LINUX_SLL2, NULL, LOOP}) | RAW_IP
_KEPT_OPTIONS = frozenset({2, 3, 4, 5, 8})
_ICMP, _UDP, _ICMPV6 = 1, 17, 58
_MOST_ADDRESSES = 1 << 20
# A wire length is a number in the file; a lie must not make us build gigabytes of filler.
_LONGEST_PAYLOAD = 1 << 20


def plain_filler(source: Endpoint, destination: Endpoint, start: int, stop: int) -> bytes:
    """Return a run of "x": a byte with which neither ClickHouse's protocol nor TLS begins anything."""
    return b"x" * (stop - start)


def redact(source: str | Path, target: str | Path, *, filler: Filler = plain_filler) -> None:
    """Write the redacted form of the capture `source` to the pcapng `target`.

    `filler` supplies payloads, see Filler. Raises CaptureError when a file fails, when a link type is not understood
    (nothing is written then: what is not understood cannot be made safe), or when there are over a million addresses.
    """
    with open_capture(source) as capture, replacing(source, target) as stream:
        container, decoder, rewriter = capture.container, capture.decoder, _Rewriter(filler)
        writer = Writer(stream, anonymous_section_header())
        for frame in capture.frames():
            interface = frame[6]
            describe(writer, container.interfaces[: interface + 1], named=False)
            link_type = container.interfaces[interface].link_type
            if link_type not in _LINKS:
                raise CaptureError(f"{source}: frame {frame[0]}: link type {link_type} cannot be redacted")
            data = rewriter.packet(frame, link_type, decoder.segment(frame))
            writer.packet(frame[5], data, frame[4], interface)
        describe(writer, container.interfaces, named=False)
        count_drops(writer, container.interfaces)


class StreamOffsets:
    """Unwraps sequence numbers into stream offsets, per direction; the offsets that a Filler is asked for."""

    def __init__(self) -> None:
        self._next: dict[tuple[Endpoint, Endpoint], tuple[int, int]] = {}  # offset last seen, and its raw number

    def offset(self, segment: Segment) -> int:
        """Return the stream offset of the segment's first payload byte."""
        key = (segment.source, segment.destination)
        if segment.flags & Flag.SYN:
            self._next[key] = (0, segment.seq + 1 & 0xFFFFFFFF)
            return 0
        if key not in self._next and len(self._next) >= _MOST_ADDRESSES:
            raise CaptureError(f"more than {_MOST_ADDRESSES} connections")
        offset, seq = self._next.get(key, (0, segment.seq))
        # The nearest of the offsets that this number can mean.
        offset += (segment.seq - seq + 0x80000000 & 0xFFFFFFFF) - 0x80000000
        self._next[key] = (offset, segment.seq)
        return offset


class _Names:
    """Numbers things in the order of appearance; the same thing always gets the same number."""

    def __init__(self, prefix: bytes, kept: frozenset[bytes]) -> None:
        self._prefix = prefix
        self._known = {name: name for name in kept}

    def replace(self, data: bytearray, start: int, size: int) -> None:
        name = bytes(data[start : start + size])
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= _MOST_ADDRESSES:
                raise CaptureError(f"more than {_MOST_ADDRESSES} addresses")
            number = len(self._known).to_bytes(size - len(self._prefix), "big")
            found = self._known[name] = self._prefix + number
        data[start : start + len(name)] = found[: len(name)]


class _Rewriter:
    def __init__(self, filler: Filler) -> None:
        self._filler = filler
        self._offsets = StreamOffsets()
        self._hardware = _Names(b"\x02\0", frozenset({bytes(6), b"\xff" * 6}))
        self._v4 = _Names(b"\x0a", frozenset({bytes(4), b"\x7f\0\0\1"}))
        self._v6 = _Names(b"\x20\x01\x0d\xb8" + bytes(8), frozenset({bytes(16), bytes(15) + b"\1"}))

    def packet(self, frame: Frame, link_type: int, segment: Segment | None) -> bytes:
        """Return the frame's captured bytes, redacted. `segment` is what the frame was decoded to."""
        _, buffer, start, end, wire, *_ = frame
        raw = buffer[start:end]
        data = bytearray(raw)
        self._link(data, link_type)
        find = locator(link_type)
        ip = find(raw, 0, len(raw)) if find is not None else -1
        if ip < 0:
            keep = {ETHERNET: 14, LINUX_SLL: 16, LINUX_SLL2: 20}.get(link_type, 4)
            _zero(data, keep, len(data))
        elif segment is not None:
            self._tcp(data, ip, max(wire, len(data)), segment)
        else:
            self._other(data, ip)
        return bytes(data)

    def _link(self, data: bytearray, link_type: int) -> None:
        if link_type == ETHERNET:
            self._hardware.replace(data, 0, 6)
            self._hardware.replace(data, 6, 6)
        elif link_type == LINUX_SLL:
            self._hardware.replace(data, 6, 6)
            _zero(data, 12, 14)
        elif link_type == LINUX_SLL2:
            _zero(data, 4, 8)
            self._hardware.replace(data, 12, 6)
            _zero(data, 18, 20)

    def _tcp(self, data: bytearray, ip: int, wire: int, segment: Segment) -> None:
        found = find_tcp(bytes(data), ip, len(data), wire)
        if isinstance(found, str):  # not to happen: it was decoded
            _zero(data, ip, len(data))
            return
        _, tcp, stop = found
        self._ip(data, ip, tcp)
        body = tcp + (data[tcp + 12] >> 2 & 0x3C)
        _clean_options(data, tcp + 20, min(body, len(data)))
        offset = self._offsets.offset(segment)
        length = segment.length if segment.length <= _LONGEST_PAYLOAD else len(segment.payload)
        filler = self._filler(segment.source, segment.destination, offset, offset + length)
        if len(filler) != length:
            raise UsageError(f"the filler gave {len(filler)} bytes for the {length} of frame {segment.frame}")
        data[body : body + len(segment.payload)] = filler[: len(segment.payload)]
        _zero(data, body + len(segment.payload), len(data))
        _zero(data, tcp + 16, tcp + 18)
        header = bytes(data[tcp : min(body, len(data))]).ljust(body - tcp, b"\1")
        _put(data, tcp + 16, checksum(_pseudo(data, ip, TCP, stop - tcp) + header + filler))

    def _ip(self, data: bytearray, ip: int, body: int) -> None:
        """Replace addresses, and blank the options or extension headers between the IP header and `body`."""
        if data[ip] >> 4 == 4:
            self._v4.replace(data, ip + 12, 4)
            self._v4.replace(data, ip + 16, 4)
            data[ip + 20 : body] = b"\1" * (min(body, len(data)) - ip - 20)
            _zero(data, ip + 10, ip + 12)
            _put(data, ip + 10, checksum(bytes(data[ip:body])))
            return
        self._v6.replace(data, ip + 8, 16)
        self._v6.replace(data, ip + 24, 16)
        kind, position = data[ip + 6], ip + 40
        while position + 8 <= min(body, len(data)):
            size = 8 if kind == 44 else (data[position + 1] + 2) * 4 if kind == 51 else (data[position + 1] + 1) * 8
            if kind != 44:
                _zero(data, position + 2, min(position + size, body))
            kind, position = data[position], position + size

    def _other(self, data: bytearray, ip: int) -> None:
        """Redact a packet that is not TCP, or not a whole TCP header: its headers stay, the rest is zeros."""
        version = data[ip] >> 4 if ip < len(data) else 0
        if version not in {4, 6} or len(data) < ip + (20 if version == 4 else 40):
            _zero(data, ip, len(data))
            return
        body = ip + 40 if version == 6 else min(max(ip + (data[ip] & 15) * 4, ip + 20), len(data))
        self._ip(data, ip, body)
        protocol = data[ip + 6] if version == 6 else data[ip + 9]
        whole = version == 6 or not (data[ip + 6] & 0x3F or data[ip + 7])
        length = (
            int.from_bytes(data[ip + 4 : ip + 6]) if version == 6 else int.from_bytes(data[ip + 2 : ip + 4]) + ip - body
        )
        fits = whole and 8 <= length <= len(data) - body
        if fits and protocol == _UDP:
            _zero(data, body + 6, len(data))
            total = checksum(_pseudo(data, ip, _UDP, length) + bytes(data[body : body + length]))
            _put(data, body + 6, total or 0xFFFF)
        elif fits and protocol in {_ICMP, _ICMPV6}:
            _zero(data, body + 2, len(data))
            pseudo = _pseudo(data, ip, _ICMPV6, length) if protocol == _ICMPV6 else b""
            _put(data, body + 2, checksum(pseudo + bytes(data[body : body + length])))
        else:
            _zero(data, body, len(data))


def checksum(data: bytes) -> int:
    """Return the Internet checksum of `data` (RFC 1071)."""
    # A ones' complement sum of 16-bit words is the number they spell, modulo 65,535.
    return -int.from_bytes(data + b"\0" * (len(data) & 1)) % 0xFFFF


def _pseudo(data: bytearray, ip: int, protocol: int, length: int) -> bytes:
    addresses = data[ip + 12 : ip + 20] if data[ip] >> 4 == 4 else data[ip + 8 : ip + 40]
    return bytes(addresses) + protocol.to_bytes(4, "big") + (length & 0xFFFFFFFF).to_bytes(4, "big")


def _clean_options(data: bytearray, position: int, end: int) -> None:
    """Put NOPs over TCP options that are not known to be harmless."""
    while position < end:
        kind = data[position]
        size = data[position + 1] if position + 1 < end else 0
        if kind in _KEPT_OPTIONS and 2 <= size <= end - position:
            position += size
        elif kind in {0, 1} or not 2 <= size <= end - position:
            # The end of the list, or a list that makes no sense: nothing after it is an option.
            stop = position + 1 if kind == 1 else end
            data[position:stop] = b"\1" * (stop - position) if kind else bytes(stop - position)
            position = stop
        else:
            data[position : position + size] = b"\1" * size
            position += size


def _zero(data: bytearray, start: int, stop: int) -> None:
    stop = min(stop, len(data))
    if stop > start:
        data[start:stop] = bytes(stop - start)


def _put(data: bytearray, position: int, value: int) -> None:
    if position + 2 <= len(data):
        data[position : position + 2] = value.to_bytes(2, "big")

"""From a frame's bytes to a TCP segment: link layer, IPv4 or IPv6, TCP.

One struct call takes the common case (20 bytes of IPv4, then TCP, all captured); everything else goes the slow way.
Lengths are those of the IP header, so Ethernet padding is no payload; where the header says 0 (a super-segment of
segmentation offload) the captured packet's own length counts. IP fragments are not reassembled, only counted.
"""

from collections import Counter
from collections.abc import Callable
from socket import AF_INET, AF_INET6, inet_ntop
from struct import Struct
from typing import TypeAlias

from netlab.capture.container import Frame
from netlab.segments import Endpoint, Interface, Options, Segment

# Link types: tcpdump.org/linktypes.html.
ETHERNET, LINUX_SLL, LINUX_SLL2, NULL, LOOP = 1, 113, 276, 0, 108
RAW_IP = frozenset({12, 14, 101, 228, 229})
TCP = 6
_EXTENSIONS = frozenset({0, 43, 51, 60, 135, 139, 140})  # IPv6 headers that another header follows
_FRAGMENT = 44
_VLAN_TAGS = frozenset({b"\x81\x00", b"\x88\xa8", b"\x91\x00"})
_IP_TYPES = frozenset({b"\x08\x00", b"\x86\xdd"})
_FAMILIES = frozenset({2, 10, 24, 28, 30})  # AF_INET, and AF_INET6 of Linux, NetBSD, FreeBSD, Darwin
# A capture of a scan has millions of peers; forgetting them all now and then keeps memory flat.
_LARGEST_CACHE = 1 << 16
_LONGEST_CHAIN = 16  # IPv6 extension headers, VLAN tags

# (buffer, start, end) -> offset of the IP header, or -1 if there is none. The offset may lie beyond `end`.
Locator: TypeAlias = Callable[[bytes, int, int], int]
Pair: TypeAlias = tuple[Endpoint, Endpoint]

# IPv4: total length, fragment word, protocol; then addresses and ports as one key; seq, ack, offset, flags, window.
_IPV4_TCP = Struct(">xxHxxHxB2x12sIIBBH").unpack_from
_TCP = Struct(">4sIIBBH").unpack_from
_STAMPS = Struct(">III").unpack_from
_NOP_NOP_STAMP = 0x0101080A
_WORD = Struct(">H").unpack_from
_new = tuple.__new__


class Decoder:
    """Decodes the frames of one capture. `skipped` counts what was not decoded, by reason."""

    def __init__(self, interfaces: list[Interface]) -> None:
        self._interfaces = interfaces
        self._locators: list[Locator] = []
        self._pairs: dict[bytes, Pair] = {}
        self.skipped: Counter[str] = Counter()
        self.segments = 0

    def segment(self, frame: Frame) -> Segment | None:
        """Return the frame's TCP segment, or None if it holds none."""
        number, buffer, start, end, wire, at, interface, _ = frame
        try:
            ip = self._locators[interface](buffer, start, end)
        except IndexError:
            ip = self._locator(interface)(buffer, start, end)
        if ip < 0:
            return None
        if buffer[ip : ip + 1] == b"\x45" and ip + 40 <= end:
            total, fragment, protocol, key, seq, ack, offset, flags, window = _IPV4_TCP(buffer, ip)
            header = offset >> 2 & 0x3C
            data = ip + 20 + header
            stop = ip + total
            if protocol == TCP and not fragment & 0x3FFF and header >= 20 and data <= stop <= start + wire:
                options = None
                if header == 32:
                    first, value, echo = _STAMPS(buffer, ip + 40) if data <= end else (0, 0, 0)
                    if first == _NOP_NOP_STAMP:
                        options = _new(Options, (None, None, False, (), value, echo))
                if header > 20 and options is None:
                    options = parse_options(buffer, ip + 40, min(data, end))
                pair = self._pairs.get(key) or self._remember(key)
                payload = buffer[data : stop if stop < end else end] if stop > data else b""
                self.segments += 1
                return _new(
                    Segment,
                    (number, at, *pair, seq, ack, flags, window, stop - data, payload, options, interface),
                )
            if protocol != TCP:
                return None
        return self._slow(frame, ip)

    def _slow(self, frame: Frame, ip: int) -> Segment | None:
        number, buffer, start, end, wire, at, interface, _ = frame
        found = find_tcp(buffer, ip, end, max(start + wire, end))
        if isinstance(found, str):
            if found:
                self.skipped[found] += 1
            return None
        addresses, tcp, stop = found
        if tcp + 20 > end:
            self.skipped["packets are cut before the end of their TCP header"] += 1
            return None
        ports, seq, ack, offset, flags, window = _TCP(buffer, tcp)
        header = offset >> 2 & 0x3C
        data = tcp + header
        if header < 20 or data > stop:
            self.skipped["packets have a malformed TCP header"] += 1
            return None
        options = parse_options(buffer, tcp + 20, min(data, end)) if header > 20 else None
        key = addresses + ports
        source, destination = self._pairs.get(key) or self._remember(key)
        payload = buffer[data : min(stop, end)]
        self.segments += 1
        return Segment(
            number, at, source, destination, seq, ack, flags, window, stop - data, payload, options, interface
        )

    def _remember(self, key: bytes) -> Pair:
        size = (len(key) - 4) // 2
        family = AF_INET if size == 4 else AF_INET6
        ports = (_WORD(key, 2 * size)[0], _WORD(key, 2 * size + 2)[0])
        pair = (
            Endpoint(inet_ntop(family, key[:size]), ports[0]),
            Endpoint(inet_ntop(family, key[size : 2 * size]), ports[1]),
        )
        if len(self._pairs) >= _LARGEST_CACHE:
            self._pairs.clear()
        self._pairs[key] = pair
        return pair

    def _locator(self, interface: int) -> Locator:
        for known in self._interfaces[len(self._locators) :]:
            self._locators.append(locator(known.link_type) or self._unknown(known))
        return self._locators[interface]

    def _unknown(self, interface: Interface) -> Locator:
        reason = f"packets of link type {interface.link_type} are not understood"

        def locate(buffer: bytes, start: int, end: int) -> int:
            self.skipped[reason] += 1
            return -1

        return locate


def locator(link_type: int) -> Locator | None:
    """Return the function that finds the IP header under that link type, None if the type is not known."""
    if link_type == ETHERNET:
        return _ethernet
    if link_type in RAW_IP:
        return _raw
    return {LINUX_SLL: _cooked, LINUX_SLL2: _cooked2, NULL: _loopback, LOOP: _loopback}.get(link_type)


def _by_type(buffer: bytes, position: int, end: int) -> int:
    """Follow the EtherType at `position`, through VLAN tags."""
    kind = buffer[position : position + 2]
    if kind in _IP_TYPES:
        return position + 2
    for _ in range(_LONGEST_CHAIN):
        if kind not in _VLAN_TAGS:
            break
        position += 4
        kind = buffer[position : position + 2]
    return position + 2 if kind in _IP_TYPES and position + 2 <= end else -1


def _ethernet(buffer: bytes, start: int, end: int) -> int:
    return start + 14 if buffer[start + 12 : start + 14] == b"\x08\x00" else _by_type(buffer, start + 12, end)


def _cooked(buffer: bytes, start: int, end: int) -> int:
    return _by_type(buffer, start + 14, end)


def _cooked2(buffer: bytes, start: int, end: int) -> int:
    kind = buffer[start : start + 2]
    if kind in _IP_TYPES:
        return start + 20
    # The protocol comes first here, so a tag's two bytes and the inner type follow the 20-byte header.
    return _by_type(buffer, start + 22, end) if kind in _VLAN_TAGS else -1


def _raw(buffer: bytes, start: int, end: int) -> int:
    return start


def _loopback(buffer: bytes, start: int, end: int) -> int:
    # The family is in the byte order of the machine that captured, whatever the file's own order is.
    family = buffer[start : start + 4]
    known = int.from_bytes(family, "little") in _FAMILIES or int.from_bytes(family, "big") in _FAMILIES
    return start + 4 if known else -1


def find_tcp(buffer: bytes, ip: int, end: int, wire_end: int) -> tuple[bytes, int, int] | str:
    """Return (addresses, offset of the TCP header, offset of the packet's end on the wire), or why there is none.

    The reason is "" for a packet of another protocol. `end` and `wire_end` are where the captured and the sent bytes
    end.
    """
    if ip + 20 > end:
        return "packets are cut before the end of their IP header"
    version = buffer[ip] >> 4
    if version == 4:
        return _find_in_ipv4(buffer, ip, wire_end)
    if version == 6:
        return _find_in_ipv6(buffer, ip, end, wire_end)
    return ""


def _find_in_ipv4(buffer: bytes, ip: int, wire_end: int) -> tuple[bytes, int, int] | str:
    if buffer[ip + 9] != TCP:
        return ""
    header, total = (buffer[ip] & 0x0F) * 4, _WORD(buffer, ip + 2)[0]
    if header < 20 or 0 < total < header:
        return "packets have a malformed IP header"
    if _WORD(buffer, ip + 6)[0] & 0x3FFF:
        return "IP fragments of TCP are not reassembled"
    # Linux writes 0 into the length of a super-segment that is longer than 65,535 bytes.
    stop = min(ip + total, wire_end) if total else wire_end
    return buffer[ip + 12 : ip + 20], ip + header, stop


def _find_in_ipv6(buffer: bytes, ip: int, end: int, wire_end: int) -> tuple[bytes, int, int] | str:
    if ip + 40 > end:
        return "packets are cut before the end of their IP header"
    length, following = _WORD(buffer, ip + 4)[0], buffer[ip + 6]
    stop = min(ip + 40 + length, wire_end) if length else wire_end
    position = ip + 40
    for _ in range(_LONGEST_CHAIN):
        if following == TCP:
            return buffer[ip + 8 : ip + 40], position, stop
        if following not in _EXTENSIONS and following != _FRAGMENT:
            return ""
        if position + 8 > end:
            return "packets are cut before the end of their IP header"
        if following == _FRAGMENT:
            if _WORD(buffer, position + 2)[0] & 0xFFF9:
                return "IP fragments of TCP are not reassembled" if buffer[position] == TCP else ""
            size = 8
        else:
            size = (buffer[position + 1] + 2) * 4 if following == 51 else (buffer[position + 1] + 1) * 8
        following = buffer[position]
        position += size
    return "packets have a malformed IP header"


def parse_options(buffer: bytes, position: int, end: int) -> Options:
    """Return the TCP options in buffer[position:end]; a damaged list ends early (RFC 9293, RFC 7323, RFC 2018)."""
    values: dict[str, int | bool | tuple[tuple[int, int], ...]] = {}
    while position < end:
        kind = buffer[position]
        if kind == 0:
            break
        if kind == 1:
            position += 1
            continue
        size = buffer[position + 1] if position + 1 < end else 0
        if size < 2 or position + size > end:
            break
        _take_option(kind, buffer[position + 2 : position + size], values)
        position += size
    return Options(**values)  # type: ignore[arg-type]


def _take_option(kind: int, body: bytes, values: dict[str, int | bool | tuple[tuple[int, int], ...]]) -> None:
    size = len(body)
    if kind == 2 and size == 2:
        values["mss"] = int.from_bytes(body, "big")
    elif kind == 3 and size == 1:
        values["window_scale"] = body[0]
    elif kind == 4 and size == 0:
        values["sack_permitted"] = True
    elif kind == 5 and size and size % 8 == 0:
        edges = Struct(f">{size // 4}I").unpack(body)
        values["sack"] = tuple(zip(edges[::2], edges[1::2], strict=True))
    elif kind == 8 and size == 8:
        values["timestamp_value"] = int.from_bytes(body[:4], "big")
        values["timestamp_echo"] = int.from_bytes(body[4:], "big")

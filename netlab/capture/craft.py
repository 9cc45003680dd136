"""Make captures by hand: IP packets with right checksums, link headers, pcap files. For tests, demos and benchmarks."""

from collections.abc import Iterable
from pathlib import Path
from socket import AF_INET, AF_INET6, inet_pton
from struct import Struct, pack

from netlab.capture.redact import checksum
from netlab.segments import Endpoint
from netlab.units import NS_PER_S

_RECORD = Struct("<IIII")


def tcp_packet(
    source: Endpoint,
    destination: Endpoint,
    payload: bytes = b"",
    *,
    seq: int = 0,
    ack: int = 0,
    flags: int = 0x10,
    window: int = 512,
    options: bytes = b"",
) -> bytes:
    """Return an IPv4 or IPv6 packet with one TCP segment. `options` are padded to whole words."""
    options += b"\0" * (-len(options) % 4)
    words = 5 + len(options) // 4
    head = pack(">HHIIBBHHH", source.port, destination.port, seq, ack, words << 4, flags, window, 0, 0) + options
    family = AF_INET6 if ":" in source.address else AF_INET
    addresses = inet_pton(family, source.address) + inet_pton(family, destination.address)
    body = head + payload
    total = checksum(addresses + pack(">II", 6, len(body)) + body)
    body = body[:16] + pack(">H", total) + body[18:]
    if family == AF_INET6:
        return pack(">IHBB", 6 << 28, len(body) if len(body) < 1 << 16 else 0, 6, 64) + addresses + body
    length = 20 + len(body)
    # A super-segment's length does not fit; the kernel then writes 0.
    front = pack(">BBHHHBB", 0x45, 0, length if length < 1 << 16 else 0, 1, 0x4000, 64, 6)
    return front + pack(">H", checksum(front + b"\0\0" + addresses)) + addresses + body


def ethernet(packet: bytes, tags: Iterable[tuple[int, int]] = ()) -> bytes:
    """Return `packet` in an Ethernet frame, behind `tags` (EtherType, VLAN number), padded to 60 bytes."""
    kind = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    frame = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" + b"".join(pack(">HH", *tag) for tag in tags) + kind + packet
    return frame.ljust(60, b"\xee")


def pcap(frames: Iterable[tuple[int, bytes]], link_type: int = 1) -> bytes:
    """Return a nanosecond pcap of the (at, frame) pairs."""
    parts = [pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, link_type)]
    for at, frame in frames:
        parts += [_RECORD.pack(*divmod(at, NS_PER_S), len(frame), len(frame)), frame]
    return b"".join(parts)


def write_pcap(path: str | Path, frames: Iterable[tuple[int, bytes]], link_type: int = 1) -> None:
    """Write `pcap(frames)` to `path`."""
    Path(path).write_bytes(pcap(frames, link_type))

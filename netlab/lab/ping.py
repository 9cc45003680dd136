"""Echo requests over a raw ICMP socket: the RTT that a lab really has (RFC 792)."""

import select
import socket
import statistics
import struct
import time

from netlab.errors import LabError
from netlab.record import RttReport
from netlab.units import NS_PER_S

_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_SPACING_NS = 5_000_000
_SO_TIMESTAMPNS = 35
_IDENTIFIER = 0x6E6C


def ping(raw: socket.socket, address: str, *, count: int, patience: int) -> RttReport:
    """Send `count` echo requests 5 ms apart and wait at most `patience` ns for the last reply.

    Times are the kernel's receive stamps less the instant before sending. Raises LabError without any reply.
    """
    raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    raw.setblocking(False)
    sent: dict[int, int] = {}
    trips: dict[int, int] = {}
    start = time.monotonic_ns()
    deadline = start + count * _SPACING_NS + patience
    while len(trips) < count and time.monotonic_ns() < deadline:
        due = start + len(sent) * _SPACING_NS
        if len(sent) < count and time.monotonic_ns() >= due:
            sequence = len(sent)
            packet = _request(sequence)
            sent[sequence] = time.time_ns()
            raw.sendto(packet, (address, 0))
        next_at = due if len(sent) < count else deadline
        wait = max(0, next_at - time.monotonic_ns()) / NS_PER_S
        if select.select([raw], (), (), wait)[0]:
            _receive(raw, sent, trips)
    if not trips:
        raise LabError(f"ping {address}: no reply to {count} requests", hint="the delay line loses everything, or died")
    values = sorted(trips.values())
    return RttReport(
        sent=count, received=len(values), minimum=values[0], median=int(statistics.median(values)), maximum=values[-1]
    )


def _request(sequence: int) -> bytes:
    body = b"netlab".ljust(48, b".")
    header = struct.pack("!BBHHH", _ECHO_REQUEST, 0, 0, _IDENTIFIER, sequence)
    return struct.pack("!BBHHH", _ECHO_REQUEST, 0, _checksum(header + body), _IDENTIFIER, sequence) + body


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return int(~(total + (total >> 16)) & 0xFFFF)


def _receive(raw: socket.socket, sent: dict[int, int], trips: dict[int, int]) -> None:
    packet, ancillary, _flags, _address = raw.recvmsg(2048, 64)
    received = time.time_ns()
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("=qq", data[:16])
            received = seconds * NS_PER_S + nanoseconds
    header = (packet[0] & 0x0F) * 4
    kind, _code, _sum, identifier, sequence = struct.unpack_from("!BBHHH", packet, header)
    if kind == _ECHO_REPLY and identifier == _IDENTIFIER and sequence in sent:
        trips.setdefault(sequence, received - sent[sequence])

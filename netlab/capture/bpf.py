"""The capture filter `tcp port P` as a classic BPF program: IPv4 and IPv6, bare or in one or two VLAN tags.

A capture needs both directions, pure ACKs included, so the port is the only condition. Like the filter that tcpdump
compiles, it does not look behind IPv6 extension headers. Instructions: linux/filter.h, linux/bpf_common.h.
"""

import ctypes
import socket
from struct import Struct

_LD_HALF, _LD_BYTE, _LD_HALF_X = 0x28, 0x30, 0x48  # absolute, absolute, indexed
_LDX_IHL, _JEQ, _JSET, _RET = 0xB1, 0x15, 0x45, 0x06
_SO_ATTACH_FILTER = 26
_INSTRUCTION = Struct("=HBBI")
_WHOLE = 0x40000
Program = list[tuple[int, int, int, int]]


def tcp_port(port: int) -> Program:
    """Return the program that keeps TCP segments from or to `port` on an Ethernet interface."""
    program: Program = []
    for tags in range(3):
        body = _under_type(12 + 4 * tags, port)
        program += body
        # What falls through is neither IPv4 nor IPv6: go on behind the tag, or give up.
        if tags < 2:
            program += [(_JEQ, 2, 0, 0x8100), (_JEQ, 1, 0, 0x88A8), (_RET, 0, 0, 0)]
    return [*program, (_RET, 0, 0, 0)]


def nothing() -> Program:
    """Return the program that keeps no packet."""
    return [(_RET, 0, 0, 0)]


def everything() -> Program:
    """Return the program that keeps every packet."""
    return [(_RET, 0, 0, _WHOLE)]


def attach(packet_socket: socket.socket, program: Program) -> None:
    """Make `program` the socket's filter. Raises OSError."""
    code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = Struct("@HP").pack(len(program), ctypes.addressof(buffer))
    packet_socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, header)


def _under_type(offset: int, port: int) -> Program:
    """Return instructions that decide on IPv4 and IPv6 by the EtherType at `offset`; others fall through."""
    ip = offset + 2
    ports = [(_JEQ, 2, 0, port), (_LD_HALF_X, 0, 0, ip + 2), (_JEQ, 0, 1, port), (_RET, 0, 0, _WHOLE), (_RET, 0, 0, 0)]
    ipv4 = [
        (_LD_BYTE, 0, 0, ip + 9),
        (_JEQ, 0, 8, 6),
        (_LD_HALF, 0, 0, ip + 6),
        (_JSET, 6, 0, 0x1FFF),
        (_LDX_IHL, 0, 0, ip),
        (_LD_HALF_X, 0, 0, ip),
        *ports,
    ]
    ipv6 = [
        (_LD_BYTE, 0, 0, ip + 6),
        (_JEQ, 0, 5, 6),
        (_LD_HALF, 0, 0, ip + 40),
        (_JEQ, 2, 0, port),
        (_LD_HALF, 0, 0, ip + 42),
        (_JEQ, 0, 1, port),
        (_RET, 0, 0, _WHOLE),
        (_RET, 0, 0, 0),
    ]
    return [
        (_LD_HALF, 0, 0, offset),
        (_JEQ, 0, len(ipv4), 0x0800),
        *ipv4,
        (_JEQ, 0, len(ipv6), 0x86DD),
        *ipv6,
    ]

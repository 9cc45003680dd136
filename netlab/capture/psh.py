"""The article's view of a capture: segments from the server with PSH and a payload, by size."""

import re
from collections import Counter
from pathlib import Path
from socket import AF_INET, AF_INET6, inet_pton

from netlab.capture.decode import ETHERNET
from netlab.capture.read import Capture, open_capture
from netlab.diagnosis import PshTable
from netlab.errors import UsageError
from netlab.segments import Endpoint, Flag

# From the EtherType to the protocol: IPv4, 20 bytes of header, no fragment, TCP.
_PLAIN = re.compile(rb"\x08\x00\x45.{5}[\x00\x40]\x00.\x06", re.DOTALL).fullmatch


def psh_table(path: str | Path, server: int | Endpoint) -> PshTable:
    """Return the table of `path` for the server at that port, or at that address and port.

    Equals what tshark counts for `tcp.flags.push == 1 && tcp.len > 0 && tcp.srcport == PORT`. Raises CaptureError.
    """
    with open_capture(path) as capture:
        return table_of(count_pushes(capture, server))


def table_of(sizes: Counter[int]) -> PshTable:
    """Return the table of counted payload sizes (bytes -> segments)."""
    return PshTable(
        segments=sizes.total(),
        bytes=sum(size * count for size, count in sizes.items()),
        sizes=tuple(sorted(sizes.items())),
    )


def count_pushes(capture: Capture, server: int | Endpoint) -> Counter[int]:
    """Read `capture` to its end; return payload size -> PSH segments from `server`. Raises CaptureError."""
    address, port = (b"", server) if isinstance(server, int) else (_packed(server), server.port)
    wanted = port.to_bytes(2, "big")
    plain: dict[int, bool] = {}
    decode, sizes = capture.decoder.segment, Counter[int]()
    for frame in capture.frames():
        _, buffer, start, end, wire, _, interface, _ = frame
        # In Ethernet, IPv4 without options, whole, TCP, a few bytes decide and nothing is built. The rest is decoded.
        if plain.get(interface) and _PLAIN(buffer[start + 12 : start + 24]) and start + 54 <= end:
            if not buffer[start + 47] & 8 or buffer[start + 34 : start + 36] != wanted:
                continue
            total, header = buffer[start + 16] << 8 | buffer[start + 17], buffer[start + 46] >> 2 & 0x3C
            if header >= 20 and 20 + header < total <= wire - 14:
                if not address or buffer[start + 26 : start + 30] == address:
                    sizes[total - 20 - header] += 1
                continue
        plain[interface] = capture.container.interfaces[interface].link_type == ETHERNET
        segment = decode(frame)
        if segment is None or not segment.flags & Flag.PSH or not segment.length or segment.source.port != port:
            continue
        if not address or _packed(segment.source) == address:
            sizes[segment.length] += 1
    return sizes


def _packed(endpoint: Endpoint) -> bytes:
    try:
        return inet_pton(AF_INET6 if ":" in endpoint.address else AF_INET, endpoint.address)
    except OSError as error:
        raise UsageError(f'expected an IP address, got "{endpoint.address}"') from error

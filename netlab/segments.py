"""TCP segments and flows as a capture shows them: what the reader makes and the analysis takes.

Instants are CLOCK_REALTIME nanoseconds. Frame numbers are 1-based positions in the capture file, as
Wireshark counts them. Sequence numbers are the raw 32-bit ones; `analysis` unwraps them.
"""

from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import NamedTuple


class Flag(IntFlag):
    """TCP flags (RFC 9293)."""

    FIN = 0x01
    SYN = 0x02
    RST = 0x04
    PSH = 0x08
    ACK = 0x10
    URG = 0x20
    ECE = 0x40
    CWR = 0x80


class Direction(StrEnum):
    """Which way a segment goes. The client is the side that sent the first SYN, or, without one, the side
    with the higher port; `analysis` may correct the latter from the protocol."""

    TO_SERVER = "to_server"
    TO_CLIENT = "to_client"


class Endpoint(NamedTuple):
    """An address (text form) and a port."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Options(NamedTuple):
    """TCP options of one segment; None where the segment does not carry one."""

    mss: int | None = None
    window_scale: int | None = None
    sack_permitted: bool = False
    sack: tuple[tuple[int, int], ...] = ()  # (left, right) raw sequence numbers
    timestamp_value: int | None = None
    timestamp_echo: int | None = None


class Segment(NamedTuple):
    """One TCP segment as captured (a super-segment where offloads were on).

    A NamedTuple, not a dataclass: a capture holds millions, and this is built five times faster.
    `length` is the TCP payload on the wire; `payload` is what was captured of it (shorter where snaplen cut it).
    """

    frame: int
    at: int
    source: Endpoint
    destination: Endpoint
    seq: int
    ack: int
    flags: int
    window: int  # raw, unscaled
    length: int
    payload: bytes
    options: Options | None = None
    interface: int = 0  # capture interface number


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One capture interface (a pcapng IDB; the whole file for a pcap)."""

    number: int
    name: str | None
    link_type: int
    snaplen: int | None
    drops: int | None = None  # from the pcapng statistics block, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSummary:
    """What was in the file and what was missing. `notes` are sentences for a person."""

    packets: int
    tcp_segments: int
    interfaces: tuple[Interface, ...]
    truncated: bool
    comment: str | None
    notes: tuple[str, ...] = ()

"""What one query took: the times a client saw, packet by packet, and the kernel's view of its connection.

Instants (`_at`) are CLOCK_REALTIME nanoseconds, the clock of captures; durations are nanoseconds.
"""

from dataclasses import dataclass
from enum import StrEnum

from netlab.wire import ServerPacket


class StampSource(StrEnum):
    """Who stamped an arrival."""

    KERNEL = "kernel"  # SO_TIMESTAMPING: when the segment reached the host
    PROCESS = "process"  # read by the probe when recv() returned, before decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpInfo:
    """A socket's tcp_info (Linux include/uapi/linux/tcp.h). Times in ns, windows in segments, sizes in bytes.

    A field that the running kernel does not fill is None.
    """

    state: int
    ca_state: int
    snd_cwnd: int
    snd_ssthresh: int
    snd_mss: int
    rcv_mss: int
    advmss: int
    pmtu: int
    rto: int
    rtt: int
    rttvar: int
    min_rtt: int | None = None
    unacked: int = 0
    sacked: int = 0
    lost: int = 0
    retrans: int = 0
    total_retrans: int = 0
    reordering: int = 0
    last_data_sent: int = 0
    last_data_recv: int = 0
    last_ack_recv: int = 0
    rcv_space: int = 0
    pacing_rate: int | None = None
    notsent_bytes: int | None = None
    bytes_acked: int | None = None
    bytes_received: int | None = None
    segs_out: int | None = None
    segs_in: int | None = None
    data_segs_in: int | None = None
    data_segs_out: int | None = None
    delivery_rate: int | None = None
    busy_time: int | None = None
    rwnd_limited: int | None = None
    sndbuf_limited: int | None = None
    snd_wnd: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One server packet: when its last byte arrived, its bytes on the wire, and its rows where it has any."""

    kind: ServerPacket
    at: int
    size: int
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryException:
    """An Exception that the server sent in answer to a query."""

    code: int
    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One query on one connection. An instant that never came is None, never zero."""

    index: int  # 1-based, as printed
    sent_at: int
    idle: int  # ns that the connection was really silent before sent_at
    first_row_at: int | None
    eos_at: int | None
    rows: int
    bytes: int  # all bytes received from sent_at to the last packet
    arrivals: tuple[Arrival, ...]
    stamps: StampSource
    exception: QueryException | None = None
    client_before: TcpInfo | None = None
    client_after: TcpInfo | None = None
    server_before: TcpInfo | None = None
    server_after: TcpInfo | None = None
    lateness: int | None = None  # worst lateness of the relay while this query ran, where there is a relay
    void: str | None = None  # why this query proves nothing; None for a sound one

    @property
    def first_row(self) -> int | None:
        """ns from the request to the first Data packet with rows."""
        return None if self.first_row_at is None else self.first_row_at - self.sent_at

    @property
    def eos(self) -> int | None:
        """ns from the request to EndOfStream."""
        return None if self.eos_at is None else self.eos_at - self.sent_at

    @property
    def tail(self) -> int | None:
        """ns from the first row to EndOfStream: what the user waits for after the answer is there."""
        if self.first_row_at is None or self.eos_at is None:
            return None
        return self.eos_at - self.first_row_at

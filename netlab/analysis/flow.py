"""Place each segment in its connection's two byte streams: offsets, ACKs, retransmissions, holes.

Sequence numbers are unwrapped into 64-bit stream offsets; offset 0 is the first byte after the SYN, or, in a
capture begun mid-connection, the first byte seen. Pure: segments in, placed segments out. RFC 9293, RFC 7323.
"""

from collections import deque

from netlab.segments import Direction, Endpoint, Segment

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
_MASK, _HALF = 0xFFFFFFFF, 0x80000000
# A hole filled this soon after the byte beyond it was reordering on the path, not a retransmission.
REORDERING_WINDOW = 3_000_000
# A segment that arrives this far below the frontier belongs to no stream we know: the port was reused.
_LOST_SYNC = 1 << 30
_SERVER_PORTS = frozenset({22, 25, 80, 443, 1433, 3306, 5432, 6379, 8123, 8443, 9000, 9004, 9005, 9009, 9440, 27017})


class Placed:
    """A segment with its place in the stream. Mutable while its connection lives; offsets in bytes, times in ns."""

    __slots__ = (
        "ack",
        "acked_at",
        "again",
        "at",
        "down",
        "dup",
        "end",
        "filled_after",
        "flags",
        "frame",
        "length",
        "sack",
        "start",
        "tsecr",
        "tsval",
        "window",
    )

    def __init__(self, segment: Segment, down: bool, start: int, end: int) -> None:
        self.frame = segment.frame
        self.at = segment.at
        self.down = down  # from the server
        self.start = start
        self.end = end
        self.length = end - start
        self.flags = segment.flags
        self.ack = -1  # offset in the other direction's stream; -1 without the ACK flag
        self.window = 0  # bytes, scaled
        self.again = False  # all of it had been captured before
        self.filled_after = -1  # ns that the hole it fills had been open; -1 if it fills none
        self.dup = False  # a duplicate ACK
        self.sack = False
        self.tsval = -1
        self.tsecr = -1
        self.acked_at = -1


class Half:
    """One direction of a connection."""

    __slots__ = (
        "fin",
        "hole_at",
        "holes",
        "isn",
        "largest",
        "lost_captured",
        "mss",
        "next",
        "ref_offset",
        "ref_seq",
        "round_trip",
        "scale",
        "started",
        "una",
        "unacked",
        "window",
    )

    def __init__(self) -> None:
        self.started = False
        self.isn = -1
        self.ref_seq = 0
        self.ref_offset = 0
        self.next = 0  # one past the highest byte seen
        self.una = 0  # highest byte acknowledged by the other side
        self.unacked: deque[Placed] = deque()
        self.scale: int | None = None  # from its SYN
        self.mss: int | None = None  # option in its SYN: the largest segment that it accepts
        self.largest = 0  # largest payload seen
        self.window = -1
        self.fin = False
        self.holes: list[list[int]] = []  # [start, end, opened_at] not yet captured
        self.lost_captured = 0  # bytes that were acknowledged but never captured
        self.round_trip = -1  # least ns from this half's data to the ACK of it, as seen here

    def offset(self, seq: int) -> int:
        """Return the stream offset of a raw sequence number, the nearest one to the frontier."""
        return self.ref_offset + ((seq - self.ref_seq + _HALF) & _MASK) - _HALF

    def begin(self, seq: int) -> None:
        """Make `seq` offset 0."""
        self.started = True
        self.ref_seq = seq & _MASK
        self.ref_offset = self.next = self.una = 0


def flow_key(segment: Segment) -> tuple[int, Endpoint, Endpoint]:
    """Return the key of a segment's direction: interface, source, destination."""
    return segment.interface, segment.source, segment.destination


def server_is_source(segment: Segment) -> bool:
    """Tell which side serves, from the first segment seen: SYN, SYN-ACK, a known port, else the lower port."""
    flags = segment.flags & (SYN | ACK)
    if flags == SYN:
        return False
    if flags == SYN | ACK:
        return True
    source, destination = segment.source.port, segment.destination.port
    if (source in _SERVER_PORTS) != (destination in _SERVER_PORTS):
        return source in _SERVER_PORTS
    return source < destination


def place(segment: Segment, down: bool, mine: Half, other: Half) -> Placed:
    """Return `segment` placed in `mine`'s stream, and note what its ACK says about `other`'s."""
    seq = segment.seq
    flags = segment.flags
    if not mine.started:
        mine.begin(seq + 1 if flags & SYN else seq)
    start = mine.ref_offset + ((seq - mine.ref_seq + _HALF) & _MASK) - _HALF
    if flags & SYN:
        start += 1
        _note_syn(segment, mine)
    end = start + segment.length
    placed = Placed(segment, down, start, end)
    options = segment.options
    if options is not None:
        value, echo = options.timestamp_value, options.timestamp_echo
        if value is not None:
            placed.tsval = value
            placed.tsecr = -1 if echo is None else echo
        if options.sack:
            placed.sack = True
    if end > start:
        _place_data(placed, mine)
    if flags & ACK:
        _place_ack(segment, placed, mine, other)
    if flags & FIN:
        mine.fin = True
    return placed


def _note_syn(segment: Segment, mine: Half) -> None:
    mine.isn = segment.seq
    if segment.options is not None:
        mine.scale = segment.options.window_scale
        mine.mss = segment.options.mss


def _place_data(placed: Placed, mine: Half) -> None:
    start, end = placed.start, placed.end
    mine.largest = max(mine.largest, placed.length)
    if start == mine.next:
        mine.next = end
    elif start > mine.next:
        mine.holes.append([mine.next, start, placed.at])
        mine.next = end
    elif mine.holes and _fill(placed, mine):
        mine.next = max(mine.next, end)
    elif end <= mine.next:
        if placed.length == 1 and end == mine.next and end <= mine.una:
            placed.end = placed.start  # a keep-alive or a window probe: no data of the application
            placed.length = 0
            return
        placed.again = True
    else:
        placed.start = start  # an overlap: the new bytes are what counts
        mine.next = end
    if mine.next - mine.ref_offset > _LOST_SYNC // 2:
        mine.ref_seq = (mine.ref_seq + mine.next - mine.ref_offset) & _MASK
        mine.ref_offset = mine.next
    mine.unacked.append(placed)


def _fill(placed: Placed, mine: Half) -> bool:
    for index, (left, right, opened_at) in enumerate(mine.holes):
        if placed.start < right and placed.end > left:
            placed.filled_after = placed.at - opened_at
            rest = [[left, placed.start, opened_at], [placed.end, right, opened_at]]
            mine.holes[index : index + 1] = [hole for hole in rest if hole[0] < hole[1]]
            return True
    return False


def _place_ack(segment: Segment, placed: Placed, mine: Half, other: Half) -> None:
    if not other.started:
        other.begin(segment.ack)
    ack = other.ref_offset + ((segment.ack - other.ref_seq + _HALF) & _MASK) - _HALF
    placed.ack = ack
    scaled = mine.scale is not None and other.scale is not None and not segment.flags & SYN
    window = segment.window << (mine.scale or 0) if scaled else segment.window
    placed.window = window
    if ack > other.una:
        other.una = ack
        _acknowledge(placed, ack, other)
    elif ack == other.una and not placed.length and other.unacked and not segment.flags & (SYN | FIN | RST):
        placed.dup = window == mine.window or placed.sack
    mine.window = window


def _acknowledge(by: Placed, ack: int, other: Half) -> None:
    unacked = other.unacked
    newest: Placed | None = None
    at = by.at
    while unacked and unacked[0].end <= ack:
        newest = unacked.popleft()
        newest.acked_at = at
    if newest is not None and not newest.again and newest.filled_after < 0:
        took = at - newest.at
        if other.round_trip < 0 or took < other.round_trip:
            other.round_trip = took
    if other.holes and other.holes[0][0] < ack:
        _close_holes(ack, other)
    if ack > other.next + other.fin:
        # An ACK of bytes that the capture never held.
        other.lost_captured += ack - other.next
        other.next = ack


def _close_holes(ack: int, other: Half) -> None:
    kept = []
    for left, right, opened_at in other.holes:
        if left < ack:
            other.lost_captured += min(right, ack) - left
        if right > ack:
            kept.append([max(left, ack), right, opened_at])
    other.holes = kept


def direction(down: bool) -> Direction:
    """Return the public name of a direction."""
    return Direction.TO_CLIENT if down else Direction.TO_SERVER

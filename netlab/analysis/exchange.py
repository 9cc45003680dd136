"""Cut a connection into exchanges: one request, one response.

Where the protocol is known, its own packets say where a response ends; elsewhere turn-taking does: a client that
sends new data after the server has answered has begun the next request. A request sent in two halves is one.
"""

from netlab.analysis.flow import FIN, RST, SYN, Half, Placed, place
from netlab.analysis.labels import Labeller, Mark, Reassembler
from netlab.analysis.native import native_labeller
from netlab.analysis.raw import Raw
from netlab.analysis.transfer import SenderClock
from netlab.analysis.vantage import Timing
from netlab.diagnosis import ExchangeKind, Protocol
from netlab.segments import Endpoint, Segment
from netlab.units import NS_PER_MS, NS_PER_S

_TLS_HANDSHAKE, _TLS_CHANGE_CIPHER, _TLS_ALERT = 0x16, 0x14, 0x15
# ChangeCipherSpec and an encrypted Finished, alone: the largest is 6 + 5 + 69 bytes.
_LARGEST_TLS_FINISHED = 110
_LONG_ENOUGH = NS_PER_S // 2
_BASE_LIFE = 30 * NS_PER_S
_TICKS = (1_000, NS_PER_MS, 2 * NS_PER_MS, 4 * NS_PER_MS, 10 * NS_PER_MS, 100 * NS_PER_MS)
_LATE = 8  # finished exchanges that late labels may still reach
_LARGEST_PACKET = 64 << 20
_POSTGRES_STARTUP = frozenset({b"\x00\x03\x00\x00", b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"})


class Conversation:
    """One connection while its segments come. `finished` collects exchanges that ended."""

    def __init__(self, index: int, client: Endpoint, server: Endpoint, limit: int) -> None:
        self.index = index
        self.client = client
        self.server = server
        self.limit = limit
        self.up, self.down = Half(), Half()
        self.current: Raw | None = None
        self.finished: list[Raw] = []
        self.protocol = Protocol.OTHER
        self.labeller: Labeller | None = None
        self.streams = (Reassembler(), Reassembler())  # up, down
        self.sniffed = False
        self.ended = False  # the last response is complete, by the protocol
        self.closed_by: bool | None = None  # True: the server closed first
        self.reset = False
        self.syn_at = self.syn_ack_at = self.ack_at = -1
        self.syn_resent = 0
        self.last_at = 0
        self.last_data = [-1, -1]  # up, down
        self.labelled = 0  # the server's stream has labels up to here
        self.stamped = False
        self.stamps: list[tuple[int, int]] = []  # (at, timestamp) of the server's first and newest segment
        self.tick = NS_PER_MS
        self.bases = (0, 0)  # least difference of capture time and timestamp: now, and before
        self.base_since = -_BASE_LIFE * 2
        self.queries = 0
        self.session = False  # a handshake of the protocol is going on
        self.waiting = 0  # segments in `finished`
        self.keep_alives = 0
        self.pipelined = 0

    @property
    def complete(self) -> bool:
        """Whether the capture holds the SYN."""
        return self.up.isn >= 0 or self.down.isn >= 0

    def timing(self) -> Timing:
        """Return the round-trip samples so far."""
        clean = not self.syn_resent
        syn = self.syn_ack_at - self.syn_at if clean and self.syn_at >= 0 and self.syn_ack_at >= 0 else -1
        ack = self.ack_at - self.syn_ack_at if self.syn_ack_at >= 0 and self.ack_at >= 0 else -1
        return Timing(syn=syn, syn_ack=ack, data_up=self.up.round_trip, data_down=self.down.round_trip)

    def feed(self, segment: Segment, down: bool) -> None:
        """Take the connection's next segment."""
        mine, other = (self.down, self.up) if down else (self.up, self.down)
        edge, una = (self.up.una + max(self.down.window, 0), self.up.una) if not down else (0, 0)
        placed = place(segment, down, mine, other)
        self.last_at = segment.at
        if placed.tsval >= 0:
            self._stamp(placed)
        if segment.flags & (SYN | FIN | RST):
            self._control(segment, down)
        elif self.ack_at < 0 and not down and self.syn_ack_at >= 0:
            self.ack_at = segment.at
        if placed.end > placed.start:
            self._data(segment, placed, (una, edge))
        elif segment.length:
            self.keep_alives += 1
        current = self.current
        if current is not None:
            current.placed.append(placed)
            if len(current.placed) > self.limit:
                self._cut(current)

    def _stamp(self, placed: Placed) -> None:
        self.stamped = True
        if not placed.down:
            return
        if not self.stamps:
            self.stamps = [(placed.at, placed.tsval)]
        else:
            self.stamps[1:] = [(placed.at, placed.tsval)]
        late = placed.at - placed.tsval * self.tick
        if placed.at - self.base_since > _BASE_LIFE:
            # Clocks drift apart: the least difference is that of the last minute or so.
            self.bases = (late, self.bases[0] if self.bases[0] else late)
            self.base_since = placed.at
            self._learn_tick()
        elif late < self.bases[0]:
            self.bases = (late, self.bases[1])

    def _learn_tick(self) -> None:
        """Tell the unit of the server's timestamps once they have run long enough: 1 ms in Linux, others elsewhere."""
        (first_at, first), (last_at, last) = self.stamps[0], self.stamps[-1]
        ticks = (last - first) & 0xFFFFFFFF
        if last_at - first_at < _LONG_ENOUGH or not 0 < ticks < 1 << 31:
            return
        measured = (last_at - first_at) / ticks
        nearest = min(_TICKS, key=lambda tick: abs(tick - measured))
        # Jitter on the path bends a short measurement.
        known = nearest if abs(nearest - measured) < nearest * 0.05 + _LONG_ENOUGH / 2 / ticks else 0
        if known != self.tick:
            self.tick = known
            late = last_at - last * known
            self.bases = (late, late)

    def clock(self) -> SenderClock | None:
        """Return the server's clock as the tap sees it; None without timestamps."""
        if not self.stamped or not self.stamps:
            return None
        self._learn_tick()
        return SenderClock(tick=self.tick, base=min(self.bases)) if self.tick else None

    def finish(self) -> None:
        """End the connection: what is open becomes an exchange, a lone goodbye does not."""
        if self.labeller is not None:
            self._spread(self._moved(self.labeller.finish()))
        current = self.current
        self.current = None
        if current is None:
            return
        if current.first_down is None and not self.reset and self.closed_by is False:
            return
        self._done(current)

    def _control(self, segment: Segment, down: bool) -> None:
        flags = segment.flags
        if flags & SYN:
            if down:
                self.syn_ack_at = segment.at if self.syn_ack_at < 0 else self.syn_ack_at
            else:
                self.syn_resent += self.syn_at >= 0
                self.syn_at = segment.at
        elif self.closed_by is None:
            self.closed_by = down
        if flags & RST:
            self.reset = True

    def _data(self, segment: Segment, placed: Placed, before: tuple[int, int]) -> None:
        down = placed.down
        marks = self._label(segment, placed) if self.labeller is not None or not self.sniffed else []
        if placed.again or placed.filled_after >= 0:
            if down and placed.filled_after >= 0 and self.current is not None:
                self.current.last_byte_at = placed.at
            self._note(marks, placed)
            return
        if down:
            self._response(segment, placed)
        else:
            self._request(segment, placed, marks, before)
        self._note(marks, placed)
        self.last_data[down] = placed.at

    def _request(self, segment: Segment, placed: Placed, marks: list[Mark], before: tuple[int, int]) -> None:
        current = self.current
        if self.protocol is Protocol.TLS and segment.payload[:1] == bytes([_TLS_ALERT]):
            return
        if current is None or self._answered(current, placed, marks):
            if current is not None:
                self._done(current)
            current = self._begin(placed, segment.payload)
            current.up_una, current.up_edge = before
            self.ended = False
        if current.first_up is None:
            current.first_up = placed
        current.request_bytes += placed.length
        if current.first_down is None:
            current.request_end_at = placed.at

    def _answered(self, current: Raw, placed: Placed, marks: list[Mark]) -> bool:
        """Whether the client's new data begin the next exchange."""
        live = self.labeller is not None and self.labeller.recognised and all(each.whole for each in self.streams)
        if not live:
            return current.first_down is not None
        mine = [mark.label for mark in marks if not mark.down]
        if set(mine) == {"Addendum"} and max(mark.end for mark in marks) >= placed.end:
            return False  # it answers the server's Hello: the handshake's last word, not a request
        if self.ended:
            return True
        if mine:
            return current.first_down is not None and bool({"Query", "Ping"} & set(mine))
        # Server bytes without a label for so long mean that the labels have ended.
        return current.first_down is not None and self.labelled < self.streams[1].next - _LARGEST_PACKET

    def _response(self, segment: Segment, placed: Placed) -> None:
        current = self.current
        if current is None:
            current = self._begin(placed, b"")
        if self.protocol is Protocol.TLS and segment.payload[:1] == bytes([_TLS_ALERT]) and current.first_down:
            return
        if current.first_down is None:
            current.first_down = placed
            current.down_una = min(self.down.una, placed.start)
            current.down_edge = self.down.una + max(self.up.window, 0)
        current.response_bytes += placed.length
        current.last_byte_at = placed.at

    def _begin(self, placed: Placed, head: bytes) -> Raw:
        raw = Raw()
        raw.head = head[:16]
        raw.last_up_at = self.last_data[0] if self.last_data[0] >= 0 else None
        raw.last_down_at = self.last_data[1] if self.last_data[1] >= 0 else None
        known = [at for at in self.last_data if at >= 0]
        raw.last_activity = max(known) if known else None
        raw.kind = self._kind(placed, head)
        self.current = raw
        return raw

    def _kind(self, placed: Placed, head: bytes) -> ExchangeKind:
        if placed.down:
            return ExchangeKind.HANDSHAKE  # a server that greets first
        if self.protocol is Protocol.TLS and head:
            finished = head[0] == _TLS_CHANGE_CIPHER and placed.length <= _LARGEST_TLS_FINISHED
            return ExchangeKind.HANDSHAKE if head[0] == _TLS_HANDSHAKE or finished else ExchangeKind.QUERY
        if head[4:8] in _POSTGRES_STARTUP and placed.start < 64:
            self.session = True
            return ExchangeKind.HANDSHAKE
        if self.session and head[:1] == b"p":
            return ExchangeKind.HANDSHAKE
        self.session = False
        return ExchangeKind.QUERY

    def _label(self, segment: Segment, placed: Placed) -> list[Mark]:
        down = placed.down
        if not segment.payload and not self.sniffed:
            return []
        stream = self.streams[down]
        start = (self.down if down else self.up).offset(segment.seq)
        if not self.sniffed and not down:
            self._sniff(segment.payload)
        if self.sniffed and self.labeller is None:
            return []
        data = stream.feed(start, segment.payload, segment.length)
        if self.labeller is None or not data:
            return []
        return self._moved(self.labeller.feed(down, data))

    def _sniff(self, payload: bytes) -> None:
        """Tell the protocol from the client's first bytes."""
        self.sniffed = True
        if payload[0] == _TLS_HANDSHAKE and payload[1:2] == b"\x03":
            self.protocol = Protocol.TLS
            return
        self.labeller = native_labeller(payload, complete=self.up.isn >= 0)
        came = self.streams[1]
        if self.labeller is not None and came.first >= 0 and came.next > came.first:
            # What the server said before is the end of an answer to a query that was not captured.
            self.labeller.feed(True, bytes(min(came.next - came.first, _LARGEST_PACKET)))

    def _moved(self, marks: list[Mark]) -> list[Mark]:
        up, down = max(self.streams[0].first, 0), max(self.streams[1].first, 0)
        if marks:
            self.protocol = Protocol.CLICKHOUSE_NATIVE
        if not up and not down:
            return marks
        return [
            mark._replace(start=mark.start + shift, end=mark.end + shift)
            for mark in marks
            for shift in (down if mark.down else up,)
        ]

    def _note(self, marks: list[Mark], placed: Placed) -> None:
        for mark in marks:
            raw, at = self._home(mark, placed)
            if raw is None:
                continue
            if mark.down:
                self.labelled = mark.end
            if mark.ends_response and raw is self.current:
                self.ended = True
            self._take(mark, raw, at)

    def _take(self, mark: Mark, raw: Raw, at: int) -> None:
        raw.marks[mark.down].append(mark)
        if not mark.down:
            self._note_request(raw, mark)
        elif mark.label == "EndOfStream":
            raw.response_end_at = at
        elif mark.label == "Exception":
            raw.exceptions.append(mark.text or "")
        elif mark.label == "Data" and mark.rows and raw.first_row_at is None:
            raw.first_row_at = at

    def _spread(self, marks: list[Mark]) -> None:
        """Give marks that came at the end of the streams to the exchanges that hold their last bytes."""
        raws = [*self.finished, *([self.current] if self.current is not None else [])]
        for down in (False, True):
            ends = [
                (each.end, each.at, raw) for raw in raws for each in raw.placed if each.down is down and each.length
            ]
            ends.sort(key=lambda end: end[0])
            cursor = 0
            for mark in sorted((mark for mark in marks if mark.down is down), key=lambda mark: mark.end):
                while cursor < len(ends) and ends[cursor][0] < mark.end:
                    cursor += 1
                if cursor < len(ends):
                    _, at, raw = ends[cursor]
                    self._take(mark, raw, at)

    def _home(self, mark: Mark, placed: Placed) -> tuple[Raw | None, int]:
        """Return the exchange that a mark belongs to, and when its last byte was captured.

        Marks come late where the capture began mid-connection and several readings had to be tried.
        """
        current = self.current
        if mark.down == placed.down and mark.end > placed.start:
            return current, placed.at
        for raw in (*([current] if current is not None else []), *reversed(self.finished[-_LATE:])):
            for each in reversed(raw.placed):
                if each.down == mark.down and each.start < mark.end <= each.end:
                    return raw, each.at
        return current, placed.at

    def _note_request(self, current: Raw, mark: Mark) -> None:
        if mark.label == "Query":
            current.kind = ExchangeKind.QUERY
            current.query = mark.text
        elif mark.label in ("Hello", "Addendum") and current.query is None:
            current.kind = ExchangeKind.HANDSHAKE
        elif mark.label == "Ping" and current.query is None:
            current.kind = ExchangeKind.PING

    def _cut(self, current: Raw) -> None:
        keep = self.limit // 3
        placed = current.placed
        current.cut += len(placed) - 2 * keep
        current.placed = placed[:keep] + placed[-keep:]

    def _done(self, current: Raw) -> None:
        current.clock = self.clock()
        self.finished.append(current)
        self.waiting += len(current.placed)
        self.current = None

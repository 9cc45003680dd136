"""A small deterministic TCP: two ends, a path, and what a tap at either end would capture.

Linux's habits in outline: slow start, the restart after idle, Nagle, cork, delayed ACK, SACK-less duplicate ACKs, fast
retransmit, tail loss probe, RTO, receive window, pacing, a send buffer. Time is ns; nothing is random but what a
seed gives. For tests only: it knows what it does, so a test knows the cause.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from netlab.segments import Endpoint, Flag, Options, Segment

CLIENT = Endpoint("10.0.0.1", 40000)
SERVER = Endpoint("10.0.0.2", 9000)
MS = 1_000_000
START = 1_700_000_000 * 1_000_000_000


@dataclass
class Side:
    """Settings of one end."""

    initcwnd: int = 10
    nagle: bool = False
    cork: bool = False
    restart_after_idle: bool = True
    delayed_ack: bool = False
    pace: int | None = None  # bytes per second
    send_buffer: int | None = None
    receive_window: int = 1 << 20
    read_rate: int | None = None  # bytes per second that the application takes; None: all at once
    isn: int = 1000
    tlp: bool = True


@dataclass
class Path:
    """The way from one end to the other."""

    delay: int = 0
    rate: int | None = None  # bits per second
    jitter: int = 0
    lose: Callable[[int, int, int], bool] = lambda start, end, nth: False  # nth time these bytes are sent


@dataclass
class _End:
    name: str
    side: Side
    cwnd: int = 0
    una: int = 0
    nxt: int = 0
    written: int = 0
    bounds: list[int] = field(default_factory=list)  # ends of writes not yet sent
    data: bytearray = field(default_factory=bytearray)
    flying: list[tuple[int, int]] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    rcv: int = 0
    ooo: list[tuple[int, int]] = field(default_factory=list)
    unread: int = 0
    unread_at: int = 0
    pending_ack: int = 0
    delack: int = 0
    last_sent: int = -1
    timer: int = 0
    peer_window: int = 1 << 20
    dups: int = 0
    recover: int = -1
    pace_at: int = 0
    ssthresh: int = 1 << 30
    ts_recent: int = 0
    buffered: list[bytes] = field(default_factory=list)
    probed: bool = False
    zero: bool = False
    cork_timer: int = 0


class Net:
    """One connection. Script it with `at`, `write`, then `run`; read `taps["client"]` and `taps["server"]`."""

    def __init__(
        self,
        *,
        up: Path,
        down: Path,
        client: Side | None = None,
        server: Side | None = None,
        mss: int = 1448,
        seed: int = 1,
        timestamps: bool = True,
    ) -> None:
        self.paths = {"client": up, "server": down}
        self.ends = {"client": _End("client", client or Side()), "server": _End("server", server or Side(isn=5000))}
        for end in self.ends.values():
            end.cwnd = end.side.initcwnd
        self.mss = mss
        self.timestamps = timestamps
        self.random = random.Random(seed)
        self.now = START
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.count = itertools.count()
        self.free = {"client": 0, "server": 0}
        self.last_due = {"client": 0, "server": 0}
        self.taps: dict[str, list[Segment]] = {"client": [], "server": []}
        self.on_data: dict[str, Callable[[], None]] = {}
        self.rtt = up.delay + down.delay

    # ---- scripting

    def after(self, delay: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.count), action))

    def run(self, limit: int = 2_000_000) -> None:
        for _ in range(limit):
            if not self.events:
                return
            at, _, action = heapq.heappop(self.events)
            self.now = max(self.now, at)
            action()
        raise AssertionError("the simulation does not end")

    def connect(self) -> None:
        self._emit("client", -1, b"", Flag.SYN, syn=True)
        self._travel("client", 60, self._emit_synack)

    def _emit_synack(self) -> None:
        self._tap_arrival("server")
        self._emit("server", -1, b"", Flag.SYN | Flag.ACK, syn=True)
        self._travel("server", 60, self._emit_handshake_ack)

    def _emit_handshake_ack(self) -> None:
        self._tap_arrival("client")
        self._send_ack("client")

    def write(self, name: str, payload: bytes) -> None:
        end = self.ends[name]
        if end.side.send_buffer is not None and end.written - end.una >= end.side.send_buffer:
            end.buffered.append(payload)
            return
        if end.side.send_buffer is not None:
            room = end.side.send_buffer - (end.written - end.una)
            if len(payload) > room:
                end.buffered.insert(0, payload[room:])
                payload = payload[:room]
        # A small unsent tail takes the new bytes in: tcp_sendmsg appends to it.
        start = end.bounds[-2] if len(end.bounds) > 1 else end.nxt
        if end.bounds and (end.bounds[-1] - start) % self.mss and start >= end.nxt:
            end.bounds.pop()
        end.data += payload
        end.written += len(payload)
        end.bounds.append(end.written)
        self._push(name)

    # ---- sending

    def _push(self, name: str, *, force: bool = False) -> None:
        end = self.ends[name]
        while end.nxt < end.written:
            while end.bounds and end.bounds[0] <= end.nxt:
                end.bounds.pop(0)
            size = min(self.mss, (end.bounds[0] if end.bounds else end.written) - end.nxt)
            if not end.flying and end.last_sent >= 0 and end.side.restart_after_idle:
                idle, rto = self.now - end.last_sent, self._rto()
                while idle > rto and end.cwnd > min(end.side.initcwnd, end.cwnd):
                    end.cwnd = max(end.cwnd // 2, min(end.side.initcwnd, end.cwnd))
                    idle -= rto
            if len(end.flying) >= end.cwnd:
                return
            if end.nxt + size - end.una > end.peer_window:
                end.zero = True
                return
            small = size < self.mss
            if small and end.side.nagle and any(b - a < self.mss for a, b in end.flying) and not force:
                return
            if small and end.side.cork and not force:
                if not end.flying:
                    self._cork(name)
                return
            if end.side.pace is not None and end.pace_at > self.now:
                self.after(end.pace_at - self.now, lambda: self._push(name))
                return
            end.pace_at = self.now + size * 1_000_000_000 // end.side.pace if end.side.pace is not None else 0
            self._send(name, end.nxt, end.nxt + size)
            end.flying.append((end.nxt, end.nxt + size))
            end.nxt += size

    def _cork(self, name: str) -> None:
        end = self.ends[name]
        end.cork_timer += 1
        mine = end.cork_timer
        self.after(self._rto(), lambda: self._push(name, force=True) if end.cork_timer == mine else None)

    def _rto(self) -> int:
        return 200 * MS + self.rtt

    def _send(self, name: str, start: int, stop: int) -> None:
        end = self.ends[name]
        end.last_sent = self.now
        nth = end.counts.get(start, 0)
        end.counts[start] = nth + 1
        self._emit(name, start, bytes(end.data[start:stop]), Flag.ACK | Flag.PSH)
        end.pending_ack = 0
        if not self.paths[name].lose(start, stop, nth):
            other = "server" if name == "client" else "client"
            copy = self._copy(name)
            self._travel(name, stop - start + 66, lambda: self._receive(other, start, stop, copy))
        self._arm(name)

    def _arm(self, name: str) -> None:
        end = self.ends[name]
        end.timer += 1
        mine = end.timer
        if not end.flying and end.nxt == end.una and end.last_sent < 0:
            return
        lone = len(end.flying) <= 1
        wait = self._rto() if lone or not end.side.tlp or end.probed else min(2 * self.rtt + 8 * MS, self._rto())
        self.after(wait, lambda: self._expire(name) if end.timer == mine else None)

    def _expire(self, name: str) -> None:
        end = self.ends[name]
        if not end.flying:
            return
        if end.side.tlp and not end.probed and len(end.flying) > 1:
            end.probed = True
            self._send(name, *end.flying[-1])
            return
        end.ssthresh = max(len(end.flying) // 2, 2)
        end.cwnd = 1
        end.recover = end.nxt
        end.probed = True
        self._send(name, *end.flying[0])

    # ---- receiving

    def _receive(self, name: str, start: int, stop: int, segment: Segment) -> None:
        self._record(name, segment)
        end = self.ends[name]
        end.ts_recent = segment.options.timestamp_value if segment.options else 0
        self._take_ack(name, segment)
        if start > end.rcv:
            end.ooo.append((start, stop))
            self._send_ack(name)
            return
        before = end.rcv
        end.rcv = max(end.rcv, stop)
        for left, right in sorted(end.ooo):
            if left <= end.rcv < right:
                end.rcv = right
        end.ooo = [each for each in end.ooo if each[1] > end.rcv]
        self._read(end, end.rcv - before)
        end.pending_ack += 1
        end.delack += 1
        mine = end.delack
        if end.side.delayed_ack and end.pending_ack < 2 and not end.ooo:
            self.after(40 * MS, lambda: self._send_ack(name) if end.delack == mine and end.pending_ack else None)
        else:
            self._send_ack(name)
        if name in self.on_data:
            self.on_data[name]()

    def _read(self, end: _End, arrived: int) -> None:
        if end.side.read_rate is None:
            return
        self._drain(end)
        end.unread += arrived
        if self._window(end) < 2 * self.mss:
            name = end.name
            self.after(2 * self.mss * 1_000_000_000 // end.side.read_rate, lambda: self._update(name))

    def _update(self, name: str) -> None:
        end = self.ends[name]
        self._drain(end)
        if self._window(end) >= 2 * self.mss or not end.unread:
            self._send_ack(name)
        else:
            self.after(self.mss * 1_000_000_000 // (end.side.read_rate or 1), lambda: self._update(name))

    def _drain(self, end: _End) -> None:
        taken = (self.now - end.unread_at) * (end.side.read_rate or 0) // 1_000_000_000
        end.unread = max(0, end.unread - taken)
        end.unread_at = self.now

    def _window(self, end: _End) -> int:
        return max(0, end.side.receive_window - end.unread)

    def _take_ack(self, name: str, segment: Segment) -> None:
        end = self.ends[name]
        other = self.ends["server" if name == "client" else "client"]
        ack = segment.ack - (end.side.isn + 1)
        ack = ((ack + 0x80000000) & 0xFFFFFFFF) - 0x80000000
        before = end.peer_window
        end.peer_window = self._scaled(other, segment)
        if ack > end.una:
            acked = [each for each in end.flying if each[1] <= ack]
            limited = len(end.flying) >= end.cwnd or end.cwnd < 2 * len(end.flying)
            end.flying = [each for each in end.flying if each[1] > ack]
            end.una = ack
            end.dups = 0
            end.probed = False
            if limited and end.cwnd < end.ssthresh:
                end.cwnd += len(acked)
            if end.recover >= 0 and ack < end.recover and end.flying:
                self._send(name, *end.flying[0])
            elif ack >= end.recover:
                end.recover = -1
            self._arm(name)
            if end.side.cork and end.nxt < end.written and not end.flying:
                self._cork(name)
            while end.buffered and end.written - end.una < (end.side.send_buffer or 0):
                self.write(name, end.buffered.pop(0))
            self._push(name)
        elif ack == end.una and end.flying and not segment.length and end.peer_window == before:
            end.dups += 1
            # RACK: a selective ACK of the probe proves what was sent before it lost.
            if (end.dups == 3 or (end.probed and segment.options and segment.options.sack)) and end.recover < 0:
                end.recover = end.nxt
                end.ssthresh = max(len(end.flying) // 2, 2)
                end.cwnd = end.ssthresh
                self._send(name, *end.flying[0])
        elif end.peer_window > before:
            self._push(name)

    def _scaled(self, other: _End, segment: Segment) -> int:
        return segment.window << 7

    def _send_ack(self, name: str) -> None:
        end = self.ends[name]
        end.pending_ack = 0
        self._emit(name, end.nxt, b"", Flag.ACK)
        copy = self._copy(name)
        other = "server" if name == "client" else "client"

        def arrive() -> None:
            self._record(other, copy)
            self.ends[other].ts_recent = copy.options.timestamp_value if copy.options else 0
            self._take_ack(other, copy)

        self._travel(name, 66, arrive)

    # ---- the wire

    def _travel(self, name: str, size: int, arrive: Callable[[], None]) -> None:
        path = self.paths[name]
        depart = self.now
        if path.rate is not None:
            depart = max(self.now, self.free[name]) + size * 8 * 1_000_000_000 // path.rate
            self.free[name] = depart
        due = depart + path.delay + (self.random.randint(0, 2 * path.jitter) if path.jitter else 0)
        due = max(due, self.last_due[name] + 1000)
        self.last_due[name] = due
        self.after(due - self.now + 20_000, arrive)

    def _emit(self, name: str, start: int, payload: bytes, flags: int, *, syn: bool = False) -> None:
        end = self.ends[name]
        mine, other = (CLIENT, SERVER) if name == "client" else (SERVER, CLIENT)
        peer = self.ends["server" if name == "client" else "client"]
        options = None
        if self.timestamps or syn:
            options = Options(
                mss=self.mss + 12 * self.timestamps if syn else None,
                window_scale=7 if syn else None,
                sack_permitted=syn,
                timestamp_value=(self.now // MS) & 0xFFFFFFFF if self.timestamps else None,
                timestamp_echo=end.ts_recent if self.timestamps else None,
                sack=tuple((end.side.isn + a, end.side.isn + b) for a, b in end.ooo[:3]),
            )
        self.last = Segment(
            frame=0,
            at=self.now,
            source=mine,
            destination=other,
            seq=(end.side.isn + 1 + start) & 0xFFFFFFFF,
            ack=(peer.side.isn + 1 + end.rcv) & 0xFFFFFFFF if flags & Flag.ACK else 0,
            flags=int(flags),
            window=min(65535, self._window(end) >> (0 if syn else 7)),
            length=len(payload),
            payload=payload,
            options=options,
        )
        self._record(name, self.last)

    def _copy(self, name: str) -> Segment:
        return self.last

    def _tap_arrival(self, name: str) -> None:
        self._record(name, self.last)

    def _record(self, name: str, segment: Segment) -> None:
        tap = self.taps[name]
        tap.append(segment._replace(frame=len(tap) + 1, at=self.now))


@dataclass
class Turn:
    """One exchange: silence of the client before it, what it writes, what the server then writes: (pause, bytes)."""

    idle: int
    asks: list[tuple[int, bytes]]
    answers: list[tuple[int, bytes]]


def converse(net: Net, turns: list[Turn]) -> None:
    """Play `turns` one after the other on a new connection, to the end."""
    net.connect()
    position = {"asked": -1, "answered": -1}
    need = list(itertools.accumulate(sum(len(data) for _, data in turn.asks) for turn in turns))
    want = list(itertools.accumulate(sum(len(data) for _, data in turn.answers) for turn in turns))

    def play(name: str, writes: list[tuple[int, bytes]]) -> None:
        delay = 0
        for pause, data in writes:
            delay += pause + 15_000
            net.after(delay, lambda data=data: net.write(name, data))

    def ask() -> None:
        position["asked"] += 1
        play("client", turns[position["asked"]].asks)

    def answer() -> None:
        now = position["asked"]
        if now > position["answered"] and net.ends["server"].rcv >= need[now]:
            position["answered"] = now
            play("server", turns[now].answers)

    def done() -> None:
        now = position["asked"]
        whole = 0 <= now < len(turns) - 1 and net.ends["client"].rcv >= want[now]
        if now == position["answered"] and whole and position.get("next") != now + 1:
            position["next"] = now + 1
            net.after(turns[now + 1].idle + 100_000, ask)

    net.on_data["server"] = answer
    net.on_data["client"] = done
    net.after(2 * net.rtt + MS + turns[0].idle, ask)
    net.run()


def serve(net: Net, queries: list[tuple[int, list[tuple[int, int]]]], *, request: int = 120, halves: int = 0) -> None:
    """Play exchanges of sizes: each (idle before it, [(pause, bytes), ...] the server's writes).

    `halves`: the request goes in two writes with that pause between them.
    """
    asks = [(0, b"q" * (request // 2)), (halves, b"q" * (request - request // 2))] if halves else [(0, b"q" * request)]
    turns = [Turn(idle, asks, [(pause, b"r" * size) for pause, size in train]) for idle, train in queries]
    converse(net, turns)

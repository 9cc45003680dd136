"""The delay line: a process in the middle namespace that forwards frames between two interfaces, each after its delay.

due = the kernel's receive time + delay, an absolute instant, so that a late wake-up is not added up. It sleeps until
100 us before the next due instant and spins for the rest. Run as `python -P -m netlab.lab.relay CONFIG`.
"""

import gc
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque

from netlab.lab import syscalls
from netlab.lab.lateness import Kind, Log

_SOL_PACKET = 263
_PACKET_STATISTICS, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 6, 15, 23
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 35, 33, 32
_ETH_P_ALL = 0x0003
_BUFFER = 64 << 20
_LARGEST = 65_536 + 64
_PER_PASS = 32  # packets read before the due ones are looked at again
_SPIN_NS = 100_000
_SLICE_NS = 100_000
_TIMESPEC = struct.Struct("=qq")
_VNET = 10  # bytes of struct virtio_net_hdr before each frame; does not travel on the wire
# A stamp further off than this is of another clock, not of a packet that waited.
_OLDEST_NS = 1_000_000_000
_STEP_NS = 1_000_000
_UNDISTURBED_NS = 5_000
_STATISTICS_EVERY_NS = 20_000_000
_PRIORITY = 10


class Line:
    """One direction: reads `source`, writes `target`."""

    def __init__(self, source: socket.socket, target: socket.socket, config: dict[str, float], seed: str) -> None:
        self.source = source
        self.target = target
        self.queue: deque[tuple[int, bytes]] = deque()
        self.delay = int(config["delay"])
        self.jitter = int(config["jitter"])
        self.loss = config["loss"]
        self.rate = config["rate"]
        self.limit = int(config["limit"])
        self._random = random.Random(seed)
        self._last_due = 0
        self._link_free_at = 0

    def due_for(self, arrived_at: int, frame: bytes) -> int | None:
        """Return when `frame` is due (ns monotonic), or None when it is lost by design. Order is kept."""
        if self.loss and self._random.random() < self.loss:
            return None
        due = arrived_at
        if self.rate:
            start = max(arrived_at, self._link_free_at)
            self._link_free_at = due = start + round((len(frame) - _VNET) * 8e9 / self.rate)
        due += self.delay
        if self.jitter:
            due += self._random.randint(-self.jitter, self.jitter)
        self._last_due = max(due, self._last_due)
        return self._last_due


class Relay:
    """Both directions, one thread, no allocation beyond the frames."""

    def __init__(self, lines: tuple[Line, Line], log: Log) -> None:
        self._lines = lines
        self._log = log
        self._sources = {line.source.fileno(): line for line in lines}
        self._offset = clock_offset()
        self._statistics_at = 0

    def run(self) -> None:
        """Forward until killed."""
        clock, descriptors = time.monotonic_ns, list(self._sources)
        while True:
            due = self._next_due()
            wait = None if due is None else (due - clock() - _SPIN_NS) / 1e9
            if wait is None or wait > 0:
                # At most 50 ms, so that the kernel's drop counters are never old.
                ready = select.select(descriptors, (), (), 0.05 if wait is None else min(wait, 0.05))[0]
            else:
                ready = select.select(descriptors, (), (), 0)[0]
            for descriptor in ready:
                self._read(self._sources[descriptor])
            self._send_due()
            if clock() > self._statistics_at:
                self._statistics_at = clock() + _STATISTICS_EVERY_NS
                for line in self._lines:
                    self._read_drops(line)

    def _next_due(self) -> int | None:
        first, second = (line.queue for line in self._lines)
        if first and second:
            return min(first[0][0], second[0][0])
        if first:
            return first[0][0]
        return second[0][0] if second else None

    def _read(self, line: Line) -> None:
        self._check_clock()
        for _ in range(_PER_PASS):
            try:
                frame, ancillary, _flags, _address = line.source.recvmsg(_LARGEST, 64)
            except BlockingIOError:
                break
            except OSError:
                return  # the interface went down: the lab is going
            due = line.due_for(self._arrival(ancillary), frame)
            if due is None:
                self._note(1, Kind.LOST)
            elif len(line.queue) >= line.limit:
                self._note(1, Kind.DROPPED)
            else:
                line.queue.append((due, frame))
        # At once, not at the timer: a query that has just ended must not miss its own drops.
        self._read_drops(line)

    def _arrival(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        now = time.monotonic_ns()
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack(data[:16])
                arrived = int(seconds * 1_000_000_000 + nanoseconds - self._offset)
                return arrived if now - _OLDEST_NS < arrived <= now else now
        return now

    def _check_clock(self) -> None:
        before, self._offset = self._offset, clock_offset()
        if abs(self._offset - before) > _STEP_NS:
            self._note(self._offset - before, Kind.STEPPED)

    def _note(self, value: int, kind: Kind) -> None:
        self._log.note(time.monotonic_ns() + self._offset, value, kind)

    def _send_due(self) -> None:
        clock, log, offset = time.monotonic_ns, self._log, self._offset
        for direction, line in enumerate(self._lines):
            queue, sent = line.queue, 0
            while queue and sent < _PER_PASS:
                due, frame = queue[0]
                now = clock()
                if now < due:
                    if due - now > _SPIN_NS:
                        break
                    if self._other_due(line, due):
                        break
                    continue
                queue.popleft()
                sent += 1
                # Logged first: who has received the frame must find it in the log.
                log.note(now + offset, now - due, direction)
                try:
                    line.target.send(frame)
                except OSError:
                    self._note(1, Kind.DROPPED)

    def _other_due(self, line: Line, due: int) -> bool:
        other = self._lines[1] if line is self._lines[0] else self._lines[0]
        return bool(other.queue) and other.queue[0][0] < due

    def _read_drops(self, line: Line) -> None:
        _packets, drops = struct.unpack("II", line.source.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        if drops:
            self._note(drops, Kind.DROPPED)


def clock_offset() -> int:
    """Return CLOCK_REALTIME less the monotonic clock (ns).

    The tightest of a few readings: a process that loses its processor between the two clocks would see an offset that
    never was.
    """
    tightest, offset = 1 << 62, 0
    for _ in range(4):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if after - before < tightest:
            tightest, offset = after - before, real - (before + after) // 2
        if tightest < _UNDISTURBED_NS:
            break
    return offset


def open_interface(name: str) -> socket.socket:
    """Return a non-blocking AF_PACKET socket on `name` with the kernel's stamps and large buffers."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    # Without it a frame whose checksum is left to the device is dropped at the far end.
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    for force, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            opened.setsockopt(socket.SOL_SOCKET, force, _BUFFER)
        except PermissionError:
            opened.setsockopt(socket.SOL_SOCKET, plain, _BUFFER)
    opened.bind((name, _ETH_P_ALL))
    return opened


def hurry() -> str:
    """Ask the scheduler for punctuality; return what was had."""
    syscalls.prctl(syscalls.PR_SET_TIMERSLACK, 1)
    gc.disable()
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        pass
    else:
        return f"SCHED_FIFO {_PRIORITY}"
    try:
        syscalls.set_slice(_SLICE_NS)
    except OSError:
        return "SCHED_OTHER"
    return "SCHED_OTHER, 100 us slice"


def main() -> None:
    """Serve as the delay line: CONFIG is JSON; descriptor 3 is the log, descriptor 4 takes the readiness message,
    and descriptor 5 says when the interfaces are there."""
    config = json.loads(sys.argv[1])
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    log = Log(3)
    if not os.read(5, 1):
        return  # the kernel delays by itself: not needed
    os.close(5)
    to_client, to_server = (open_interface(name) for name in ("toclient", "toserver"))
    lines = (
        Line(to_server, to_client, config["to_client"], f"{config['seed']}:to_client"),
        Line(to_client, to_server, config["to_server"], f"{config['seed']}:to_server"),
    )
    scheduling = hurry()
    os.write(4, json.dumps({"scheduling": scheduling}).encode())
    os.close(4)
    Relay(lines, log).run()


if __name__ == "__main__":
    main()

"""Bytes to and from the server, each piece received with the instant it arrived.

`SocketTransport` asks the kernel for that instant (SO_TIMESTAMPING, Linux Documentation/networking/timestamping.rst);
where the kernel gives none it is read right after recv() returned, before anything is decoded. `FakeTransport` plays a
script on a fake clock.
"""

import select
import socket as sockets
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from netlab.errors import ProbeError
from netlab.probe.clock import Clock, FakeClock, SystemClock
from netlab.samples import StampSource
from netlab.units import NS_PER_MS, NS_PER_S, format_duration

# Linux include/uapi/asm-generic/socket.h, include/uapi/linux/net_tstamp.h; the socket module does not name them.
_SO_TIMESTAMPING = 37
_RX_SOFTWARE = 1 << 3
_SOFTWARE = 1 << 4
_STAMPS = struct.Struct("=qqqqqq")  # three timespecs, the software one first

# recvmsg gives one stamp for all it returns, that of the last segment, and the kernel itself merges segments that wait
# unread (tcp_try_coalesce). So two packets get their own stamps if the first was read before the second came: reads are
# small, and grow only while data comes faster than it is read.
_SMALL_READ = 1 << 11
_LARGE_READ = 1 << 16


class Chunk(NamedTuple):
    """What one receive returned: `data` is empty where the server has closed."""

    data: bytes
    at: int
    stamp: StampSource


class Transport(Protocol):
    """A connection that stamps what it receives."""

    @property
    def peer(self) -> str:
        """Who is at the other end, for messages."""

    def send(self, data: bytes, timeout: int) -> None:
        """Send all of `data`. Raises ProbeError."""

    def receive(self, timeout: int) -> Chunk | None:
        """Return what came, or None after `timeout` ns of nothing. Raises ProbeError for a broken connection."""

    def wait_readable(self, timeout: int) -> bool:
        """Wait at most `timeout` ns for something to receive; return whether there is."""

    def close(self) -> None:
        """Close the connection; closing twice is no error."""


class SocketTransport:
    """A TCP socket, wherever its namespace is."""

    def __init__(self, socket: sockets.socket, peer: str, clock: Clock | None = None) -> None:
        """Take over `socket`, which is connected."""
        socket.settimeout(0)
        self._socket = socket
        self._peer = peer
        self._clock = clock or SystemClock()
        self._poll = select.poll()
        self._poll.register(socket, select.POLLIN)
        self._limit = _SMALL_READ
        self._space = sockets.CMSG_SPACE(_STAMPS.size)

    @property
    def peer(self) -> str:
        """Who is at the other end."""
        return self._peer

    def send(self, data: bytes, timeout: int) -> None:
        """Send all of `data` in one call. Raises ProbeError."""
        self._socket.settimeout(max(timeout, NS_PER_MS) / NS_PER_S)
        try:
            self._socket.sendall(data)
            self._socket.settimeout(0)
        except TimeoutError as error:
            raise ProbeError(f"{self._peer} took no more data for {format_duration(timeout)}") from error
        except OSError as error:
            raise ProbeError(
                f"send to {self._peer}: {error.strerror}", hint="the server closed the connection"
            ) from error

    def receive(self, timeout: int) -> Chunk | None:
        """Return what came, with its stamp, or None after `timeout`. Raises ProbeError."""
        if not self.wait_readable(timeout):
            return None
        try:
            data, control, _, _ = self._socket.recvmsg(self._limit, self._space)
        except BlockingIOError:
            return None
        except OSError as error:
            hint = "the server died or a middle box cut the connection"
            raise ProbeError(f"receive from {self._peer}: {error.strerror}", hint=hint) from error
        arrived = self._clock.realtime()
        full = len(data) == self._limit
        self._limit = min(self._limit * 2, _LARGE_READ) if full else max(self._limit // 2, _SMALL_READ)
        stamp = _kernel_stamp(control)
        if stamp is None:
            return Chunk(data, arrived, StampSource.PROCESS)
        return Chunk(data, stamp, StampSource.KERNEL)

    def wait_readable(self, timeout: int) -> bool:
        """Wait at most `timeout` ns; precise to tens of microseconds."""
        deadline = self._clock.monotonic() + timeout
        whole = max(timeout, 0) // NS_PER_MS
        if self._poll.poll(whole):
            return True
        # poll counts in milliseconds: what is left of the last one is slept.
        left = deadline - self._clock.monotonic()
        if left > 0:
            time.sleep(left / NS_PER_S)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def connect(socket: sockets.socket, address: tuple[str, int], timeout: int) -> SocketTransport:
    """Connect `socket` (not connected yet; any namespace) to `address` within `timeout` ns.

    The socket is closed where that fails. Raises ProbeError, which says what to look at.
    """
    peer = f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
    socket.settimeout(timeout / NS_PER_S)
    try:
        socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        ask_for_stamps(socket)
        socket.connect(address)
    except OSError as error:
        socket.close()
        raise _connect_error(error, peer, timeout) from error
    return SocketTransport(socket, peer)


def ask_for_stamps(socket: sockets.socket) -> bool:
    """Ask the kernel to stamp what arrives; return whether it agreed."""
    try:
        socket.setsockopt(sockets.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE | _SOFTWARE)
    except OSError:
        return False  # stamps are then the process's own, and every sample says so
    return True


def _connect_error(error: OSError, peer: str, timeout: int) -> ProbeError:
    if isinstance(error, ConnectionRefusedError):
        return ProbeError(f"{peer} refused the connection", hint="does the server run, and listen on this address?")
    if isinstance(error, TimeoutError):
        hint = "is the address right, and does a firewall drop packets?"
        return ProbeError(f"{peer} did not answer within {format_duration(timeout)}", hint=hint)
    if isinstance(error, sockets.gaierror):
        return ProbeError(f"{peer}: the name does not resolve: {error.strerror}", hint="check the host's name")
    return ProbeError(f"connect to {peer}: {error.strerror or error}")


def _kernel_stamp(control: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in control:
        if level == sockets.SOL_SOCKET and kind == _SO_TIMESTAMPING and len(data) >= _STAMPS.size:
            seconds, nanoseconds, *_ = _STAMPS.unpack_from(data)
            if seconds:
                return int(seconds) * NS_PER_S + int(nanoseconds)
    return None


class Delivery(NamedTuple):
    """A piece of a script: `data` comes `after` ns from the request it answers."""

    after: int
    data: bytes


class FakeTransport:
    """Plays a script: each send sets off the next of `replies`, whose pieces come at their times."""

    peer = "fake:9000"

    def __init__(self, clock: FakeClock, replies: Iterable[Sequence[Delivery]]) -> None:
        self.clock = clock
        self.sent: list[bytes] = []
        self.closed = False
        self.stamp = StampSource.KERNEL
        self._replies = deque(replies)
        self._due: deque[tuple[int, bytes]] = deque()

    def send(self, data: bytes, timeout: int) -> None:
        """Record `data` and start its reply."""
        self.sent.append(data)
        if self._replies:
            self.deliver(self._replies.popleft())

    def deliver(self, pieces: Sequence[Delivery]) -> None:
        """Let `pieces` come, counted from now."""
        self._due += [(self.clock.now + piece.after, piece.data) for piece in pieces]

    def receive(self, timeout: int) -> Chunk | None:
        """Return the next piece, moving the clock to its time."""
        if not self.wait_readable(timeout):
            return None
        _, data = self._due.popleft()
        return Chunk(data, self.clock.realtime(), self.stamp)

    def wait_readable(self, timeout: int) -> bool:
        """Move the clock to the next piece, or by `timeout`."""
        if self._due and self._due[0][0] <= self.clock.now + timeout:
            self.clock.advance(max(self._due[0][0] - self.clock.now, 0))
            return True
        self.clock.advance(max(timeout, 0))
        return False

    def close(self) -> None:
        """Take note."""
        self.closed = True

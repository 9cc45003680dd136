"""Plays a write train on a socket: what goes into which write, and when. Each send is noted for the log.

Grouping into writes is pure (`writes`); `Player` does the sending.
"""

import select
import socket as sockets
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from netlab.errors import ProbeError
from netlab.scenario import Delivery
from netlab.servers.scripted_train import Cork, Disconnect, Group, Leave, Part, Pause, Repeat, Send, Step
from netlab.units import NS_PER_MS

_STALLED_S = 60  # a client that takes nothing for so long is gone
_AHEAD = 64 << 10  # bytes
_MOST_AHEAD = 200
_SPIN = 200_000  # ns: the last part of a pause is waited for in a loop, as select() wakes up late


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write to the socket, and the parts of the train that it holds."""

    data: bytes
    parts: tuple[str, ...]


Action: TypeAlias = Write | Pause | Cork | Disconnect


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One send() that the kernel took: instant before it (CLOCK_REALTIME ns) and bytes."""

    at: int
    size: int
    parts: tuple[str, ...]


class StoppedError(ProbeError):
    """The client stopped the train: it cancelled, it went away, or it takes nothing."""


class ServerEndError(ProbeError):
    """The train ends the whole server here."""


def actions(steps: Iterable[Step], encode: Callable[[Send], bytes | None]) -> Iterator[Action]:
    """Yield what is done for `steps`: repeats unrolled, a write for each group.

    `encode` gives None for what this client does not get.
    """
    for step in steps:
        if isinstance(step, Group):
            pieces = [(send.part.value, piece) for send in step.sends if (piece := encode(send)) is not None]
            if pieces:
                yield Write(data=b"".join(piece for _, piece in pieces), parts=tuple(part for part, _ in pieces))
        elif isinstance(step, Repeat):
            for _ in range(step.times):
                yield from actions(step.steps, encode)
        else:
            yield step


def writes(train: Iterable[Action], delivery: Delivery) -> Iterator[Action]:
    """Yield `train` in the writes that `delivery` makes of it.

    BATCHED is what 26.9 does: the header and each block of rows leave at once, with log lines that precede the rows;
    so does whatever waits when a pause begins, as Progress must be timely; the rest is one write.
    """
    if delivery is Delivery.CORK:
        yield Cork(on=True)
        yield from train
        yield Cork(on=False)
    elif delivery is Delivery.BATCHED:
        yield from _batched(train)
    else:
        yield from train


def ahead(train: Iterable[Action]) -> Iterator[Action]:
    """Yield `train`, its next packets made before the first of them leaves: making one must not show as a gap."""
    ready: list[Action] = []
    size = 0
    for action in train:
        ready.append(action)
        size += len(action.data) if isinstance(action, Write) else 0
        if size > _AHEAD or len(ready) >= _MOST_AHEAD:
            yield from ready
            ready, size = [], 0
    yield from ready


def _batched(train: Iterable[Action]) -> Iterator[Action]:
    held: list[Write] = []
    for action in train:
        if not isinstance(action, Write):
            yield from _joined(held)
            yield action
            continue
        waiting = {part for write in held for part in write.parts}
        first = Part.HEADER in action.parts and Part.TABLE_COLUMNS not in waiting  # a log line does not wait for it
        if first or (Part.DATA in action.parts and waiting & _INTERACTIVE):
            yield from _joined(held)
        held.append(action)
        if _LEAVES_AT_ONCE & set(action.parts):
            yield from _joined(held)
    yield from _joined(held)


_INTERACTIVE = {Part.PROGRESS.value, Part.PROFILE_EVENTS.value}  # before rows they are news of a query that runs
_LEAVES_AT_ONCE = {Part.HEADER.value, Part.DATA.value, Part.EXCEPTION.value}


def _joined(held: list[Write]) -> Iterator[Write]:
    if held:
        parts = tuple(part for write in held for part in write.parts)
        yield Write(data=b"".join(write.data for write in held), parts=parts)
        held.clear()


class Player:
    """Plays actions on a connected socket.

    `look` is called where the client sent something during a pause or before a write; it returns whether the client
    may send more, or raises StoppedError.
    """

    def __init__(self, connection: sockets.socket, look: Callable[[], bool]) -> None:
        self._socket = connection
        self._look = look
        self._listening = True
        self.sent: list[Sent] = []

    def play(self, train: Iterable[Action]) -> None:
        """Play `train`. Raises StoppedError, ServerEndError."""
        for action in ahead(train):
            match action:
                case Write():
                    self._listen(0)
                    self.write(action)
                case Pause():
                    self._pause(action.duration)
                case Cork():
                    self._socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_CORK, int(action.on))
                case Disconnect():
                    self._leave(action.how)

    def write(self, action: Write) -> None:
        """Send all of `action`; more than one send() is noted where the kernel takes it in pieces."""
        rest = memoryview(action.data)
        while rest:
            # Noted before it is done: the client may have it, and end us, before send() returns here.
            sent = Sent(at=time.time_ns(), size=len(rest), parts=action.parts)
            self.sent.append(sent)
            taken = self._send(rest)
            if taken != len(rest):
                self.sent[-1] = replace(sent, size=taken)
            rest = rest[taken:]

    def _send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError as error:
            self.sent.pop()
            raise StoppedError(f"the client took nothing for {_STALLED_S} s") from error
        except OSError as error:
            self.sent.pop()
            raise StoppedError(f"the client is gone: {error.strerror}") from error

    def _pause(self, duration: int) -> None:
        due = time.monotonic_ns() + duration
        while (left := due - time.monotonic_ns() - _SPIN) > 0:
            self._listen(left)
        while time.monotonic_ns() < due:
            pass

    def _listen(self, wait: int) -> None:
        """Wait `wait` ns at most for the client to say something."""
        poller = select.poll()  # not select(): descriptors may exceed 1024
        if self._listening:
            poller.register(self._socket, select.POLLIN)
        if poller.poll(wait / NS_PER_MS):
            self._listening = self._look()

    def _leave(self, how: Leave) -> None:
        if how is Leave.EXIT:
            raise ServerEndError("the train ends the server")
        if how is Leave.RESET:
            self._socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
        raise StoppedError(f"the train ends the connection ({how.value})")


def prepare(connection: sockets.socket, delivery: Delivery, send_buffer: int | None) -> None:
    """Set the socket as `delivery` wants it, with blocking writes that give up on a client that takes nothing."""
    if delivery is not Delivery.NAGLE:
        connection.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
    if send_buffer is not None:
        connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, send_buffer)
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDTIMEO, struct.pack("ll", _STALLED_S, 0))

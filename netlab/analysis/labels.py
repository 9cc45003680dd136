"""Put a stream's bytes in order and name the protocol packets in them.

A `Labeller` turns the two ordered byte streams of a connection into spans; `netlab.native.labels` is the one for
ClickHouse Native. Bytes that the capture does not hold (dropped, cut by the snap length) end the labels of their
direction: what follows is unlabelled, never guessed.
"""

from typing import NamedTuple, Protocol


class Mark(NamedTuple):
    """One protocol packet and its place in its direction's stream."""

    down: bool  # from the server
    start: int
    end: int
    label: str
    rows: int | None = None
    ends_response: bool = False
    text: str | None = None  # a Query's SQL; an Exception's message


class Labeller(Protocol):
    """Names packets. Offsets count from the first byte fed in that direction."""

    def feed(self, down: bool, data: bytes) -> list[Mark]:
        """Return the packets that are certain now, of either direction."""

    def finish(self) -> list[Mark]:
        """Return what the end of the streams makes certain."""

    @property
    def recognised(self) -> bool:
        """Whether the connection has shown to speak the protocol."""

    @property
    def revision(self) -> int | None:
        """The revision both sides speak, where the handshake told."""


class Reassembler:
    """Orders one direction's bytes. At most `_LARGEST_WAIT` bytes wait for a hole to fill."""

    __slots__ = ("_waiting", "_waiting_bytes", "first", "next", "whole")
    _LARGEST_WAIT = 8 << 20

    def __init__(self) -> None:
        self.first = -1  # the offset of the first byte
        self.next = 0
        self.whole = True  # False once a byte is known to be missing
        self._waiting: dict[int, bytes] = {}
        self._waiting_bytes = 0

    def feed(self, start: int, payload: bytes, length: int) -> bytes:
        """Return the bytes that are in order now. `length` is the payload on the wire."""
        if not self.whole:
            return b""
        if self.first < 0:
            self.first = self.next = start
        if len(payload) < length:
            self.whole = False
            self._waiting.clear()
            return payload[self.next - start :] if start <= self.next else b""
        if start > self.next:
            if len(payload) > len(self._waiting.get(start, b"")):
                self._waiting_bytes += len(payload) - len(self._waiting.get(start, b""))
                self._waiting[start] = payload
            if self._waiting_bytes > self._LARGEST_WAIT:
                self.lose()
            return b""
        ready = payload[self.next - start :] if start < self.next else payload
        self.next += len(ready)
        return ready if not self._waiting else ready + self._drain()

    def lose(self) -> None:
        """Give the stream up: bytes are missing for good."""
        self.whole = False
        self._waiting.clear()

    def _drain(self) -> bytes:
        parts = []
        while self._waiting:
            start = min(self._waiting)
            if start > self.next:
                break
            payload = self._waiting.pop(start)
            self._waiting_bytes -= len(payload)
            fresh = payload[self.next - start :]
            self.next += len(fresh)
            parts.append(fresh)
        return b"".join(parts)

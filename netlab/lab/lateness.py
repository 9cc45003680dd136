"""The relay's log: every packet's lateness, in memory shared with the lab's owner.

Layout, little-endian: a header of 64-bit words (see _WORDS), then a ring of entries (sent_at ns CLOCK_REALTIME,
lateness ns, direction). The relay alone writes; `written` is stored after its entry: a reader never sees half of one.
"""

import mmap
import os
import struct

from netlab.record import LatenessReport

_CAPACITY = 1 << 17
_ENTRY = struct.Struct("<qqq")
_WORDS = ("written", "queue_drops", "kernel_drops", "lost", "clock_steps")
_HEADER_SIZE = 4096
SIZE = _HEADER_SIZE + _CAPACITY * _ENTRY.size


class Log:
    """The shared ring. Counters are cumulative since the relay started."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, SIZE)
        self._words = memoryview(self._map)[: 8 * len(_WORDS)].cast("q")

    @classmethod
    def create(cls) -> tuple["Log", int]:
        """Return a new log and the descriptor to share it by."""
        descriptor = os.memfd_create("netlab-lateness")
        os.ftruncate(descriptor, SIZE)
        return cls(descriptor), descriptor

    def note(self, sent_at: int, lateness: int, direction: int) -> None:
        """Log one forwarded packet."""
        words = self._words
        written = words[0]
        _ENTRY.pack_into(self._map, _HEADER_SIZE + written % _CAPACITY * _ENTRY.size, sent_at, lateness, direction)
        words[0] = written + 1

    def add(self, counter: str, amount: int = 1) -> None:
        """Add to a counter other than "written"."""
        self._words[_WORDS.index(counter)] += amount

    def count(self, counter: str) -> int:
        """Return a counter."""
        return self._words[_WORDS.index(counter)]

    def report(self, since_at: int, until_at: int) -> tuple[list[int], bool]:
        """Return the latenesses (ns, sorted) of packets sent in [since_at, until_at], and whether the ring still holds
        all of them."""
        written = self._words[0]
        found: list[int] = []
        oldest = max(0, written - _CAPACITY)
        for position in range(written - 1, oldest - 1, -1):
            sent_at, lateness, _ = _ENTRY.unpack_from(self._map, _HEADER_SIZE + position % _CAPACITY * _ENTRY.size)
            if sent_at < since_at:
                return sorted(found), True
            if sent_at <= until_at:
                found.append(lateness)
        return sorted(found), oldest == 0

    def close(self) -> None:
        """Unmap."""
        self._words.release()
        self._map.close()


def summarise(latenesses: list[int], *, dropped: int, lost: int) -> LatenessReport:
    """Return the report of sorted `latenesses` (ns); figures of an empty list are None."""
    count = len(latenesses)
    return LatenessReport(
        packets=count,
        dropped=dropped,
        lost=lost,
        median=latenesses[count // 2] if count else None,
        p99=latenesses[min(count - 1, count * 99 // 100)] if count else None,
        worst=latenesses[-1] if count else None,
    )

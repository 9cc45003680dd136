"""The relay's log: what became of every packet and when, in memory shared with the lab's owner.

Layout, little-endian: a header whose first 64-bit word is how many entries were written, then a ring of entries
(at ns CLOCK_REALTIME, value, kind; see Kind). The relay alone writes, in order of time; the count is stored after its
entry: a reader never sees half of one.
"""

import mmap
import os
import struct
from dataclasses import dataclass
from enum import IntEnum

from netlab.record import LatenessReport

CAPACITY = 1 << 17
_ENTRY = struct.Struct("<qqq")
_HEADER_SIZE = 4096
_SIZE = _HEADER_SIZE + CAPACITY * _ENTRY.size


class Kind(IntEnum):
    """What an entry tells, and what its value is."""

    TO_CLIENT = 0  # forwarded; ns after its due instant
    TO_SERVER = 1  # the same in the other direction
    DROPPED = 2  # by the relay's queue limit or a full socket; packets
    LOST = 3  # by design; packets
    STEPPED = 4  # the machine's clock jumped; ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the log holds of a span of time. `whole`: nothing of it was overwritten."""

    latenesses: tuple[int, ...]  # ns, sorted
    dropped: int
    lost: int
    stepped: bool
    whole: bool

    def summary(self) -> LatenessReport:
        """Return the figures; those of no packets are None."""
        count = len(self.latenesses)
        return LatenessReport(
            packets=count,
            dropped=self.dropped,
            lost=self.lost,
            median=self.latenesses[count // 2] if count else None,
            p99=self.latenesses[min(count - 1, count * 99 // 100)] if count else None,
            worst=self.latenesses[-1] if count else None,
        )


class Log:
    """The shared ring."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, _SIZE)
        self._written = memoryview(self._map)[:8].cast("q")

    @classmethod
    def create(cls) -> tuple["Log", int]:
        """Return a new log and the descriptor to share it by."""
        descriptor = os.memfd_create("netlab-lateness")
        os.ftruncate(descriptor, _SIZE)
        return cls(descriptor), descriptor

    def note(self, at: int, value: int, kind: int) -> None:
        """Log one entry, no older than the last."""
        written = self._written[0]
        _ENTRY.pack_into(self._map, _HEADER_SIZE + written % CAPACITY * _ENTRY.size, at, value, kind)
        self._written[0] = written + 1

    def read(self, since_at: int, until_at: int) -> Window:
        """Return what happened in [since_at, until_at]. A window that ends before it begins: the clock was set back."""
        written = self._written[0]
        oldest = max(0, written - CAPACITY)
        latenesses: list[int] = []
        sums = dict.fromkeys(Kind, 0)
        whole = oldest == 0
        for position in range(written - 1, oldest - 1, -1):
            at, value, kind = _ENTRY.unpack_from(self._map, _HEADER_SIZE + position % CAPACITY * _ENTRY.size)
            if at < since_at:
                whole = True
                break
            if at > until_at:
                continue
            if kind <= Kind.TO_SERVER:
                latenesses.append(value)
            else:
                sums[Kind(kind)] += abs(value)
        return Window(
            latenesses=tuple(sorted(latenesses)),
            dropped=sums[Kind.DROPPED],
            lost=sums[Kind.LOST],
            stepped=sums[Kind.STEPPED] > 0 or until_at < since_at,
            whole=whole,
        )

    def close(self) -> None:
        """Unmap."""
        self._written.release()
        self._map.close()

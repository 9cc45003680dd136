"""The two clocks a measurement needs: realtime, which captures share, and monotonic, which nobody sets.

Both in ns. A realtime clock that was set while a query ran shows as a change of their difference.
"""

import time
from dataclasses import dataclass
from typing import Protocol

from netlab.units import ms

# What a running clock may drift against the monotonic one: the kernel slews by at most 500 ppm (adjtimex), and reading
# two clocks takes a while on a busy machine.
_ALLOWED_STEP = ms(1)
_ALLOWED_DRIFT = 1_000  # 1 in 1,000


class Clock(Protocol):
    """Where instants come from."""

    def realtime(self) -> int:
        """Return CLOCK_REALTIME."""

    def monotonic(self) -> int:
        """Return CLOCK_MONOTONIC."""


class SystemClock:
    """The machine's clocks."""

    def realtime(self) -> int:
        """Return CLOCK_REALTIME."""
        return time.time_ns()

    def monotonic(self) -> int:
        """Return CLOCK_MONOTONIC."""
        return time.monotonic_ns()


class FakeClock:
    """Clocks that stand still until a test moves them."""

    def __init__(self, now: int = 1_000_000_000, realtime: int = 1_700_000_000_000_000_000) -> None:
        self.now = now
        self._ahead = realtime - now

    def realtime(self) -> int:
        """Return the pretended wall time."""
        return self.now + self._ahead

    def monotonic(self) -> int:
        """Return the pretended monotonic time."""
        return self.now

    def advance(self, duration: int) -> None:
        """Let `duration` pass on both clocks."""
        self.now += duration

    def step(self, by: int) -> None:
        """Set the wall clock `by` ns ahead."""
        self._ahead += by


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Both clocks at one moment."""

    realtime: int
    monotonic: int


def read(clock: Clock) -> Reading:
    """Read both clocks, the realtime one as close to the return as can be."""
    monotonic = clock.monotonic()
    return Reading(realtime=clock.realtime(), monotonic=monotonic)


def step_between(before: Reading, after: Reading) -> int | None:
    """Return by how much (ns) the wall clock was set between two readings, or None where it just ran on."""
    elapsed = after.monotonic - before.monotonic
    step = (after.realtime - before.realtime) - elapsed
    return step if abs(step) > _ALLOWED_STEP + elapsed // _ALLOWED_DRIFT else None

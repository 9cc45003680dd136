"""The one place that defines percentiles."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a set of durations (ns) looks like."""

    n: int
    p50: int
    p99: int
    maximum: int


def percentile(ordered: list[int], share: float) -> int:
    """Return the `share` percentile (0 to 1) of a sorted, non-empty list: the nearest rank, so a measured value."""
    rank = max(1, -(-len(ordered) * round(share * 10_000) // 10_000))
    return ordered[rank - 1]


def summarise(values: Iterable[int]) -> Summary | None:
    """Return the summary of `values` (ns); None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Summary(n=len(ordered), p50=percentile(ordered, 0.5), p99=percentile(ordered, 0.99), maximum=ordered[-1])

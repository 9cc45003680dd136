"""What a diagnosis may keep and spend. Durations are ns."""

from dataclasses import dataclass
from enum import StrEnum

from netlab.units import ms, seconds


class Detail(StrEnum):
    """Which exchanges keep their list of labelled segments."""

    ALL = "all"
    CAUSES = "causes"  # only exchanges whose cause is not `healthy`
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Bounds of one diagnosis. The defaults suit a capture of a few hundred thousand packets and below."""

    detail: Detail = Detail.ALL
    # Beyond this many segments an exchange keeps its head and its tail, and says so.
    exchange_segments: int = 12_000
    # Labelled segments kept over all exchanges; past it exchanges keep figures and findings only.
    kept_segments: int = 400_000
    # Finished exchanges wait for better RTT estimates, at most this many segments over all connections.
    waiting_segments: int = 50_000
    # Open connections; beyond it the one that has been silent longest is closed out.
    open_connections: int = 20_000
    # A pause shorter than this is a server at work, not a stall, whatever the RTT.
    shortest_pause: int = ms(2)
    # A silence after which a connection's finished exchanges are judged without waiting for its end.
    settle_after: int = seconds(300)


DEFAULT_OPTIONS = Options()

"""Where a capture was taken, and the round trip, from timing alone.

`upstream` is the time from the tap to the server and back, `downstream` from the tap to the client and back;
their sum is the round trip. A tap next to the server sees the server answer at once and the client one round
trip later. A delayed ACK or a server at work only ever lengthens a sample, so the least one counts.
"""

from dataclasses import dataclass

from netlab.diagnosis import Vantage
from netlab.units import as_ms, us

# Below this there is no distance to judge by: both ends on one host or one switch.
_TOO_NEAR = us(300)
_NEAR_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The two halves of the round trip as the tap sees them (ns; None: no sample), and what they say."""

    upstream: int | None
    downstream: int | None
    rtt: int | None
    vantage: Vantage
    reason: str
    bound: bool  # the round trip is an upper bound: without a handshake it may hold server time

    @property
    def response_lag(self) -> int:
        """ns from an ACK passing the tap to its effect on the server's segments passing it."""
        return self.upstream or 0

    @property
    def request_lag(self) -> int:
        """ns from an ACK passing the tap to its effect on the client's segments passing it."""
        return self.downstream or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The raw samples of one connection (ns; -1: none)."""

    syn: int = -1  # SYN to SYN-ACK
    syn_ack: int = -1  # SYN-ACK to the client's ACK
    data_up: int = -1  # least, client data to the server's ACK of it
    data_down: int = -1  # least, server data to the client's ACK of it


def judge(timing: Timing) -> Paths:
    """Return what `timing` says of the place of the tap."""
    upstream = _least(timing.syn, timing.data_up)
    downstream = _least(timing.syn_ack, timing.data_down)
    if upstream is None or downstream is None:
        rtt = upstream if downstream is None else downstream
        reason = "one direction was never answered in this capture"
        return _paths(upstream, downstream, rtt, Vantage.UNKNOWN, reason, bound=True)
    rtt = upstream + downstream
    bound = timing.syn < 0 and upstream > _NEAR_SHARE * rtt
    seen = f"the server answers within {as_ms(upstream):.2f} ms, the client within {as_ms(downstream):.2f} ms"
    if rtt < _TOO_NEAR:
        return _paths(upstream, downstream, rtt, Vantage.UNKNOWN, f"{seen}: no distance to judge by", bound=bound)
    if upstream <= _NEAR_SHARE * rtt:
        return _paths(upstream, downstream, rtt, Vantage.SERVER, seen, bound=False)
    if downstream <= _NEAR_SHARE * rtt:
        if bound:
            seen += " (no handshake captured: part of the server's time may be work)"
        return _paths(upstream, downstream, rtt, Vantage.CLIENT, seen, bound=bound)
    return _paths(upstream, downstream, rtt, Vantage.MIDDLE, seen, bound=bound)


def _least(*samples: int) -> int | None:
    return min((sample for sample in samples if sample >= 0), default=None)


def _paths(
    upstream: int | None, downstream: int | None, rtt: int | None, vantage: Vantage, reason: str, *, bound: bool
) -> Paths:
    return Paths(upstream=upstream, downstream=downstream, rtt=rtt, vantage=vantage, reason=reason, bound=bound)

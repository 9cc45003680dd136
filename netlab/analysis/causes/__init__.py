"""The table of causes: each a pure function from an exchange's view to a finding with evidence, or None.

Order matters nowhere: several causes may share a tail, each with its own cost.
"""

from collections.abc import Callable

from netlab.analysis.causes import loss, path, peer, timers, window
from netlab.analysis.view import View
from netlab.diagnosis import Cause, Finding

CAUSES: dict[Cause, Callable[[View], Finding | None]] = {
    Cause.IDLE_WINDOW_RESTART: window.idle_window_restart,
    Cause.FRESH_SLOW_START: window.fresh_slow_start,
    Cause.LOSS_REDUCED_WINDOW: window.loss_reduced_window,
    Cause.RTO_RETRANSMISSION: loss.rto_retransmission,
    Cause.TAIL_LOSS_PROBE: loss.tail_loss_probe,
    Cause.FAST_RETRANSMIT: loss.fast_retransmit,
    Cause.NAGLE_DELAYED_ACK: timers.nagle_delayed_ack,
    Cause.CORK_TIMER: timers.cork_timer,
    Cause.RECEIVE_WINDOW: peer.receive_window,
    Cause.SEND_BUFFER: window.send_buffer,
    Cause.SERVER_THINK_TIME: peer.server_think_time,
    Cause.BANDWIDTH_SERIALISATION: path.bandwidth_serialisation,
    Cause.PATH_JITTER: path.path_jitter,
    Cause.PACING: path.pacing,
    Cause.CLIENT_DELAY: peer.client_delay,
}

# What can be found in an exchange without a gap, a retransmission or a late first byte.
SMOOTH = (Cause.BANDWIDTH_SERIALISATION, Cause.PATH_JITTER, Cause.PACING, Cause.CLIENT_DELAY)

__all__ = ["CAUSES", "SMOOTH"]

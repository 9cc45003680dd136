"""Which exchange of a capture is which sample of the probe: by when the request was sent."""

from netlab.diagnosis import Exchange
from netlab.record import ServerRun
from netlab.units import ms


def matched_exchanges(run: ServerRun) -> list[Exchange | None]:
    """Return, for each sample that is not void, its exchange in the capture, or None."""
    exchanges = [] if run.diagnosis is None else [e for e in run.diagnosis.exchanges if e.index is not None]
    found: list[Exchange | None] = []
    for sample in run.samples:
        if sample.void is None:
            near = [e for e in exchanges if 0 <= e.sent_at - sample.sent_at + ms(1) < sample_span(run)]
            found.append(min(near, key=lambda e: abs(e.sent_at - sample.sent_at), default=None))
    return found


def sample_span(run: ServerRun) -> int:
    """Return how much later than at the client (ns) a request may be seen at the capture's end."""
    return ms(20) + (0 if run.rtt is None else run.rtt.maximum)

"""ClickHouse Native labels for the analysis: spans of `netlab.native.labels` as marks."""

from netlab.analysis.flow import direction
from netlab.analysis.labels import Labeller, Mark
from netlab.native.labels import Conversation, Span
from netlab.native.labels import Mark as Unlabelled
from netlab.wire import ClientPacket, ServerPacket

_ENDS = frozenset({ServerPacket.END_OF_STREAM, ServerPacket.EXCEPTION, ServerPacket.PONG, ServerPacket.HELLO})
_LONGEST_NAME = 64
_REQUESTS = (ClientPacket.QUERY, ClientPacket.PING)


class NativeLabeller:
    """Labels of one connection."""

    def __init__(self, *, middle: bool) -> None:
        self._conversation = Conversation(middle=middle)

    def feed(self, down: bool, data: bytes) -> list[Mark]:
        """Return the packets that are certain now, of either direction."""
        return [_mark(span) for span in self._conversation.feed(direction(down), data)]

    def finish(self) -> list[Mark]:
        """Return what the end of the streams makes certain; stretches without a label are left out."""
        return [_mark(span) for span in self._conversation.finish() if span.kind is not Unlabelled.UNLABELLED]

    @property
    def recognised(self) -> bool:
        """Whether the connection has shown to speak the protocol."""
        return self._conversation.recognised

    @property
    def revision(self) -> int | None:
        """The revision both sides speak."""
        return self._conversation.revision


def native_labeller(payload: bytes, *, complete: bool) -> Labeller | None:
    """Return a labeller if `payload`, a client's first bytes in the capture, may be Native; else None."""
    if complete:
        return NativeLabeller(middle=False) if _is_hello(payload) else None
    plain = payload[0] in _REQUESTS
    chunked = len(payload) > 4 and payload[4] in _REQUESTS and 0 < int.from_bytes(payload[:4], "little") < 1 << 24
    return NativeLabeller(middle=True) if plain or chunked else None


def _is_hello(payload: bytes) -> bool:
    """Whether these are a Hello's first bytes: type 0, a short printable client name, small version numbers."""
    if payload[0] != ClientPacket.HELLO or len(payload) < 2 or not 0 < payload[1] <= _LONGEST_NAME:
        return False
    name = payload[2 : 2 + payload[1]]
    return len(name) > 1 and name.isascii() and name.decode("ascii").isprintable()


def _mark(span: Span) -> Mark:
    return Mark(
        down=isinstance(span.kind, ServerPacket),
        start=span.start,
        end=span.end,
        label=span.label,
        rows=span.rows,
        ends_response=span.kind in _ENDS and isinstance(span.kind, ServerPacket),
        text=span.text or None,
    )

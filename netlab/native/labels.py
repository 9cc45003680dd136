"""Labels for both directions of a captured connection: which packet lies where in each stream.

`Conversation` takes reassembled bytes in capture order and gives spans. With the handshake, everything needed is in the
streams: the revision, chunks, and each query's compression. Without it (`middle`) the plausible revisions and framings
are all tried on the whole stream, and only what they agree on is labelled. After a byte that cannot be read, the rest
of that direction is UNLABELLED: nothing is guessed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from netlab.errors import RemoteProtocolError
from netlab.native import revisions
from netlab.native.client import Addendum, ClientBlock, ClientHello, Query
from netlab.native.compression import CompressionError
from netlab.native.messages import ServerBlock, ServerException, ServerHello
from netlab.native.stream import ClientDecoder, Decoder, Event, Link, Message, Opaque, ServerDecoder
from netlab.native.types import UnsupportedError
from netlab.segments import Direction
from netlab.wire import ClientPacket, ServerPacket

_HELD = 1 << 20  # bytes kept of one direction while it waits for the other
_TRIED = 1 << 15  # bytes of the client that are tried for a first query, by every reading at once


class Mark(StrEnum):
    """Spans that are no typed packet."""

    ADDENDUM = "Addendum"
    UNLABELLED = "unlabelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One packet in one direction's stream: bytes `start` to `end` (exclusive)."""

    direction: Direction
    kind: ServerPacket | ClientPacket | Mark
    start: int
    end: int
    whole: bool = True  # False: the stream ended inside it
    rows: int | None = None  # of a block, where it could be read
    columns: int | None = None
    text: str = ""  # SQL of a Query, message of an Exception, names and versions of a Hello, why UNLABELLED
    code: int | None = None  # of an Exception
    query_id: str = ""
    compressed: bool = False  # the Query asked for compressed blocks

    @property
    def label(self) -> str:
        """The packet's name in the protocol's own spelling."""
        return self.kind.value if isinstance(self.kind, Mark) else self.kind.label


class Conversation:
    """The labels of one connection, as its bytes come."""

    def __init__(self, *, middle: bool = False) -> None:
        """Begin. `middle`: the capture began after the handshake."""
        self._reading: _Pair | _Trials = _Trials() if middle else _Pair(Link())

    def feed(self, direction: Direction, data: bytes) -> list[Span]:
        """Take the next bytes of one direction, in capture order; return the spans that are now certain."""
        return self._reading.feed(direction, data)

    def finish(self) -> list[Span]:
        """Take the end of both streams; return what is left: a packet cut short, and what has no label."""
        return self._reading.finish()

    @property
    def recognised(self) -> bool:
        """Whether the connection has shown to speak the Native protocol."""
        return self._reading.recognised

    @property
    def revision(self) -> int | None:
        """The revision both ends speak (the lowest that explains the streams, in the middle), where it is known."""
        return self._reading.revision


class _Pair:
    """Both decoders on one link."""

    def __init__(self, link: Link, *, middle: bool = False) -> None:
        self.link = link
        self.decoders: dict[Direction, Decoder] = {
            Direction.TO_SERVER: ClientDecoder(link, addendum_due=not middle),
            Direction.TO_CLIENT: ServerDecoder(link),
        }
        self.fed = dict.fromkeys(Direction, 0)
        self.stopped: dict[Direction, tuple[int, str]] = {}  # from which byte on, why
        self.queries = 0
        self.answers = 0
        self.least_revision = 0  # what the queries themselves say of their client

    @property
    def recognised(self) -> bool:
        """A whole handshake, or a query and some answer to it."""
        return self.link.server_revision is not None and self.answers > 0

    @property
    def revision(self) -> int | None:
        """The revision in use, once both Hellos were seen."""
        link = self.link
        return None if None in {link.client_revision, link.server_revision} else _spoken(link)

    @property
    def reach(self) -> int:
        """Bytes of both directions that have a label."""
        return sum(self.stopped[each][0] if each in self.stopped else self.fed[each] for each in Direction)

    def feed(self, direction: Direction, data: bytes) -> list[Span]:
        """Take bytes; return the spans that became whole, of either direction."""
        self.fed[direction] += len(data)
        if direction in self.stopped:
            return []
        self.decoders[direction].feed(data)
        spans: list[Span] = []
        # A Hello of one side lets the other go on, whose bytes may have come first.
        for turn in (direction, _other(direction), direction):
            spans += self._drain(turn, self.decoders[turn].packets)
        if self.decoders[direction].waiting > _HELD:
            self._stop(direction, "the other direction is not in the capture")
        return spans

    def finish(self) -> list[Span]:
        """Return the last spans."""
        spans: list[Span] = []
        for direction, decoder in self.decoders.items():
            spans += self._drain(direction, decoder.finish)
        for direction, decoder in self.decoders.items():
            start, why = self.stopped.get(direction, (decoder.pending, ""))
            if start is None or start >= self.fed[direction]:
                continue
            kind = Mark.UNLABELLED if why or decoder.kind is None else decoder.kind
            end = self.fed[direction]
            spans.append(Span(direction=direction, kind=kind, start=start, end=end, whole=False, text=why))
        return spans

    def _drain(self, direction: Direction, packets: Callable[[], Iterator[Event]]) -> list[Span]:
        if direction in self.stopped:
            return []
        spans: list[Span] = []
        try:
            for event in packets():
                self._note(event.packet)
                spans.append(_span(direction, event))
                if self._lost(direction):
                    break
        except (RemoteProtocolError, UnsupportedError, CompressionError) as error:
            self._stop(direction, error.what)
        if self._lost(direction):
            self._stop(direction, "how it goes on depends on the client's direction, which has no label")
        return spans

    def _lost(self, direction: Direction) -> bool:
        """Whether the server's answers to come depend on queries that could not be read."""
        to_client = direction is Direction.TO_CLIENT
        return to_client and Direction.TO_SERVER in self.stopped and not self.link.compression

    def _stop(self, direction: Direction, why: str) -> None:
        start = self.decoders[direction].pending
        if direction not in self.stopped:
            self.stopped[direction] = (self.fed[direction] if start is None else start, why)

    def _note(self, packet: Message) -> None:
        if isinstance(packet, Query):
            self.queries += 1
            self.least_revision = packet.info.revision
        elif not isinstance(packet, Addendum) and isinstance(packet.kind, ServerPacket):
            self.answers += 1


class _Trials:
    """Every plausible reading of a connection that was captured from its middle on, until they agree.

    The first query is where labels can begin: before it, the capture may have begun inside a packet.
    """

    def __init__(self) -> None:
        self.before = 0  # bytes of the server that came before the first of the client
        self.fed = dict.fromkeys(Direction, 0)
        self.trials = [_Pair(link, middle=True) for link in _plausible_links()]
        self.held: list[list[Span]] = [[] for _ in self.trials]
        self.sure = 0  # spans given out already

    @property
    def recognised(self) -> bool:
        """Whether every reading left has seen a query and some answer."""
        return bool(self.trials) and all(trial.queries and trial.answers for trial in self.trials)

    @property
    def revision(self) -> int | None:
        """The revision of the first reading left."""
        return self.trials[0].revision if self.recognised else None

    def feed(self, direction: Direction, data: bytes) -> list[Span]:
        """Try the bytes on every reading left; return what is certain."""
        self.fed[direction] += len(data)
        if direction is Direction.TO_CLIENT and not self.fed[Direction.TO_SERVER]:
            self.before += len(data)
            return []
        for trial, held in zip(self.trials, self.held, strict=True):
            held += [self._moved(span) for span in trial.feed(direction, data)]
        self._drop()
        return self._certain()

    def finish(self) -> list[Span]:
        """End every reading left; return the one they agree on, or everything as unlabelled."""
        spans = self._before()
        for trial, held in zip(self.trials, self.held, strict=True):
            held += [self._moved(span) for span in trial.finish()]
        if self.trials and not self.sure:
            self._prefer_complete()
        if not self.sure and not (self.recognised and self._agree()):
            why = "several readings fit" if self.recognised else "no query with an answer could be read"
            return spans + self._unlabelled(f"the capture began after the handshake, and {why}")
        return spans + self.held[0]

    def _drop(self) -> None:
        """Drop the readings that failed, unless they are all that is left of one that was certain."""
        if self.fed[Direction.TO_SERVER] > _TRIED and not self.sure:
            keep = [at for at, trial in enumerate(self.trials) if trial.queries]
            self.trials, self.held = [self.trials[at] for at in keep], [self.held[at] for at in keep]
        keep = [at for at, trial in enumerate(self.trials) if not trial.stopped and not _contradicts(trial)]
        if keep or not (self.sure and self.trials):
            self.trials = [self.trials[at] for at in keep]
            self.held = [self.held[at] for at in keep]
        else:
            best = max(range(len(self.trials)), key=lambda at: self.trials[at].reach)
            self.trials, self.held = [self.trials[best]], [self.held[best]]

    def _certain(self) -> list[Span]:
        if not (self.recognised and self._agree()):
            return []
        spans = self.held[0]
        first = [] if self.sure else self._before()
        self.sure += len(spans)
        self.held = [[] for _ in self.trials]
        return first + spans

    def _agree(self) -> bool:
        return all(held == self.held[0] for held in self.held)

    def _prefer_complete(self) -> None:
        """Where readings differ at the end, prefer those that end with a whole answer."""
        complete = [at for at, held in enumerate(self.held) if all(span.whole for span in held)]
        if complete:
            self.trials = [self.trials[at] for at in complete]
            self.held = [self.held[at] for at in complete]

    def _before(self) -> list[Span]:
        if self.sure or not self.before:
            return []
        why = "the capture began inside the answer to an earlier query"
        return [
            Span(direction=Direction.TO_CLIENT, kind=Mark.UNLABELLED, start=0, end=self.before, whole=False, text=why)
        ]

    def _unlabelled(self, why: str) -> list[Span]:
        starts = {Direction.TO_SERVER: 0, Direction.TO_CLIENT: self.before}
        return [
            Span(direction=each, kind=Mark.UNLABELLED, start=start, end=self.fed[each], whole=False, text=why)
            for each, start in starts.items()
            if start < self.fed[each]
        ]

    def _moved(self, span: Span) -> Span:
        if span.direction is Direction.TO_SERVER or not self.before:
            return span
        return replace(span, start=span.start + self.before, end=span.end + self.before)


def _plausible_links() -> Iterator[Link]:
    for revision in revisions.PLAUSIBLE:
        framings = (False, True) if revision >= revisions.CHUNKED else (False,)
        for up in framings:
            for down in framings:
                yield Link(client_revision=revision, server_revision=revision, client_chunked=up, server_chunked=down)


def _contradicts(trial: _Pair) -> bool:
    """Whether a query itself names a client too old for the revision on trial."""
    return bool(trial.queries) and trial.least_revision < (trial.link.client_revision or 0)


def _spoken(link: Link) -> int:
    return min(link.client_revision or 0, link.server_revision or 0)


def _other(direction: Direction) -> Direction:
    return Direction.TO_CLIENT if direction is Direction.TO_SERVER else Direction.TO_SERVER


def _span(direction: Direction, event: Event) -> Span:
    packet = event.packet
    kind = Mark.ADDENDUM if isinstance(packet, Addendum) else packet.kind
    span = Span(direction=direction, kind=kind, start=event.start, end=event.end)
    if isinstance(packet, ServerBlock | ClientBlock) and not packet.block.opaque:
        return replace(span, rows=packet.rows, columns=len(packet.block.columns))
    if isinstance(packet, Query):
        return replace(span, text=packet.sql, query_id=packet.query_id, compressed=packet.compression)
    if isinstance(packet, ServerException):
        return replace(span, text=f"{packet.name}: {packet.message}", code=packet.code)
    return replace(span, text=_text(packet))


def _text(packet: Message) -> str:
    if isinstance(packet, ServerHello):
        return f"{packet.name} {packet.version} revision {packet.revision}"
    if isinstance(packet, ClientHello):
        return f"{packet.name} {packet.major}.{packet.minor} revision {packet.revision}"
    return packet.reason if isinstance(packet, Opaque) else ""

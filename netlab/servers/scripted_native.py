"""One client of the scripted server, speaking the Native protocol: login, then a train for each query.

Nothing is held on the client's word: a packet of more than 1 MiB ends its connection, and so does what would take the
whole server's budget.
"""

import os
import re
import select
import socket as sockets
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol as Interface

from netlab.errors import RemoteProtocolError
from netlab.native import revisions, server
from netlab.native.blocks import Dialect
from netlab.native.client import ClientBlock, ClientHello, Query, TablesStatusRequest
from netlab.native.connection import chunk
from netlab.native.messages import (
    CHUNKED,
    NOT_CHUNKED,
    ServerException,
    ServerHello,
    ServerMessage,
    ServerSignal,
    TablesStatus,
)
from netlab.native.stream import ClientDecoder, Event, Link, Message
from netlab.scenario import Delivery
from netlab.servers.scripted_packets import Packets
from netlab.servers.scripted_player import Action, Player, StoppedError, Write, actions, writes
from netlab.servers.scripted_train import Answer, Framing, Group, Part, Send, Train
from netlab.wire import ClientPacket, ServerPacket

_LARGEST_PACKET = 1 << 20
# A packet of many tiny settings becomes objects of some sixty times its size.
_WEIGHT = 64
_MOST_WAITING = 256  # packets received ahead of their turn
_RECEIVE = 1 << 16
_HELLO_WAIT_MS = 30_000
_FIRST_WORD = re.compile(r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*\(*\s*([A-Za-z]+)", re.DOTALL)
_WITH_RESULT = {"SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXISTS", "EXPLAIN", "CHECK", "VALUES", "FROM", "WATCH"}
_WITHOUT_RESULT = {
    "CREATE",
    "DROP",
    "SET",
    "USE",
    "ALTER",
    "SYSTEM",
    "OPTIMIZE",
    "TRUNCATE",
    "ATTACH",
    "DETACH",
    "KILL",
}
_WITHOUT_RESULT |= {
    "RENAME",
    "GRANT",
    "REVOKE",
    "DELETE",
    "UPDATE",
    "EXCHANGE",
    "UNDROP",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
}
# What command-line clients ask by themselves for their completion.
_SUGGESTIONS = "SELECT DISTINCT arrayJoin(extractAll(name"
_SUGGESTED = Answer(
    columns=(("name", "String"),),
    steps=tuple(
        Group(sends=(Send(part=part),)) for part in (Part.HEADER, Part.DATA, Part.EMPTY_DATA, Part.END_OF_STREAM)
    ),
)
_OFF = {"0", "false", "none", ""}


class Budget:
    """Memory that all clients together may make the server hold for packets that are not whole yet."""

    def __init__(self, total: int) -> None:
        self._left = total
        self._lock = threading.Lock()

    def change(self, by: int) -> None:
        """Take `by` bytes (negative: give back). Raises RemoteProtocolError when there are not so many."""
        with self._lock:
            if by > self._left:
                raise RemoteProtocolError("unfinished packets of all clients exceed the server's memory")
            self._left -= by


class Log(Interface):
    """Where a session's events go."""

    def note(self, what: str, **fields: object) -> None:
        """Note an event."""

    def playing(self, query: int, player: Player) -> None:
        """Note that `player` answers `query` now."""

    def wrote(self, query: int, player: Player) -> None:
        """Note what a player has sent, and let it forget that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What every session of one server shares."""

    train: Train
    delivery: Delivery
    budget: Budget = field(default_factory=lambda: Budget(96 << 20))


class NativeSession:
    """One connection from its first byte to its last."""

    def __init__(self, connection: sockets.socket, play: Play, log: Log) -> None:
        self._socket = connection
        self._play = play
        self._log = log
        self._link = Link()
        self._decoder = ClientDecoder(self._link)
        self._events: deque[Event] = deque()
        self._fed = 0
        self._held = 0
        self._queries = 0
        self._query: Query | None = None
        self._player = Player(connection, self._look)

    def run(self) -> None:
        """Serve until the client leaves. Raises NetlabError, OSError."""
        try:
            if not self._log_in():
                return
            for packet in self._packets():
                self._answer(packet)
        finally:
            self._play.budget.change(-self._held)

    def _log_in(self) -> bool:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        while not self._events:
            if not poller.poll(_HELLO_WAIT_MS):
                raise RemoteProtocolError("no Hello came")
            if not self._receive():
                return False
        hello = self._events.popleft().packet
        assert isinstance(hello, ClientHello)  # the decoder lets nothing else pass
        train = self._play.train
        refusal = refuse(hello, train)
        mode = CHUNKED if train.framing is Framing.CHUNKED else NOT_CHUNKED
        major, minor, patch = train.version
        answer: ServerMessage = refusal or ServerHello(
            name="ClickHouse",
            major=major,
            minor=minor,
            patch=patch,
            revision=train.revision,
            timezone="UTC",
            display_name="netlab scripted",
            parallel_replicas=1,
            send_mode=mode,
            receive_mode=mode,
            nonce=int.from_bytes(os.urandom(8), "little"),
        )
        self._write(server.encode(answer, Dialect(revision=hello.revision)), answer.kind.label)
        self._log.note(
            "login", client=hello.name, revision=hello.revision, user=hello.user, refused=refusal is not None
        )
        if refusal is None:
            self._link.server_sent(answer)
        return refusal is None

    def _packets(self) -> Iterator[Message]:
        while True:
            while self._events:
                yield self._events.popleft().packet
            self._collect()  # what could not be read before our Hello
            if not self._events and not self._receive():
                return

    def _answer(self, packet: Message) -> None:
        match packet:
            case Query():
                self._query = packet
            case ClientBlock(kind=ClientPacket.DATA) if not packet.block.columns and self._query is not None:
                query, self._query = self._query, None
                self._run(query)
            case TablesStatusRequest():
                self._send(TablesStatus())
            case _ if getattr(packet, "kind", None) is ClientPacket.PING:
                self._send(ServerSignal(kind=ServerPacket.PONG))

    def _run(self, query: Query) -> None:
        self._queries += 1
        self._log.playing(self._queries, self._player)
        answer = choose(query.sql, self._play.train)
        # Sizes in a train are those before compression.
        dialect = Dialect(revision=self._link.revision, compression=self._link.method)
        end: ServerMessage = ServerSignal(kind=ServerPacket.END_OF_STREAM)
        try:
            if isinstance(answer, Answer):
                self._player.play(self._train(answer, query, dialect))
            else:
                end = answer or end
                self._send(end)
        except StoppedError as stop:
            if not isinstance(stop, _CancelledError):
                raise
            self._socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_CORK, 0)
            self._send(end)
        finally:
            self._link.server_sent(end)
            self._log.wrote(self._queries, self._player)

    def _train(self, answer: Answer, query: Query, dialect: Dialect) -> Iterator[Action]:
        packets = Packets(answer.columns, dialect, chunked=self._link.server_chunked)
        settings = {setting.name: setting.value for setting in query.settings}
        left_out = set()
        if settings.get("send_profile_events", "1") in _OFF:
            left_out.add(Part.PROFILE_EVENTS)
        if settings.get("send_logs_level", "none").lower() in _OFF:
            left_out.add(Part.LOG)

        def encode(send: Send) -> bytes | None:
            return packets.encode(send) if send.part not in left_out and packets.knows(send.part) else None

        return writes(actions(answer.steps, encode), self._play.delivery)

    def _send(self, message: ServerMessage) -> None:
        dialect = Dialect(revision=self._link.revision)
        encoded = server.encode(message, dialect)
        self._write(chunk(encoded) if self._link.server_chunked else encoded, message.kind.label)

    def _write(self, data: bytes, part: str) -> None:
        self._player.write(Write(data=data, parts=(part,)))
        self._log.wrote(self._queries, self._player)

    def _look(self) -> bool:
        """See what the client sent while a train plays. Raises StoppedError."""
        if not self._receive():
            raise StoppedError("the client went away in the middle of an answer")
        for event in self._events:
            if event.kind is ClientPacket.CANCEL:
                self._events.remove(event)
                raise _CancelledError("the client cancelled")
            if event.kind is ClientPacket.PING:
                raise StoppedError("a Ping came while a query ran")
        return True

    def _receive(self) -> bool:
        """Take what the client sent; return whether it still sends."""
        data = self._socket.recv(_RECEIVE)
        if not data:
            return False
        self._fed += len(data)
        self._decoder.feed(data)
        self._collect()
        return True

    def _collect(self) -> None:
        for event in self._decoder.packets():
            self._events.append(event)
            if len(self._events) > _MOST_WAITING:
                raise RemoteProtocolError("the client sends packets without waiting for answers")
        start = self._decoder.pending
        unfinished = 0 if start is None else self._fed - start
        if unfinished > _LARGEST_PACKET:
            raise RemoteProtocolError(f"a packet of more than {_LARGEST_PACKET} bytes")
        held = _WEIGHT * unfinished
        self._play.budget.change(held - self._held)
        self._held = held


class _CancelledError(StoppedError):
    """The client sent Cancel."""


def refuse(hello: ClientHello, train: Train) -> ServerException | None:
    """Return why a client is not let in, or None."""
    login = train.login
    if hello.revision < revisions.OLDEST:
        return _exception(48, "NOT_IMPLEMENTED", "The client is too old")
    if (hello.user or "default", hello.password) != (login.user, login.password):
        text = f"{hello.user}: Authentication failed: password is incorrect, or there is no user with such name"
        if train.version < (20, 1, 0):
            return _exception(193, "WRONG_PASSWORD", text)
        return _exception(516, "AUTHENTICATION_FAILED", text)
    if hello.database not in login.databases:
        return _exception(81, "UNKNOWN_DATABASE", f"Database {hello.database} does not exist")
    return None


def choose(sql: str, train: Train) -> Answer | ServerException | None:
    """Return what answers `sql`: a train, an error, or None for a bare EndOfStream."""
    named = next((answer for answer in train.answers if answer.query is not None and answer.matches(sql)), None)
    if named is not None:
        return named
    found = _FIRST_WORD.match(sql)
    word = found[1].upper() if found else ""
    if word in _WITHOUT_RESULT:
        return None
    if word in _WITH_RESULT:
        if sql.lstrip().startswith(_SUGGESTIONS):
            return _SUGGESTED
        usual = next((answer for answer in train.answers if answer.query is None), None)
        return usual or _exception(60, "UNKNOWN_TABLE", "No answer of the train fits the query")
    if word == "INSERT":
        return _exception(48, "NOT_IMPLEMENTED", "The scripted server takes no data")
    return _exception(62, "SYNTAX_ERROR", f"Syntax error: failed at: {sql.strip()[:60]}")


def _exception(code: int, name: str, text: str) -> ServerException:
    """Return an error as servers spell it. Codes: ClickHouse src/Common/ErrorCodes.cpp."""
    return ServerException(code=code, name="DB::Exception", message=f"DB::Exception: {text}. ({name})")

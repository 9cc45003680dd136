"""The scripted server's process: logs clients in, and answers each query with the train.

Descriptor 3 takes "ready\\n" once it listens; descriptor 4 is the owner's lifeline. Each answer's writes are logged on
stderr as one JSON line. A client that sends nonsense loses its own connection and nothing else.
"""

import contextlib
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator

from netlab.errors import NetlabError
from netlab.native import server
from netlab.native.blocks import Dialect
from netlab.native.client import ClientBlock, ClientHello, Query
from netlab.native.compression import Method
from netlab.native.messages import ServerException, ServerHello, ServerMessage, ServerSignal
from netlab.native.stream import ClientDecoder, Link
from netlab.scenario import Delivery
from netlab.servers.packets import Answer
from netlab.servers.train import Protocol, Train, Write, parse_train, writes
from netlab.units import NS_PER_S
from netlab.wire import ClientPacket, ServerPacket

_REVISION = 54464
_MOST_CLIENTS = 128
_PATIENCE_S = 3600.0
_SEND_PATIENCE_S = 60.0
_HELD_BACK = 1 << 20  # bytes of a client's stream that may be undecoded at once
_DATABASES = ("", "default", "system")


class _Leave(Exception):
    """The client is done with, or not worth more."""


class Playing:
    """What all connections share: the train, how it is delivered, the password."""

    def __init__(self, train: Train, delivery: Delivery, password: str) -> None:
        self.train = train
        self.writes = writes(train, delivery)
        self.delivery = delivery
        self.password = password


def play(connection: socket.socket, plan: list[tuple[Write, bytes]], delivery: Delivery) -> list[int]:
    """Send a response; return the size of each write."""
    if delivery is Delivery.CORK:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    due = time.monotonic_ns()
    for write, data in plan:
        if write.pause:
            due = max(due, time.monotonic_ns()) + write.pause
            while (left := due - time.monotonic_ns()) > 0:
                time.sleep(left / NS_PER_S)
        connection.sendall(data)
    if delivery is Delivery.CORK:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    return [len(data) for _, data in plan]


class Client:
    """One connection of a Native client."""

    def __init__(self, connection: socket.socket, playing: Playing) -> None:
        self._connection = connection
        self._playing = playing
        self._link = Link()
        self._decoder = ClientDecoder(self._link)
        self._query: Query | None = None

    def serve(self) -> None:
        """Answer until the client leaves. Raises OSError, NetlabError, _Leave."""
        while data := self._connection.recv(65536):
            self._decoder.feed(data)
            for event in self._decoder.packets():
                self._take(event.packet)
            if self._decoder.pending is not None and self._decoder.waiting > _HELD_BACK:
                raise _Leave

    def _take(self, packet: object) -> None:
        if isinstance(packet, ClientHello):
            self._greet(packet)
        elif isinstance(packet, Query):
            self._query = packet
        elif isinstance(packet, ClientBlock):
            # The empty block ends the external tables, and only then a server starts.
            if self._query is not None and not packet.rows and not packet.block.columns:
                query, self._query = self._query, None
                self._answer(query)
        elif getattr(packet, "kind", None) is ClientPacket.PING:
            self._send(ServerSignal(kind=ServerPacket.PONG))
        elif getattr(packet, "kind", None) is ClientPacket.CANCEL:
            return  # answers are played whole before the next packet is read
        elif getattr(packet, "kind", None) is not None:
            self._refuse(48, "NOT_IMPLEMENTED", "the scripted server does not play that packet")
            raise _Leave

    def _greet(self, hello: ClientHello) -> None:
        if self._playing.password and hello.password != self._playing.password:
            self._refuse(516, "AUTHENTICATION_FAILED", f"{hello.user}: Authentication failed: password is incorrect")
            raise _Leave
        if hello.database not in _DATABASES:
            self._refuse(81, "UNKNOWN_DATABASE", f"Database {hello.database} does not exist")
            raise _Leave
        answer = ServerHello(
            name="ClickHouse",
            major=26,
            minor=7,
            patch=2,
            revision=_REVISION,
            timezone="UTC",
            display_name="netlab scripted server",
        )
        self._connection.sendall(server.encode(answer, Dialect(revision=hello.revision)))
        self._link.server_sent(answer)

    def _answer(self, query: Query) -> None:
        dialect = Dialect(revision=self._link.revision, compression=Method.NONE if query.compression else None)
        if query.sql.lstrip().upper().startswith("INSERT"):
            self._refuse(48, "NOT_IMPLEMENTED", "the scripted server plays answers; it stores nothing")
            return
        answer = Answer(self._playing.train, query, dialect)
        plan = [(write, data) for write in self._playing.writes if (data := answer.encode(write))]
        sizes = play(self._connection, plan, self._playing.delivery)
        self._link.server_sent(ServerSignal(kind=ServerPacket.END_OF_STREAM))
        log({"query": query.sql[:200], "writes": sizes})

    def _send(self, message: ServerMessage) -> None:
        self._connection.sendall(server.encode(message, Dialect(revision=self._link.revision)))

    def _refuse(self, code: int, name: str, text: str) -> None:
        refusal = ServerException(code=code, name=f"DB::Exception ({name})", message=f"{text}. ({name})")
        revision = self._link.client_revision or _REVISION
        self._connection.sendall(server.encode(refusal, Dialect(revision=revision)))
        self._link.server_sent(refusal)


def serve_raw(connection: socket.socket, playing: Playing) -> None:
    """Answer each line with the train's bytes."""
    held = b""
    plan = [(write, b"".join(b"x" * packet.size for packet in write.packets)) for write in playing.writes]
    while data := connection.recv(65536):
        held += data
        while b"\n" in held:
            _line, _, held = held.partition(b"\n")
            log({"writes": play(connection, [(w, d) for w, d in plan if d], playing.delivery)})
        if len(held) > _HELD_BACK:
            raise _Leave


def serve(connection: socket.socket, playing: Playing, places: threading.Semaphore) -> None:
    """Serve one connection to its end."""
    with places, connection, contextlib.suppress(OSError, _Leave):
        connection.settimeout(_PATIENCE_S)
        if playing.delivery in (Delivery.NODELAY, Delivery.BATCHED):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if playing.train.protocol is Protocol.RAW:
                serve_raw(connection, playing)
            else:
                Client(connection, playing).serve()
        except NetlabError as error:
            log({"refused": error.what[:300]})


def log(fields: dict[str, object]) -> None:
    """Write one JSON line on stderr."""
    sys.stderr.write(json.dumps(fields) + "\n")
    sys.stderr.flush()


def accept(listening: socket.socket, lifeline: int) -> Iterator[socket.socket]:
    """Yield connections until the owner is gone."""
    while True:
        ready = select.select([listening, lifeline], (), ())[0]
        if lifeline in ready:
            return
        try:
            connection, _peer = listening.accept()
        except OSError:
            continue  # the client gave up before it was accepted
        yield connection


def main() -> None:
    """Listen and serve."""
    config = json.loads(os.environ.pop("NETLAB_SCRIPT"))
    train = parse_train(config["train"], "train")
    playing = Playing(train, Delivery(config["delivery"]), config["password"])
    listening = socket.create_server((config["address"], config["port"]), backlog=128)
    os.write(3, b"ready\n")
    os.close(3)
    places = threading.Semaphore(_MOST_CLIENTS)
    for connection in accept(listening, 4):
        threading.Thread(target=serve, args=(connection, playing, places), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()

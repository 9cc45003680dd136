"""Run statements on a server that has just been started: its table is made over its own protocol."""

import socket as sockets
import time
from collections.abc import Sequence

from netlab.errors import ProbeError, ServerError, ServerExceptionError
from netlab.hosts import Host
from netlab.native.connection import Connection, Login
from netlab.native.messages import ServerException, ServerHello
from netlab.native.stream import Event
from netlab.units import NS_PER_S
from netlab.wire import ServerPacket

_RECEIVE = 65536

# The article's table: 939 rows, spelt so that servers since 2018 take it.
TABLE = (
    "CREATE TABLE default.benchmark_test (id UInt64, name String, value Float64, created DateTime) "
    "ENGINE = MergeTree ORDER BY id",
    "INSERT INTO default.benchmark_test SELECT number, concat('name-', toString(number)), number / 7, "
    "toDateTime('2026-01-01 00:00:00') + number FROM (SELECT number FROM system.numbers LIMIT 939)",
)


class Client:
    """One connection from the server's own end, with its handshake done. Every wait is bounded by `deadline` (ns)."""

    def __init__(self, host: Host, port: int, deadline: int) -> None:
        self._deadline = deadline
        self._connection = Connection(Login())
        self._socket = host.socket(sockets.AddressFamily.AF_INET, sockets.SocketKind.SOCK_STREAM)
        try:
            self._bound()
            self._socket.connect((host.address, port))
            self.hello = self._handshake()
        except BaseException:
            self._socket.close()
            raise

    def run(self, statements: Sequence[str]) -> None:
        """Run each of `statements` to its end. Raises ServerExceptionError, ProbeError, OSError."""
        for statement in statements:
            self._send(self._connection.query_bytes(statement))
            while not any(event.kind is ServerPacket.END_OF_STREAM for event in self._receive()):
                pass

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _handshake(self) -> ServerHello:
        self._send(self._connection.hello_bytes())
        while True:
            for event in self._receive():
                if isinstance(event.packet, ServerHello):
                    self._send(self._connection.addendum_bytes())
                    return event.packet

    def _send(self, data: bytes) -> None:
        self._bound()
        self._socket.sendall(data)

    def _receive(self) -> list[Event]:
        self._bound()
        data = self._socket.recv(_RECEIVE)
        events = list(self._connection.receive(data))
        for event in events:
            if isinstance(event.packet, ServerException):
                raise ServerExceptionError(event.packet.code, event.packet.name, event.packet.message)
        if not data:
            raise ProbeError("the server closed the connection")
        return events

    def _bound(self) -> None:
        left = self._deadline - time.monotonic_ns()
        if left <= 0:
            raise ServerError("the server did not answer in time")
        self._socket.settimeout(left / NS_PER_S)

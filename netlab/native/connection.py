"""The client's side of a connection as a machine: it gives the bytes to send, and turns received bytes into events.

No sockets, no clock. Order of use: `hello_bytes`, events until the ServerHello, `addendum_bytes`, then queries.
A server's Exception is an event like any other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from netlab.errors import UsageError
from netlab.native import client, revisions
from netlab.native.blocks import Dialect, Values
from netlab.native.client import Addendum, ClientBlock, ClientHello, ClientSignal, Query
from netlab.native.client_info import ClientInfo
from netlab.native.compression import Method
from netlab.native.messages import CHUNKED, NOT_CHUNKED, Setting
from netlab.native.stream import Event, Link, ServerDecoder
from netlab.wire import ClientPacket

_CUSTOM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who connects, and as what. The password stays out of `repr`."""

    user: str = "default"
    password: str = field(default="", repr=False)
    database: str = ""
    client_name: str = "netlab"
    revision: int = revisions.PROBE


class Connection:
    """One connection, seen from the client."""

    def __init__(self, login: Login, values: Values = Values.SKIP) -> None:
        self.login = login
        self._link = Link()
        self._decoder = ServerDecoder(self._link, values)

    @property
    def revision(self) -> int:
        """The revision that both ends speak. Raises UsageError before the handshake."""
        if self._link.server_revision is None:
            raise UsageError("the handshake is not over")
        return self._link.revision

    @property
    def bytes_read(self) -> int:
        """Bytes of the server's stream that were decoded."""
        return self._decoder.offset

    def hello_bytes(self) -> bytes:
        """Return the client's Hello."""
        login = self.login
        hello = ClientHello(
            name=login.client_name,
            major=1,
            minor=0,
            revision=login.revision,
            database=login.database,
            user=login.user,
            password=login.password,
        )
        self._link.client_sent(hello)
        return client.encode(hello, Dialect(revision=login.revision))

    def addendum_bytes(self, *, chunked: bool = False) -> bytes:
        """Return what follows the server's Hello; empty for revisions that have no addendum.

        `chunked` asks for chunks (54470) where the server lets the client choose.
        """
        server_sends, server_receives = self._link.server_modes
        addendum = Addendum(
            send_mode=_agreed(server_receives, chunked=chunked), receive_mode=_agreed(server_sends, chunked=chunked)
        )
        encoded = client.encode(addendum, Dialect(revision=self.revision))
        if encoded:
            self._link.client_sent(addendum)
        return encoded

    def query_bytes(
        self,
        sql: str,
        *,
        settings: Mapping[str, str] | None = None,
        query_id: str = "",
        parameters: Mapping[str, str] | None = None,
        compression: Method | None = None,
    ) -> bytes:
        """Return the Query and the empty Data block that starts it, to be sent in one write.

        `parameters` are values for `{name:Type}` placeholders, as plain text.
        """
        query = Query(
            query_id=query_id,
            info=ClientInfo(client_name=self.login.client_name, major=1, revision=self.login.revision),
            settings=tuple(Setting(name=name, value=value, flags=1) for name, value in (settings or {}).items()),
            compression=compression is not None,
            sql=sql,
            parameters=tuple(
                Setting(name=name, value=quoted(value), flags=_CUSTOM) for name, value in (parameters or {}).items()
            ),
        )
        dialect = Dialect(revision=self.revision, compression=compression)
        parts = [client.encode(query, dialect), client.encode(ClientBlock(), dialect)]
        self._link.client_sent(query)
        return b"".join(chunk(part) if self._link.client_chunked else part for part in parts)

    def ping_bytes(self) -> bytes:
        """Return a Ping. Sent while a query runs, it makes the server close the connection."""
        return self._signal(ClientPacket.PING)

    def cancel_bytes(self) -> bytes:
        """Return a Cancel: the query in hand ends with a bare EndOfStream."""
        return self._signal(ClientPacket.CANCEL)

    def receive(self, data: bytes | memoryview) -> Iterator[Event]:
        """Take what the server sent (`b""`: it closed) and yield each packet that is now whole.

        The bytes are taken at once; they are decoded as the iterator runs. Raises RemoteProtocolError at bytes that
        are not the protocol and at an end inside a packet, UnsupportedError at what is not read here.
        """
        if data:
            self._decoder.feed(data)
            return self._decoder.packets()
        events = list(self._decoder.finish())
        self._decoder.end()
        return iter(events)

    def _signal(self, kind: ClientPacket) -> bytes:
        encoded = client.encode(ClientSignal(kind=kind), Dialect(revision=self.revision))
        return chunk(encoded) if self._link.client_chunked else encoded


def _agreed(server_mode: str, *, chunked: bool) -> str:
    """Return one direction's framing: the server's where it insists, else ours."""
    if not server_mode.endswith("_optional"):
        return server_mode
    return CHUNKED if chunked else NOT_CHUNKED


def chunk(packet: bytes) -> bytes:
    """Return `packet` as one chunk and the end mark (54470)."""
    return len(packet).to_bytes(4, "little") + packet + bytes(4)


def quoted(value: str) -> str:
    """Return `value` as an SQL string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

"""Packets from the client: what each one carries, how it is read, how it is written.

Field order and gates: ClickHouse src/Client/Connection.cpp.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from netlab.errors import RemoteProtocolError
from netlab.native import revisions, wire
from netlab.native.blocks import Block, Dialect, encode_block, read_block
from netlab.native.client_info import ClientInfo, encode_info, read_info
from netlab.native.messages import NOT_CHUNKED, Setting
from netlab.native.server import encode_settings, read_revision, read_settings
from netlab.native.types import UnsupportedError
from netlab.native.wire import MAX_LIST, MAX_SETTINGS, MAX_STRING, Reader, Step
from netlab.wire import ClientPacket

_STAGE_COMPLETE = 2
# Settings that peers before 54429 write as text; their others are numbers (18.16 src/Interpreters/Settings.h).
_OLD_TEXT_SETTINGS = frozenset(
    {
        "count_distinct_implementation",
        "date_time_input_format",
        "distributed_product_mode",
        "format_schema",
        "join_default_strictness",
        "load_balancing",
        "network_compression_method",
        "send_logs_level",
        "totals_mode",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """The client's half of the handshake. The password stays out of `repr`."""

    kind: ClassVar[ClientPacket] = ClientPacket.HELLO
    name: str
    major: int
    minor: int
    revision: int
    database: str = ""
    user: str = "default"
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addendum:
    """What the client adds once it has the server's Hello (54458). On the wire it has no type."""

    quota_key: str = ""
    send_mode: str = NOT_CHUNKED
    receive_mode: str = NOT_CHUNKED
    parallel_replicas: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query. The server starts it only when an empty Data block follows."""

    kind: ClassVar[ClientPacket] = ClientPacket.QUERY
    query_id: str = ""
    info: ClientInfo = field(default_factory=ClientInfo)
    settings: tuple[Setting, ...] = ()
    roles: str = ""
    secret: str = field(default="", repr=False)
    stage: int = _STAGE_COMPLETE
    compression: bool = False
    sql: str = ""
    parameters: tuple[Setting, ...] = ()  # values as quoted SQL literals, flags 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBlock:
    """A packet that is a block: Data or Scalar. An empty one ends the blocks of a query."""

    kind: ClientPacket = ClientPacket.DATA
    table: str = ""
    block: Block = field(default_factory=Block)

    @property
    def rows(self) -> int:
        """Rows of the block."""
        return self.block.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientText:
    """A packet that is one text: SSHChallengeResponse."""

    kind: ClientPacket
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesStatusRequest:
    """Asks for the state of (database, table) pairs."""

    kind: ClassVar[ClientPacket] = ClientPacket.TABLES_STATUS_REQUEST
    tables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSignal:
    """A packet without a body: Cancel, Ping, KeepAlive, SSHChallengeRequest."""

    kind: ClientPacket


ClientMessage: TypeAlias = (
    ClientHello | Addendum | Query | ClientBlock | ClientText | TablesStatusRequest | ClientSignal
)


def read_body(reader: Reader, kind: ClientPacket, dialect: Dialect) -> Step[ClientMessage]:
    """Read what follows the type byte.

    Raises RemoteProtocolError, and UnsupportedError for a packet whose layout is not known here.
    """
    read = _READERS.get(kind)
    if read is None:
        raise UnsupportedError(f"packet {kind.label} between servers is not read here")
    return (yield from read(reader, kind, dialect))


def read_addendum(reader: Reader, revision: int) -> Step[Addendum]:
    """Read the addendum, which has no type byte; `revision` is at least revisions.ADDENDUM."""
    quota_key = yield from reader.string()
    send_mode, receive_mode, parallel_replicas = NOT_CHUNKED, NOT_CHUNKED, 0
    if revision >= revisions.CHUNKED:
        send_mode = yield from reader.string()
        receive_mode = yield from reader.string()
    if revision >= revisions.VERSIONED_PARALLEL_REPLICAS:
        parallel_replicas = yield from reader.varuint()
    return Addendum(
        quota_key=quota_key, send_mode=send_mode, receive_mode=receive_mode, parallel_replicas=parallel_replicas
    )


def encode(message: ClientMessage, dialect: Dialect) -> bytes:
    """Encode a packet, type byte included. Raises UsageError for a block whose values do not fit their types."""
    if isinstance(message, Addendum):
        return _encode_addendum(message, dialect.revision)
    return wire.varuint(message.kind) + _WRITERS[type(message)](message, dialect)


def _encode_addendum(message: Addendum, revision: int) -> bytes:
    if revision < revisions.ADDENDUM:
        return b""
    out = wire.string(message.quota_key)
    if revision >= revisions.CHUNKED:
        out += wire.string(message.send_mode) + wire.string(message.receive_mode)
    if revision >= revisions.VERSIONED_PARALLEL_REPLICAS:
        out += wire.varuint(message.parallel_replicas)
    return out


def _read_hello(reader: Reader, kind: ClientPacket, dialect: Dialect) -> Step[ClientHello]:
    name = yield from reader.string()
    major = yield from reader.varuint()
    minor = yield from reader.varuint()
    revision = yield from read_revision(reader)
    database = yield from reader.string()
    user = yield from reader.string()
    password = yield from reader.string()
    return ClientHello(
        name=name, major=major, minor=minor, revision=revision, database=database, user=user, password=password
    )


def _encode_hello(message: ClientHello, dialect: Dialect) -> bytes:
    out = wire.string(message.name)
    out += wire.varuint(message.major) + wire.varuint(message.minor) + wire.varuint(message.revision)
    return out + wire.strings(message.database, message.user, message.password)


def _read_old_settings(reader: Reader) -> Step[tuple[Setting, ...]]:
    """Read settings of a peer before 54429: their values have the setting's own type, and nothing says which."""
    out: list[Setting] = []
    while name := (yield from reader.string()):
        if len(out) >= MAX_SETTINGS:
            raise RemoteProtocolError(f"more than {MAX_SETTINGS} settings")
        if name in _OLD_TEXT_SETTINGS:
            value = yield from reader.string()
        else:
            value = str((yield from reader.varuint()))
        out.append(Setting(name=name, value=value))
    return tuple(out)


def _encode_old_settings(settings: tuple[Setting, ...]) -> bytes:
    out = b""
    for each in settings:
        number = each.value.isascii() and each.value.isdigit() and each.name not in _OLD_TEXT_SETTINGS
        out += wire.string(each.name) + (wire.varuint(int(each.value)) if number else wire.string(each.value))
    return out + b"\0"


def _read_query(reader: Reader, kind: ClientPacket, dialect: Dialect) -> Step[Query]:
    revision = dialect.revision
    query_id = yield from reader.string()
    info = yield from read_info(reader, revision)
    as_text = revision >= revisions.SETTINGS_AS_STRINGS
    settings = yield from (read_settings(reader) if as_text else _read_old_settings(reader))
    roles = (yield from reader.string()) if revision >= revisions.EXTERNAL_ROLES else ""
    secret = (yield from reader.string()) if revision >= revisions.INTERSERVER_SECRET else ""
    stage = yield from reader.varuint()
    compression = yield from reader.flag()
    sql = yield from reader.string(MAX_STRING)
    parameters = (yield from read_settings(reader)) if revision >= revisions.PARAMETERS else ()
    return Query(
        query_id=query_id,
        info=info,
        settings=settings,
        roles=roles,
        secret=secret,
        stage=stage,
        compression=compression,
        sql=sql,
        parameters=parameters,
    )


def _encode_query(message: Query, dialect: Dialect) -> bytes:
    revision = dialect.revision
    out = wire.string(message.query_id) + encode_info(message.info, revision)
    as_text = revision >= revisions.SETTINGS_AS_STRINGS
    out += encode_settings(message.settings) if as_text else _encode_old_settings(message.settings)
    if revision >= revisions.EXTERNAL_ROLES:
        out += wire.string(message.roles)
    if revision >= revisions.INTERSERVER_SECRET:
        out += wire.string(message.secret)
    out += wire.varuint(message.stage) + wire.flag(message.compression) + wire.string(message.sql)
    if revision >= revisions.PARAMETERS:
        out += encode_settings(message.parameters)
    return out


def _read_block(reader: Reader, kind: ClientPacket, dialect: Dialect) -> Step[ClientBlock]:
    table = yield from reader.string()
    return ClientBlock(kind=kind, table=table, block=(yield from read_block(reader, dialect)))


def _read_tables(reader: Reader, kind: ClientPacket, dialect: Dialect) -> Step[TablesStatusRequest]:
    tables = []
    for _ in range((yield from reader.count("the number of tables", MAX_LIST))):
        database = yield from reader.string()
        tables.append((database, (yield from reader.string())))
    return TablesStatusRequest(tables=tuple(tables))


def _encode_tables(message: TablesStatusRequest, dialect: Dialect) -> bytes:
    return wire.varuint(len(message.tables)) + b"".join(wire.strings(*pair) for pair in message.tables)


def _read_text(reader: Reader, kind: ClientPacket, dialect: Dialect) -> Step[ClientText]:
    return ClientText(kind=kind, text=(yield from reader.string()))


def _read_signal(reader: Reader, kind: ClientPacket, dialect: Dialect) -> Step[ClientSignal]:
    return ClientSignal(kind=kind)
    yield


_READERS: dict[ClientPacket, Callable[[Reader, ClientPacket, Dialect], Step[ClientMessage]]] = {
    ClientPacket.HELLO: _read_hello,
    ClientPacket.QUERY: _read_query,
    ClientPacket.DATA: _read_block,
    ClientPacket.CANCEL: _read_signal,
    ClientPacket.PING: _read_signal,
    ClientPacket.TABLES_STATUS_REQUEST: _read_tables,
    ClientPacket.KEEP_ALIVE: _read_signal,
    ClientPacket.SCALAR: _read_block,
    ClientPacket.SSH_CHALLENGE_REQUEST: _read_signal,
    ClientPacket.SSH_CHALLENGE_RESPONSE: _read_text,
}
_WRITERS: dict[type, Callable[[Any, Dialect], bytes]] = {
    ClientHello: _encode_hello,
    Query: _encode_query,
    ClientBlock: lambda message, dialect: wire.string(message.table) + encode_block(message.block, dialect),
    ClientText: lambda message, _: wire.string(message.text),
    TablesStatusRequest: _encode_tables,
    ClientSignal: lambda message, _: b"",
}

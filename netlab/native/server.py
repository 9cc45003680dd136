"""Packets from the server, read and written.

A packet is a VarUInt type and a body without a length, so whoever reads a stream must know every body. Field order and
gates: ClickHouse src/Server/TCPHandler.cpp, and the bytes of servers of revisions 54412, 54488 and 54492.
"""

from collections.abc import Callable
from typing import Any

from netlab.errors import RemoteProtocolError
from netlab.native import revisions, wire
from netlab.native.blocks import Dialect, encode_block, read_block
from netlab.native.compression import compress, read_compressed
from netlab.native.messages import (
    PartUUIDs,
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerHello,
    ServerMessage,
    ServerSignal,
    ServerText,
    Setting,
    TableColumns,
    TablesStatus,
    TableStatus,
)
from netlab.native.types import UnsupportedError
from netlab.native.wire import MAX_LIST, MAX_SETTINGS, MAX_STRING, Reader, Step
from netlab.wire import ServerPacket

_MAX_NESTED = 64


_BLOCKS = (
    ServerPacket.DATA,
    ServerPacket.TOTALS,
    ServerPacket.EXTREMES,
    ServerPacket.LOG,
    ServerPacket.PROFILE_EVENTS,
    ServerPacket.PREVIEW_DATA,
)
# Compressed from revisions.COMPRESSED_LOGS on only.
_SIDE_BLOCKS = (ServerPacket.LOG, ServerPacket.PROFILE_EVENTS)


def read_body(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[ServerMessage]:
    """Read what follows the type byte. `dialect.revision` is the client's own for a Hello.

    Raises RemoteProtocolError, and UnsupportedError for a packet whose layout is not known here.
    """
    if kind in _BLOCKS:
        table = yield from reader.string()
        return ServerBlock(kind=kind, table=table, block=(yield from read_block(reader, of_kind(dialect, kind))))
    read = _READERS.get(kind)
    if read is None:
        raise UnsupportedError(f"packet {kind.label} between servers is not read here")
    return (yield from read(reader, kind, dialect))


def encode(message: ServerMessage, dialect: Dialect) -> bytes:
    """Encode a packet, type byte included. Raises UsageError for a block whose values do not fit their types."""
    return wire.varuint(message.kind) + _WRITERS[type(message)](message, dialect)


def of_kind(dialect: Dialect, kind: ServerPacket) -> Dialect:
    """Return the dialect of blocks in a packet of `kind`: old revisions never compress Log and ProfileEvents."""
    if kind in _SIDE_BLOCKS and dialect.revision < revisions.COMPRESSED_LOGS and dialect.compression is not None:
        return Dialect(revision=dialect.revision, values=dialect.values)
    return dialect


def read_revision(reader: Reader) -> Step[int]:
    """Read the revision in a Hello. Raises RemoteProtocolError for one that no peer of ours has."""
    revision = yield from reader.varuint()
    if revision < revisions.OLDEST:
        raise RemoteProtocolError(f"a Hello of revision {revision}; the oldest that is read is {revisions.OLDEST}")
    return revision


def read_settings(reader: Reader) -> Step[tuple[Setting, ...]]:
    """Read settings as text: (name, flags, value) up to an empty name."""
    out: list[Setting] = []
    while name := (yield from reader.string()):
        if len(out) >= MAX_SETTINGS:
            raise RemoteProtocolError(f"more than {MAX_SETTINGS} settings")
        flags = yield from reader.varuint()
        out.append(Setting(name=name, flags=flags, value=(yield from reader.string(MAX_STRING))))
    return tuple(out)


def encode_settings(settings: tuple[Setting, ...]) -> bytes:
    """Encode settings as text."""
    triples = [wire.string(each.name) + wire.varuint(each.flags) + wire.string(each.value) for each in settings]
    return b"".join(triples) + b"\0"


def _read_hello(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[ServerHello]:
    name = yield from reader.string()
    major = yield from reader.varuint()
    minor = yield from reader.varuint()
    server = yield from read_revision(reader)
    revision = min(dialect.revision, server)
    more: dict[str, Any] = {}
    for gate, key, read in _HELLO_FIELDS:
        if revision >= gate:
            more[key] = yield from read(reader)
    return ServerHello(name=name, major=major, minor=minor, revision=server, **more)


def _encode_hello(message: ServerHello, dialect: Dialect) -> bytes:
    out = wire.string(message.name)
    out += wire.varuint(message.major) + wire.varuint(message.minor) + wire.varuint(message.revision)
    for gate, key, _ in _HELLO_FIELDS:
        if min(dialect.revision, message.revision) >= gate:
            out += _HELLO_WRITERS[key](getattr(message, key))
    return out


def _read_rules(reader: Reader) -> Step[tuple[tuple[str, str], ...]]:
    out = []
    for _ in range((yield from reader.count("the number of password rules", 1 << 10))):
        pattern = yield from reader.string()
        out.append((pattern, (yield from reader.string())))
    return tuple(out)


def _encode_rules(rules: tuple[tuple[str, str], ...]) -> bytes:
    pairs = [wire.string(pattern) + wire.string(message) for pattern, message in rules]
    return wire.varuint(len(rules)) + b"".join(pairs)


# In wire order: two fields are out of numeric order.
_HELLO_FIELDS: tuple[tuple[int, str, Callable[[Reader], Step[Any]]], ...] = (
    (revisions.VERSIONED_PARALLEL_REPLICAS, "parallel_replicas", Reader.varuint),
    (revisions.TIMEZONE, "timezone", Reader.string),
    (revisions.DISPLAY_NAME, "display_name", Reader.string),
    (revisions.VERSION_PATCH, "patch", Reader.varuint),
    (revisions.CHUNKED, "send_mode", Reader.string),
    (revisions.CHUNKED, "receive_mode", Reader.string),
    (revisions.PASSWORD_RULES, "password_rules", _read_rules),
    (revisions.NONCE, "nonce", lambda reader: reader.integer(8)),
    (revisions.SERVER_SETTINGS, "settings", read_settings),
    (revisions.QUERY_PLAN, "query_plan", Reader.varuint),
    (revisions.CLUSTER_FUNCTION, "cluster_function", Reader.varuint),
)
_HELLO_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "parallel_replicas": wire.varuint,
    "timezone": wire.string,
    "display_name": wire.string,
    "patch": wire.varuint,
    "send_mode": wire.string,
    "receive_mode": wire.string,
    "password_rules": _encode_rules,
    "nonce": lambda value: wire.integer(value, 8),
    "settings": encode_settings,
    "query_plan": wire.varuint,
    "cluster_function": wire.varuint,
}


def _read_exception(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[ServerException]:
    parts: list[tuple[int, str, str, str]] = []
    more = True
    while more:
        if len(parts) > _MAX_NESTED:
            raise RemoteProtocolError(f"an Exception is nested deeper than {_MAX_NESTED} levels")
        code = yield from reader.integer(4, signed=True)
        name = yield from reader.string()
        message = yield from reader.string(MAX_STRING)
        stack = yield from reader.string(MAX_STRING)
        parts.append((code, name, message, stack))
        more = yield from reader.flag()
    nested = tuple(
        ServerException(code=code, name=name, message=message, stack=stack) for code, name, message, stack in parts[1:]
    )
    code, name, message, stack = parts[0]
    return ServerException(code=code, name=name, message=message, stack=stack, nested=nested)


def _encode_exception(message: ServerException, dialect: Dialect) -> bytes:
    chain = (message, *message.nested)
    out = b""
    for at, each in enumerate(chain, start=1):
        out += wire.integer(each.code, 4, signed=True) + wire.string(each.name) + wire.string(each.message)
        out += wire.string(each.stack) + wire.flag(at < len(chain))
    return out


# In wire order.
_PROGRESS_FIELDS = (
    (0, "rows"),
    (0, "bytes"),
    (0, "total_rows"),
    (revisions.TOTAL_BYTES_IN_PROGRESS, "total_bytes"),
    (revisions.WRITE_INFO_IN_PROGRESS, "written_rows"),
    (revisions.WRITE_INFO_IN_PROGRESS, "written_bytes"),
    (revisions.ELAPSED_IN_PROGRESS, "elapsed"),
)


def _read_progress(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[Progress]:
    fields: dict[str, int] = {}
    for gate, key in _PROGRESS_FIELDS:
        if dialect.revision >= gate:
            fields[key] = yield from reader.varuint()
    return Progress(**fields)


def _encode_progress(message: Progress, dialect: Dialect) -> bytes:
    return b"".join(wire.varuint(getattr(message, key)) for gate, key in _PROGRESS_FIELDS if dialect.revision >= gate)


def _read_profile_info(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[ProfileInfo]:
    rows = yield from reader.varuint()
    blocks = yield from reader.varuint()
    size = yield from reader.varuint()
    applied_limit = yield from reader.flag()
    rows_before_limit = yield from reader.varuint()
    calculated = yield from reader.flag()
    aggregation, rows_before_aggregation = False, 0
    if dialect.revision >= revisions.ROWS_BEFORE_AGGREGATION:
        aggregation = yield from reader.flag()
        rows_before_aggregation = yield from reader.varuint()
    return ProfileInfo(
        rows=rows,
        blocks=blocks,
        bytes=size,
        applied_limit=applied_limit,
        rows_before_limit=rows_before_limit,
        calculated_rows_before_limit=calculated,
        applied_aggregation=aggregation,
        rows_before_aggregation=rows_before_aggregation,
    )


def _encode_profile_info(message: ProfileInfo, dialect: Dialect) -> bytes:
    out = wire.varuint(message.rows) + wire.varuint(message.blocks) + wire.varuint(message.bytes)
    out += wire.flag(message.applied_limit) + wire.varuint(message.rows_before_limit)
    out += wire.flag(message.calculated_rows_before_limit)
    if dialect.revision >= revisions.ROWS_BEFORE_AGGREGATION:
        out += wire.flag(message.applied_aggregation) + wire.varuint(message.rows_before_aggregation)
    return out


def _read_table_columns(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[TableColumns]:
    if dialect.compression is not None and dialect.revision >= revisions.COMPRESSED_LOGS:
        return (yield from read_compressed(reader, _read_table_texts))
    return (yield from _read_table_texts(reader))


def _read_table_texts(reader: Reader) -> Step[TableColumns]:
    table = yield from reader.string()
    return TableColumns(table=table, description=(yield from reader.string(MAX_STRING)))


def _encode_table_columns(message: TableColumns, dialect: Dialect) -> bytes:
    body = wire.string(message.table) + wire.string(message.description)
    if dialect.compression is not None and dialect.revision >= revisions.COMPRESSED_LOGS:
        return compress(body, dialect.compression)
    return body


def _read_text(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[ServerText]:
    return ServerText(kind=kind, text=(yield from reader.string()))


def _read_part_uuids(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[PartUUIDs]:
    parts = []
    for _ in range((yield from reader.count("the number of parts", MAX_LIST))):
        parts.append((yield from reader.take(16)))
    return PartUUIDs(parts=tuple(parts))


def _read_tables_status(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[TablesStatus]:
    tables = []
    for _ in range((yield from reader.count("the number of tables", MAX_LIST))):
        database = yield from reader.string()
        table = yield from reader.string()
        replicated = yield from reader.flag()
        delay, read_only = 0, 0
        if replicated:
            delay = yield from reader.varuint()
            if dialect.revision >= revisions.READ_ONLY_IN_TABLES_STATUS:
                read_only = yield from reader.varuint()
        tables.append(
            TableStatus(database=database, table=table, replicated=replicated, delay=delay, read_only=bool(read_only))
        )
    return TablesStatus(tables=tuple(tables))


def _encode_tables_status(message: TablesStatus, dialect: Dialect) -> bytes:
    out = wire.varuint(len(message.tables))
    for each in message.tables:
        out += wire.string(each.database) + wire.string(each.table) + wire.flag(each.replicated)
        if each.replicated:
            out += wire.varuint(each.delay)
            if dialect.revision >= revisions.READ_ONLY_IN_TABLES_STATUS:
                out += wire.flag(each.read_only)
    return out


def _read_signal(reader: Reader, kind: ServerPacket, dialect: Dialect) -> Step[ServerSignal]:
    return ServerSignal(kind=kind)
    yield


def _encode_block(message: ServerBlock, dialect: Dialect) -> bytes:
    return wire.string(message.table) + encode_block(message.block, of_kind(dialect, message.kind))


_READERS: dict[ServerPacket, Callable[[Reader, ServerPacket, Dialect], Step[ServerMessage]]] = {
    ServerPacket.HELLO: _read_hello,
    ServerPacket.EXCEPTION: _read_exception,
    ServerPacket.PROGRESS: _read_progress,
    ServerPacket.PONG: _read_signal,
    ServerPacket.END_OF_STREAM: _read_signal,
    ServerPacket.PROFILE_INFO: _read_profile_info,
    ServerPacket.TABLES_STATUS_RESPONSE: _read_tables_status,
    ServerPacket.TABLE_COLUMNS: _read_table_columns,
    ServerPacket.PART_UUIDS: _read_part_uuids,
    ServerPacket.READ_TASK_REQUEST: _read_signal,
    ServerPacket.TIMEZONE_UPDATE: _read_text,
    ServerPacket.SSH_CHALLENGE: _read_text,
}
_WRITERS: dict[type, Callable[[Any, Dialect], bytes]] = {
    ServerHello: _encode_hello,
    ServerBlock: _encode_block,
    ServerException: _encode_exception,
    Progress: _encode_progress,
    ProfileInfo: _encode_profile_info,
    TableColumns: _encode_table_columns,
    ServerText: lambda message, _: wire.string(message.text),
    PartUUIDs: lambda message, _: wire.varuint(len(message.parts)) + b"".join(message.parts),
    TablesStatus: _encode_tables_status,
    ServerSignal: lambda message, _: b"",
}

"""A train's packets as bytes that real clients accept."""

from netlab.native import revisions, server
from netlab.native.blocks import Block, Column, Dialect
from netlab.native.client import Query
from netlab.native.messages import (
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerMessage,
    ServerSignal,
)
from netlab.servers.train import Kind, Packet, Train, Write
from netlab.wire import ServerPacket

_LAST_ID = 938  # the article's table has 939 rows
_TIME = 1_767_225_600
_HOST = "netlab"
_LOGS_SINCE = 54406
_EVENTS_SINCE = 54451


class Answer:
    """One query's answer: what the query's settings and the revision leave out is left out."""

    def __init__(self, train: Train, query: Query, dialect: Dialect) -> None:
        settings = {setting.name: setting.value for setting in query.settings}
        self._dialect = dialect
        self._query_id = query.query_id
        self._events = dialect.revision >= _EVENTS_SINCE and settings.get("send_profile_events", "1") not in (
            "0",
            "false",
        )
        self._logs = dialect.revision >= _LOGS_SINCE and settings.get("send_logs_level", "none") not in ("none", "")
        self._wide = any(packet.kind is Kind.DATA and packet.size for packet in train.packets)

    def encode(self, write: Write) -> bytes:
        """Return the bytes of `write`; none where all of its packets are left out."""
        return b"".join(self._encode(packet) for packet in write.packets)

    def _encode(self, packet: Packet) -> bytes:
        if packet.kind is Kind.BYTES:
            return b"x" * packet.size
        if (packet.kind is Kind.PROFILE_EVENTS and not self._events) or (packet.kind is Kind.LOG and not self._logs):
            return b""
        data = server.encode(self._message(packet, ""), self._dialect)
        missing = packet.size - len(data)
        if missing <= 0 or packet.kind not in (Kind.DATA, Kind.PROFILE_EVENTS, Kind.LOG, Kind.EXCEPTION):
            return data
        padded = server.encode(self._message(packet, "x" * missing), self._dialect)
        excess = len(padded) - packet.size  # a longer text has a longer length field
        return padded if excess <= 0 else server.encode(self._message(packet, "x" * (missing - excess)), self._dialect)

    def _message(self, packet: Packet, padding: str) -> ServerMessage:
        match packet.kind:
            case Kind.HEADER:
                return self._rows(ServerPacket.DATA, 0, "")
            case Kind.DATA:
                return self._rows(ServerPacket.DATA, packet.rows, padding)
            case Kind.TOTALS:
                return self._rows(ServerPacket.TOTALS, 1, "")
            case Kind.PROFILE_INFO:
                return ProfileInfo(rows=packet.rows, blocks=1, bytes=8 * packet.rows)
            case Kind.PROGRESS:
                return Progress(rows=packet.rows, bytes=8 * packet.rows, total_rows=packet.rows, elapsed=1_000_000)
            case Kind.PROFILE_EVENTS:
                return self._profile_events(padding)
            case Kind.LOG:
                return self._log(packet.text or "scripted", padding)
            case Kind.EMPTY:
                return ServerBlock()
            case Kind.EXCEPTION:
                return ServerException(code=395, name="DB::Exception", message=(packet.text or "scripted") + padding)
            case _:
                return ServerSignal(kind=ServerPacket.END_OF_STREAM)

    def _rows(self, kind: ServerPacket, rows: int, padding: str) -> ServerBlock:
        columns = [Column(name="max(id)", type="UInt64", values=[_LAST_ID] * rows)]
        if self._wide:
            texts = [padding if row == 0 else "" for row in range(rows)]
            columns.append(Column(name="payload", type="String", values=[text.encode() for text in texts]))
        return ServerBlock(kind=kind, block=Block(columns=tuple(columns), rows=rows))

    def _profile_events(self, padding: str) -> ServerBlock:
        # Older servers send the value unsigned.
        value = "Int64" if self._dialect.revision >= revisions.ADDENDUM else "UInt64"
        values: tuple[tuple[str, str, object], ...] = (
            ("host_name", "String", _HOST.encode()),
            ("current_time", "DateTime", _TIME),
            ("thread_id", "UInt64", 0),
            ("type", "Enum8('increment' = 1, 'gauge' = 2)", 1),
            ("name", "String", b"Query" + padding.encode()),
            ("value", value, 1),
        )
        return _one_row(ServerPacket.PROFILE_EVENTS, values)

    def _log(self, text: str, padding: str) -> ServerBlock:
        values: tuple[tuple[str, str, object], ...] = (
            ("event_time", "DateTime", _TIME),
            ("event_time_microseconds", "UInt32", 0),
            ("host_name", "String", _HOST.encode()),
            ("query_id", "String", self._query_id.encode()),
            ("thread_id", "UInt64", 1),
            ("priority", "Int8", 7),
            ("source", "String", b"scripted"),
            ("text", "String", text.encode() + padding.encode()),
        )
        return _one_row(ServerPacket.LOG, values)


def _one_row(kind: ServerPacket, values: tuple[tuple[str, str, object], ...]) -> ServerBlock:
    columns = tuple(Column(name=name, type=type_name, values=[value]) for name, type_name, value in values)
    return ServerBlock(kind=kind, block=Block(columns=columns, rows=1))

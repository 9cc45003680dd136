"""What packets from the server carry.

A field that the connection's revision does not have keeps its default.
"""

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from netlab.native.blocks import Block
from netlab.wire import ServerPacket

NOT_CHUNKED = "notchunked"
CHUNKED = "chunked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting or a query parameter: 1 in `flags` is important, 2 is custom."""

    name: str
    value: str
    flags: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHello:
    """The server's half of the handshake. A field that the revision does not have keeps its default."""

    kind: ClassVar[ServerPacket] = ServerPacket.HELLO
    name: str
    major: int
    minor: int
    revision: int
    patch: int = 0
    timezone: str = ""
    display_name: str = ""
    parallel_replicas: int = 0
    send_mode: str = NOT_CHUNKED  # chunked, notchunked, chunked_optional or notchunked_optional
    receive_mode: str = NOT_CHUNKED
    password_rules: tuple[tuple[str, str], ...] = ()
    nonce: int = 0
    settings: tuple[Setting, ...] = ()
    query_plan: int = 0
    cluster_function: int = 0

    @property
    def version(self) -> str:
        """The version as people write it, such as "26.7.2"."""
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBlock:
    """A packet that is a block: Data, Totals, Extremes, Log, ProfileEvents, PreviewData."""

    kind: ServerPacket = ServerPacket.DATA
    table: str = ""
    block: Block = field(default_factory=Block)

    @property
    def rows(self) -> int:
        """Rows of the block."""
        return self.block.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerException:
    """An error of the server. `nested` are the errors that led to it."""

    kind: ClassVar[ServerPacket] = ServerPacket.EXCEPTION
    code: int
    name: str
    message: str
    stack: str = ""
    nested: tuple["ServerException", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What was done since the last Progress packet: all fields are increments."""

    kind: ClassVar[ServerPacket] = ServerPacket.PROGRESS
    rows: int = 0
    bytes: int = 0
    total_rows: int = 0
    total_bytes: int = 0
    written_rows: int = 0
    written_bytes: int = 0
    elapsed: int = 0  # ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileInfo:
    """Totals of the result."""

    kind: ClassVar[ServerPacket] = ServerPacket.PROFILE_INFO
    rows: int = 0
    blocks: int = 0
    bytes: int = 0
    applied_limit: bool = False
    rows_before_limit: int = 0
    calculated_rows_before_limit: bool = False
    applied_aggregation: bool = False
    rows_before_aggregation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The columns of the table that an INSERT goes to, with their defaults, as text."""

    kind: ClassVar[ServerPacket] = ServerPacket.TABLE_COLUMNS
    table: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerText:
    """A packet that is one text: TimezoneUpdate, SSHChallenge."""

    kind: ServerPacket
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartUUIDs:
    """Identifiers of parts, 16 bytes each."""

    kind: ClassVar[ServerPacket] = ServerPacket.PART_UUIDS
    parts: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """The state of one table."""

    database: str
    table: str
    replicated: bool
    delay: int = 0  # seconds
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesStatus:
    """The answer to TablesStatusRequest."""

    kind: ClassVar[ServerPacket] = ServerPacket.TABLES_STATUS_RESPONSE
    tables: tuple[TableStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSignal:
    """A packet without a body: Pong, EndOfStream, ReadTaskRequest."""

    kind: ServerPacket


ServerMessage: TypeAlias = (
    ServerHello
    | ServerBlock
    | ServerException
    | Progress
    | ProfileInfo
    | TableColumns
    | ServerText
    | PartUUIDs
    | TablesStatus
    | ServerSignal
)

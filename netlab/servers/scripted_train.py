"""Write trains: what the scripted server sends for a query, in which writes, with which pauses. Values, and their TOML.

A train file has `[[answer]]` tables; the first whose `query` (a regular expression) is found in the SQL plays, and one
without `query` answers everything. `train` lists what is sent, in order:

    "header"                                     a packet, by name, as a write of its own
    { send = "data", rows = 10 }                 a packet with its details
    ["profile_info", "progress"]                 packets that share one write
    { bytes = 50 }   { text = "+OK\\r\\n" }        opaque bytes
    { pause = "100ms" }   { cork = true }   { disconnect = "reset" }
    { repeat = 8, train = [...] }

Names alone stand for usual sizes. With `protocol = "raw"` a request is `[request] bytes` or `until`, and all is opaque.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from netlab.native import revisions
from netlab.tables import Table, parse_toml, read_text

_MOST_STEPS = 1_000_000
_DEEPEST = 4
_LARGEST_PACKET = 16 << 20


class Protocol(StrEnum):
    """What the server speaks."""

    NATIVE = "native"
    RAW = "raw"  # any request/response protocol, as far as its sizes and times go


class Framing(StrEnum):
    """Whether packets travel in chunks (54470)."""

    PLAIN = "plain"
    CHUNKED = "chunked"


class Part(StrEnum):
    """What one step sends."""

    HEADER = "header"
    DATA = "data"
    TOTALS = "totals"
    EXTREMES = "extremes"
    PROFILE_INFO = "profile_info"
    PROGRESS = "progress"
    PROFILE_EVENTS = "profile_events"
    LOG = "log"
    TABLE_COLUMNS = "table_columns"
    TIMEZONE_UPDATE = "timezone_update"
    EMPTY_DATA = "empty_data"
    END_OF_STREAM = "end_of_stream"
    EXCEPTION = "exception"
    OPAQUE = "opaque"


class Leave(StrEnum):
    """How the server leaves in the middle."""

    CLOSE = "close"
    RESET = "reset"
    EXIT = "exit"  # the whole process


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One packet. `size` is its whole size in bytes where the packet can be padded to it; None: what comes out."""

    part: Part
    rows: int | None = None
    size: int | None = None
    values: tuple[tuple[Any, ...], ...] = ()  # rows of DATA, TOTALS, EXTREMES
    elapsed: int = 0  # ns, PROGRESS
    code: int = 0  # EXCEPTION
    text: str = ""  # EXCEPTION, LOG, OPAQUE (as UTF-8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Packets that share one write."""

    sends: tuple[Send, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Silence, in ns."""

    duration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cork:
    """TCP_CORK put on or taken off."""

    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect:
    """The end of the connection, or of the server."""

    how: Leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Steps played again and again."""

    times: int
    steps: "tuple[Step, ...]"


Step: TypeAlias = Group | Pause | Cork | Disconnect | Repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is played for the queries in which `query` is found; None: for all."""

    query: re.Pattern[str] | None = None
    columns: tuple[tuple[str, str], ...] = (("max(id)", "UInt64"),)
    steps: tuple[Step, ...]

    def matches(self, text: str) -> bool:
        """Whether this answers a query."""
        return self.query is None or self.query.search(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who is let in. It is a fixture, not a secret: real passwords have no place in a train file."""

    user: str = "default"
    password: str = ""
    databases: tuple[str, ...] = ("", "default", "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Where a raw request ends: after `size` bytes, or with the bytes `until`."""

    size: int = 0
    until: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Everything the scripted server is told."""

    answers: tuple[Answer, ...]
    protocol: Protocol = Protocol.NATIVE
    framing: Framing = Framing.PLAIN
    version: tuple[int, int, int] = (26, 7, 2)
    revision: int = revisions.NEWEST
    login: Login = Login()
    request: Request = Request()
    send_buffer: int | None = None  # bytes, SO_SNDBUF


# What 26.7 was measured to write for `SELECT max(id)` over 939 rows at revision 54464: 28, 36, 8, 11, 2016, 12, 10, 1.
BUILT_IN = """
[[answer]]
columns = [["max(id)", "UInt64"]]
train = [
  "header",
  { send = "data", values = [[938]] },
  "profile_info",
  { send = "progress", rows = 1, elapsed = "2500us" },
  { send = "profile_events", bytes = 2016 },
  "empty_data",
  { send = "progress", rows = 0, elapsed = "300us" },
  "end_of_stream",
]
"""


def load_train(path: str | None) -> tuple[Train, str]:
    """Return the train in the file `path` (None: the built-in one) and its text. Raises ScenarioError."""
    if path is None:
        return parse_train(BUILT_IN, "built-in train"), BUILT_IN
    text = read_text(Path(path))
    return parse_train(text, path), text


def parse_train(text: str, file: str) -> Train:
    """Return the train that `text` spells. Raises ScenarioError."""
    return train_of(parse_toml(text, file))


def train_of(table: Table) -> Train:
    """Return the train in a file's table. Raises ScenarioError."""
    protocol = table.choice("protocol", Protocol) or Protocol.NATIVE
    answers = tuple(_answer(each, protocol) for each in table.tables("answer"))
    if not answers:
        raise table.fault("answer", "expected at least one [[answer]]")
    default = Train(answers=answers)
    revision = table.integer("revision")
    if revision is not None and not revisions.OLDEST <= revision <= revisions.NEWEST:
        raise table.fault("revision", f"expected {revisions.OLDEST} to {revisions.NEWEST}, got {revision}")
    train = Train(
        answers=answers,
        protocol=protocol,
        framing=table.choice("framing", Framing) or Framing.PLAIN,
        version=_version(table) or default.version,
        revision=revision or default.revision,
        login=_login(table.table("login")),
        request=_request(table),
        send_buffer=_between(table, "send_buffer", 1, 1 << 30),
    )
    if protocol is Protocol.RAW and not train.request.size and not train.request.until:
        raise table.fault("request", 'expected [request] with bytes or until, to tell where a "raw" request ends')
    table.text("story")
    table.finish()
    return train


def _answer(table: Table, protocol: Protocol) -> Answer:
    pattern = table.text("query")
    try:
        query = None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise table.fault("query", f"expected a regular expression: {error}") from error
    reader = _Steps(table, protocol)
    steps = reader.read(table.value("train"), "train", 1)
    if not steps:
        raise table.fault("train", "expected an array of what is sent")
    columns = _columns(table)
    table.finish()
    return Answer(query=query, steps=steps) if columns is None else Answer(query=query, steps=steps, columns=columns)


def _columns(table: Table) -> tuple[tuple[str, str], ...] | None:
    value = table.value("columns")
    if value is None:
        return None
    good = isinstance(value, list) and value and len(value) <= 1000
    if not good or not all(isinstance(pair, list) and len(pair) == 2 and _texts(pair) for pair in value):
        raise table.fault("columns", 'expected pairs of name and type like [["id", "UInt64"]]')
    for _, kind in value:
        if kind not in COLUMN_TYPES:
            raise table.fault("columns", f'no type "{kind}" here; known ones: {", ".join(COLUMN_TYPES)}')
    return tuple((name, kind) for name, kind in value)


COLUMN_TYPES = ("UInt8", "UInt16", "UInt32", "UInt64", "Int8", "Int16", "Int32", "Int64", "Float64", "String")


def _texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


class _Steps:
    """The steps of one answer, counted."""

    def __init__(self, table: Table, protocol: Protocol) -> None:
        self._table = table
        self._protocol = protocol

    def read(self, value: Any, place: str, depth: int, times: int = 1) -> tuple[Step, ...]:
        """Return the steps of the array `value`, which is played `times` times."""
        if not isinstance(value, list):
            raise self._table.fault(place, "expected an array of what is sent")
        if depth > _DEEPEST:
            raise self._table.fault(place, f"repeats are nested deeper than {_DEEPEST}")
        if len(value) * times > _MOST_STEPS:
            raise self._table.fault(place, f"more than {_MOST_STEPS} steps when it is played")
        return tuple(self._step(each, f"{place}[{at}]", (depth, times)) for at, each in enumerate(value, start=1))

    def _step(self, value: Any, place: str, nesting: tuple[int, int]) -> Step:
        depth, times = nesting
        if isinstance(value, list):
            return Group(sends=tuple(self._send(each, f"{place}[{at}]") for at, each in enumerate(value, start=1)))
        if not isinstance(value, dict) or not {"pause", "cork", "disconnect", "repeat"} & value.keys():
            return Group(sends=(self._send(value, place),))
        table = Table(value, self._table.file, self._table.place(place))
        step: Step
        if table.has("repeat"):
            count = _between(table, "repeat", 1, _MOST_STEPS) or 1
            step = Repeat(
                times=count, steps=self.read(table.value("train"), f"{place}.train", depth + 1, times * count)
            )
        elif table.has("pause"):
            step = Pause(duration=table.duration("pause") or 0)
        elif table.has("cork"):
            step = Cork(on=bool(table.flag("cork")))
        else:
            step = Disconnect(how=table.choice("disconnect", Leave) or Leave.CLOSE)
        table.finish()
        return step

    def _send(self, value: Any, place: str) -> Send:
        if isinstance(value, str):
            value = {"send": value}
        if not isinstance(value, dict):
            raise self._table.fault(place, 'expected a packet like "header" or { send = "data", rows = 10 }')
        table = Table(value, self._table.file, self._table.place(place))
        opaque = not table.has("send") and (table.has("bytes") or table.has("text"))
        part = Part.OPAQUE if opaque else table.choice("send", Part)
        if part is None:
            raise self._table.fault(place, 'expected a packet like "header" or { send = "data", rows = 10 }')
        if self._protocol is Protocol.RAW and part is not Part.OPAQUE:
            raise table.fault("send", 'the protocol is "raw": expected { bytes = N } or { text = "..." }')
        send = Send(
            part=part,
            rows=_between(table, "rows", 0, 10_000_000),
            size=_size(table),
            values=_values(table),
            elapsed=table.duration("elapsed") or 0,
            code=table.integer("code") or 0,
            text=table.text("text") or "",
        )
        table.finish()
        return send


def _values(table: Table) -> tuple[tuple[Any, ...], ...]:
    value = table.value("values")
    if value is None:
        return ()
    good = isinstance(value, list) and all(isinstance(row, list) for row in value)
    if not good or not all(isinstance(cell, int | float | str) for row in value for cell in row):
        raise table.fault("values", "expected rows of numbers and texts like [[1], [2]]")
    return tuple(tuple(row) for row in value)


def _size(table: Table) -> int | None:
    size = table.size("bytes")
    if size is not None and not 1 <= size <= _LARGEST_PACKET:
        raise table.fault("bytes", f"expected 1 to {_LARGEST_PACKET}, got {size}")
    return size


def _between(table: Table, name: str, low: int, high: int) -> int | None:
    value = table.size(name) if name == "send_buffer" else table.integer(name)
    if value is not None and not low <= value <= high:
        raise table.fault(name, f"expected {low} to {high}, got {value}")
    return value


def _version(table: Table) -> tuple[int, int, int] | None:
    text = table.text("version")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6}", text, re.ASCII):
        raise table.fault("version", f'expected a version like "26.7.2", got "{text}"')
    major, minor, patch = (int(part) for part in text.split("."))
    return major, minor, patch


def _login(table: Table | None) -> Login:
    if table is None:
        return Login()
    default = Login()
    databases = table.value("databases")
    if databases is not None and not (isinstance(databases, list) and _texts(databases)):
        raise table.fault("databases", 'expected names like ["default"]')
    user, password = table.text("user"), table.text("password")
    table.finish()
    return Login(
        user=default.user if user is None else user,
        password=password or "",
        databases=default.databases if databases is None else ("", *databases),
    )


def _request(table: Table) -> Request:
    request = table.table("request")
    if request is None:
        return Request()
    size, until = _size(request), request.text("until")
    request.finish()
    if (size is None) == (not until):
        raise request.fault("", "expected either bytes or until")
    return Request(size=size or 0, until=(until or "").encode())

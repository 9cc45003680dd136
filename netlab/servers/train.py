"""Write trains: which packets the scripted server sends, how large, when, and how many go into one write. Pure.

A train is a TOML file: `[[packet]]` tables in order, each with `send` (see `Kind`), and where wanted `rows`, `bytes`,
`pause` (before it), `repeat`, `join = true` (in the same write as the one before).
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from netlab.errors import ScenarioError
from netlab.scenario import Delivery
from netlab.units import parse_duration

_MOST_PACKETS = 100_000
_LARGEST = 64 << 20


class Kind(StrEnum):
    """What a packet of a train is."""

    HEADER = "Header"  # the Data block without rows that names the columns
    DATA = "Data"
    TOTALS = "Totals"
    PROFILE_INFO = "ProfileInfo"
    PROGRESS = "Progress"
    PROFILE_EVENTS = "ProfileEvents"
    LOG = "Log"
    EMPTY = "Empty"  # the Data block without columns that ends the rows
    END_OF_STREAM = "EndOfStream"
    EXCEPTION = "Exception"
    BYTES = "Bytes"  # of the raw protocol: any bytes


class Protocol(StrEnum):
    """What the server speaks."""

    NATIVE = "native"
    RAW = "raw"  # a line in, the train's bytes out: a plain request/response protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One packet: `size` (bytes on the wire, 0: as it comes), `pause` (ns before it), `join` the write before."""

    kind: Kind
    rows: int = 1
    size: int = 0
    pause: int = 0
    join: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """An answer as a series of packets."""

    packets: tuple[Packet, ...]
    protocol: Protocol = Protocol.NATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write: wait `pause` ns, then send these packets at once."""

    pause: int
    packets: tuple[Packet, ...]


# ClickHouse 26.7.2 answering `SELECT max(id) FROM benchmark_test`: 28, 36, 8, 11, 2016, 12, 10 and 1 bytes.
BUILT_IN = Train(
    packets=(
        Packet(kind=Kind.HEADER),
        Packet(kind=Kind.DATA),
        Packet(kind=Kind.PROFILE_INFO),
        Packet(kind=Kind.PROGRESS),
        Packet(kind=Kind.PROFILE_EVENTS, size=2016),
        Packet(kind=Kind.EMPTY),
        Packet(kind=Kind.PROGRESS),
        Packet(kind=Kind.END_OF_STREAM),
    )
)


def load_train(path: Path) -> Train:
    """Read a train file. Raises ScenarioError that says where and what."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}", hint="scenarios/trains/ holds some") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not TOML: {error}") from error
    return parse_train(document, str(path))


def parse_train(document: dict[str, Any], where: str) -> Train:
    """Return the train of a parsed file. Raises ScenarioError."""
    unknown = set(document) - {"packet", "protocol", "story"}
    if unknown:
        raise ScenarioError(f"{where}: {min(unknown)}: unknown key", hint="known keys: protocol, story, packet")
    try:
        protocol = Protocol(document.get("protocol", "native"))
    except ValueError as error:
        raise ScenarioError(f'{where}: protocol: expected "native" or "raw"') from error
    items = document.get("packet")
    if not isinstance(items, list) or not items:
        raise ScenarioError(f"{where}: packet: expected [[packet]] tables")
    packets: list[Packet] = []
    for number, item in enumerate(items):
        packets += _parse_packet(item, f"{where}: packet[{number}]")
        if len(packets) > _MOST_PACKETS:
            raise ScenarioError(f"{where}: packet[{number}]: more than {_MOST_PACKETS} packets in all")
    return Train(packets=tuple(packets), protocol=protocol)


def dump_train(train: Train) -> dict[str, Any]:
    """Return `train` as what `parse_train` reads."""
    fields = [
        {
            "send": packet.kind.value,
            "rows": packet.rows,
            "bytes": packet.size,
            "pause": f"{packet.pause}ns",
            "join": packet.join,
            "text": packet.text,
        }
        for packet in train.packets
    ]
    return {"protocol": train.protocol.value, "packet": fields}


def writes(train: Train, delivery: Delivery) -> list[Write]:
    """Group a train into writes.

    NODELAY, CORK and NAGLE: a write a packet, but for those that join. BATCHED: as ClickHouse 26.9, the header and the
    rows at once, the rest held back until the end or until a pause, so that Progress stays timely.
    """
    grouped: list[Write] = []
    held = False
    for packet in train.packets:
        batch = delivery is Delivery.BATCHED and held and not packet.pause
        if grouped and (packet.join or batch):
            last = grouped[-1]
            grouped[-1] = replace(last, packets=(*last.packets, packet))
        else:
            grouped.append(Write(pause=packet.pause, packets=(packet,)))
        # What follows the rows is held back, but not joined to them.
        held = packet.kind not in (Kind.HEADER, Kind.DATA)
    return grouped


def header_rows(packets: Sequence[Packet]) -> int:
    """Return all rows of the answer."""
    return sum(packet.rows for packet in packets if packet.kind is Kind.DATA)


def _parse_packet(item: Any, where: str) -> list[Packet]:
    if not isinstance(item, dict):
        raise ScenarioError(f"{where}: expected a table")
    unknown = set(item) - {"send", "rows", "bytes", "pause", "repeat", "join", "text"}
    if unknown:
        raise ScenarioError(
            f"{where}.{min(unknown)}: unknown key", hint="known keys: send, rows, bytes, pause, repeat, join, text"
        )
    try:
        kind = Kind(item.get("send"))
    except ValueError as error:
        raise ScenarioError(f"{where}.send: expected one of {', '.join(Kind)}, got {item.get('send')}") from error
    numbers = {name: item.get(name, default) for name, default in (("rows", 1), ("bytes", 0), ("repeat", 1))}
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
            raise ScenarioError(f"{where}.{name}: expected a number from 0 to {_LARGEST}, got {value}")
    try:
        pause = parse_duration(str(item.get("pause", "0")))
    except ValueError as error:
        raise ScenarioError(f"{where}.pause: {error}") from error
    packet = Packet(
        kind=kind,
        rows=numbers["rows"],
        size=numbers["bytes"],
        pause=pause,
        join=bool(item.get("join", False)),
        text=str(item.get("text", "")),
    )
    return [packet] * min(numbers["repeat"], _MOST_PACKETS + 1)

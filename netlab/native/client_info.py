"""ClientInfo: who sends a query. Field order and gates: ClickHouse src/Interpreters/ClientInfo.cpp."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netlab.native import revisions, wire
from netlab.native.types import UnsupportedError
from netlab.native.wire import Reader, Step

_INITIAL_QUERY = 1
_NO_QUERY = 0
_TCP = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInfo:
    """Who asks. `address` must be IP:port: servers refuse host names."""

    query_kind: int = _INITIAL_QUERY
    initial_user: str = ""
    initial_query_id: str = ""
    address: str = "0.0.0.0:0"
    start_time: int = 0  # us since 1970
    os_user: str = ""
    hostname: str = ""
    client_name: str = ""
    major: int = 0
    minor: int = 0
    revision: int = 0
    quota_key: str = ""
    distributed_depth: int = 0
    patch: int = 0
    trace: bytes = b""  # OpenTelemetry: trace id and span id, 24 bytes, or none
    trace_state: str = ""
    trace_flags: int = 0
    agent: str = ""


def _read_trace(reader: Reader) -> Step[dict[str, Any]]:
    if not (yield from reader.flag()):
        return {"trace": b"", "trace_state": "", "trace_flags": 0}
    trace = yield from reader.take(24)
    state = yield from reader.string()
    return {"trace": trace, "trace_state": state, "trace_flags": (yield from reader.byte())}


def _encode_trace(info: ClientInfo) -> bytes:
    if not info.trace:
        return b"\0"
    return b"\x01" + info.trace + wire.string(info.trace_state) + bytes([info.trace_flags])


def read_info(reader: Reader, revision: int) -> Step[ClientInfo]:
    """Read a Query's ClientInfo. Raises UnsupportedError for a query passed on from another interface or server."""
    got: dict[str, Any] = {"query_kind": (yield from reader.byte())}
    if got["query_kind"] == _NO_QUERY:
        return ClientInfo(query_kind=_NO_QUERY)
    for key in ("initial_user", "initial_query_id", "address"):
        got[key] = yield from reader.string()
    if revision >= revisions.INITIAL_START_TIME:
        got["start_time"] = yield from reader.integer(8, signed=True)
    interface = yield from reader.byte()
    if interface != _TCP:
        raise UnsupportedError(f"a query that came over interface {interface} is not read here")
    for key in ("os_user", "hostname", "client_name"):
        got[key] = yield from reader.string()
    for key in ("major", "minor", "revision"):
        got[key] = yield from reader.varuint()
    for gate, key, read in _INFO_FIELDS:
        if revision >= gate:
            got[key] = yield from read(reader)
    if revision >= revisions.OPEN_TELEMETRY:
        got |= yield from _read_trace(reader)
    yield from _skip_info_rest(reader, revision)
    if revision >= revisions.CLIENT_AGENT:
        got["agent"] = yield from reader.string()
    if revision >= revisions.INTERNAL_QUERY:
        yield from reader.flag()
    if revision >= revisions.CURRENT_ROLES and (yield from reader.flag()):
        raise UnsupportedError("a query that carries its initiator's roles is not read here")
    return ClientInfo(**got)


def _skip_info_rest(reader: Reader, revision: int) -> Step[None]:
    for _ in range(_rest_numbers(revision)):
        yield from reader.varuint()
    if revision >= revisions.JWT and (yield from reader.flag()):
        yield from reader.string()


def _rest_numbers(revision: int) -> int:
    return 3 * (revision >= revisions.PARALLEL_REPLICAS) + 2 * (revision >= revisions.SCRIPT_POSITION)


def encode_info(info: ClientInfo, revision: int) -> bytes:
    """Encode a Query's ClientInfo."""
    out = bytes([info.query_kind])
    if info.query_kind == _NO_QUERY:
        return out
    out += wire.strings(info.initial_user, info.initial_query_id, info.address)
    if revision >= revisions.INITIAL_START_TIME:
        out += wire.integer(info.start_time, 8, signed=True)
    out += bytes([_TCP]) + wire.strings(info.os_user, info.hostname, info.client_name)
    out += wire.varuint(info.major) + wire.varuint(info.minor) + wire.varuint(info.revision)
    if revision >= revisions.QUOTA_KEY_IN_CLIENT_INFO:
        out += wire.string(info.quota_key)
    if revision >= revisions.DISTRIBUTED_DEPTH:
        out += wire.varuint(info.distributed_depth)
    if revision >= revisions.VERSION_PATCH:
        out += wire.varuint(info.patch)
    if revision >= revisions.OPEN_TELEMETRY:
        out += _encode_trace(info)
    out += bytes(_rest_numbers(revision))
    if revision >= revisions.JWT:
        out += b"\0"
    if revision >= revisions.CLIENT_AGENT:
        out += wire.string(info.agent)
    out += bytes((revision >= revisions.INTERNAL_QUERY) + (revision >= revisions.CURRENT_ROLES))
    return out


# In wire order.
_INFO_FIELDS: tuple[tuple[int, str, Callable[[Reader], Step[Any]]], ...] = (
    (revisions.QUOTA_KEY_IN_CLIENT_INFO, "quota_key", Reader.string),
    (revisions.DISTRIBUTED_DEPTH, "distributed_depth", Reader.varuint),
    (revisions.VERSION_PATCH, "patch", Reader.varuint),
)

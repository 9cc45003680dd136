"""Records and diagnoses as pandas frames. Durations are floats in ms, NaN where nothing was measured; instants are UTC.

Every frame has its columns and their types also when it has no rows. Texts are as they came: whoever prints them
escapes them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from netlab.diagnosis import CaptureDiagnosis, Exchange, LabelledSegment, PshTable
from netlab.record import RunRecord
from netlab.samples import Sample
from netlab.segments import Direction
from netlab.units import as_ms

_INSTANT = "datetime64[ns, UTC]"
_SAMPLES = {
    "server": "string",
    "version": "string",
    "query": "int64",  # 1-based, as printed
    "sent_at": _INSTANT,
    "idle": "float64",  # ms
    "first_row": "float64",  # ms from the request, as the next two
    "eos": "float64",
    "tail": "float64",  # ms from the first row to EndOfStream
    "lateness": "float64",  # ms, the relay's worst
    "rows": "int64",
    "bytes": "int64",
    "packets": "int64",
    "server_cwnd": "Int64",  # segments, after the query
    "exception": "string",
    "void": "string",  # why the query proves nothing
}
_ARRIVALS = {
    "server": "string",
    "query": "int64",
    "packet": "int64",  # 1-based, in the order of arrival
    "kind": "string",  # the protocol's spelling, such as EndOfStream
    "at": "float64",  # ms from the request to the packet's last byte
    "size": "int64",  # bytes on the wire
    "rows": "Int64",
    "void": "bool",
}
_EXCHANGES = {
    "file": "string",
    "connection": "int64",
    "index": "Int64",  # <NA> for a handshake and a ping
    "kind": "string",
    "sent_at": _INSTANT,
    "query": "string",
    "exception": "string",
    "cause": "string",
    "also": "string",  # further causes, joined by +
    "confidence": "float64",  # 0 to 1
    "extra_round_trips": "Int64",
    "rtt": "float64",  # ms
    "idle_before": "float64",  # ms
    "first_byte": "float64",  # ms from the request, as the next three
    "first_row": "float64",
    "eos": "float64",
    "last_byte": "float64",
    "tail": "float64",  # ms
    "segments": "Int64",  # of the answer, with a payload; <NA> where they were not kept
    "pushes": "Int64",  # those with PSH
    "flights": "int64",
    "first_flight": "Int64",  # segments
    "request_bytes": "int64",
    "response_bytes": "int64",
}
_SEGMENTS = {
    "connection": "int64",
    "index": "Int64",
    "frame": "int64",
    "at": "float64",  # ms from the request
    "direction": "string",
    "length": "int64",  # TCP payload, bytes
    "push": "bool",
    "labels": "string",  # joined by +
    "flight": "Int64",  # <NA> outside of flights
    "retransmission": "bool",
    "acked": "float64",  # ms from the request to the ACK that covers it
}


def samples_frame(record: RunRecord) -> pd.DataFrame:
    """Return a row a measured query; columns and units as in `_SAMPLES`."""
    return _frame((_sample(run.server.label, run.version, s) for run in record.runs for s in run.samples), _SAMPLES)


def arrivals_frame(record: RunRecord) -> pd.DataFrame:
    """Return a row a packet from the server, in measured queries; columns and units as in `_ARRIVALS`."""
    rows = (
        {
            "server": run.server.label,
            "query": sample.index,
            "packet": number,
            "kind": arrival.kind.label,
            "at": as_ms(arrival.at - sample.sent_at),
            "size": arrival.size,
            "rows": arrival.rows,
            "void": sample.void is not None,
        }
        for run in record.runs
        for sample in run.samples
        for number, arrival in enumerate(sample.arrivals, 1)
    )
    return _frame(rows, _ARRIVALS)


def exchanges_frame(*diagnoses: CaptureDiagnosis) -> pd.DataFrame:
    """Return a row an exchange; columns and units as in `_EXCHANGES`."""
    rows = (_exchange(diagnosis.file, exchange) for diagnosis in diagnoses for exchange in diagnosis.exchanges)
    return _frame(rows, _EXCHANGES)


def segments_frame(diagnosis: CaptureDiagnosis) -> pd.DataFrame:
    """Return a row a segment of an exchange; columns and units as in `_SEGMENTS`."""
    rows = (_segment(exchange, segment) for exchange in diagnosis.exchanges for segment in exchange.segments)
    return _frame(rows, _SEGMENTS)


def psh_frame(table: PshTable) -> pd.DataFrame:
    """Return a row a size: size (TCP payload, bytes), count."""
    rows = ({"size": size, "count": count} for size, count in table.sizes)
    return _frame(rows, {"size": "int64", "count": "int64"})


def _frame(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    listed = list(rows)
    return pd.DataFrame({name: pd.Series([row[name] for row in listed], dtype=kind) for name, kind in columns.items()})


def _sample(server: str, version: str | None, sample: Sample) -> dict[str, Any]:
    error = sample.exception
    return {
        "server": server,
        "version": version,
        "query": sample.index,
        "sent_at": pd.Timestamp(sample.sent_at, unit="ns", tz="UTC"),
        "idle": as_ms(sample.idle),
        "first_row": _ms(sample.first_row),
        "eos": _ms(sample.eos),
        "tail": _ms(sample.tail),
        "lateness": _ms(sample.lateness),
        "rows": sample.rows,
        "bytes": sample.bytes,
        "packets": len(sample.arrivals),
        "server_cwnd": None if sample.server_after is None else sample.server_after.snd_cwnd,
        "exception": None if error is None else f"{error.code} {error.name}: {error.message}",
        "void": sample.void,
    }


def _exchange(file: str, exchange: Exchange) -> dict[str, Any]:
    answer = [s for s in exchange.segments if s.direction is Direction.TO_CLIENT and s.length]
    start = exchange.sent_at
    return {
        "file": file,
        "connection": exchange.connection,
        "index": exchange.index,
        "kind": exchange.kind.value,
        "sent_at": pd.Timestamp(start, unit="ns", tz="UTC"),
        "query": exchange.query,
        "exception": exchange.exception,
        "cause": exchange.cause.value,
        "also": "+".join(cause.value for cause in exchange.also),
        "confidence": exchange.confidence,
        "extra_round_trips": exchange.extra_round_trips,
        "rtt": _ms(exchange.rtt),
        "idle_before": _ms(exchange.idle_before),
        "first_byte": _since(exchange.first_byte_at, start),
        "first_row": _since(exchange.first_row_at, start),
        "eos": _since(exchange.eos_at, start),
        "last_byte": _since(exchange.last_byte_at, start),
        "tail": _ms(exchange.tail),
        "segments": len(answer) if exchange.segments else None,
        "pushes": sum(s.push for s in answer) if exchange.segments else None,
        "flights": len(exchange.flights),
        "first_flight": exchange.first_flight_segments,
        "request_bytes": exchange.request_bytes,
        "response_bytes": exchange.response_bytes,
    }


def _segment(exchange: Exchange, segment: LabelledSegment) -> dict[str, Any]:
    return {
        "connection": exchange.connection,
        "index": exchange.index,
        "frame": segment.frame,
        "at": as_ms(segment.at - exchange.sent_at),
        "direction": segment.direction.value,
        "length": segment.length,
        "push": segment.push,
        "labels": "+".join(segment.labels),
        "flight": segment.flight,
        "retransmission": segment.retransmission,
        "acked": _since(segment.acked_at, exchange.sent_at),
    }


def _since(instant: int | None, start: int) -> float:
    return float("nan") if instant is None else as_ms(instant - start)


def _ms(duration: int | None) -> float:
    return float("nan") if duration is None else as_ms(duration)

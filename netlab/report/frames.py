"""Records and diagnoses as pandas frames. Times are floats in ms, NaN where nothing was measured; instants are UTC."""

import pandas as pd

from netlab.diagnosis import CaptureDiagnosis, PshTable
from netlab.record import RunRecord
from netlab.units import as_ms


def samples_frame(record: RunRecord) -> pd.DataFrame:
    """Return a row a measured query.

    Columns: server, version, query (1-based), sent_at (datetime64[ns, UTC]), idle, first_row, eos, tail, lateness (ms),
    rows, bytes, packets, server_cwnd (segments, after the query), void (text or None).
    """
    rows = [
        {
            "server": run.server.label,
            "version": run.version,
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
            "void": sample.void,
        }
        for run in record.runs
        for sample in run.samples
    ]
    return pd.DataFrame(rows)


def exchanges_frame(diagnosis: CaptureDiagnosis) -> pd.DataFrame:
    """Return a row an exchange.

    Columns: file, connection, index (<NA> for a handshake), kind, query, cause, confidence, extra_round_trips, rtt,
    first_byte, last_byte, tail (ms), first_flight (segments), response_bytes.
    """
    rows = [
        {
            "file": diagnosis.file,
            "connection": exchange.connection,
            "index": exchange.index,
            "kind": exchange.kind.value,
            "query": exchange.query,
            "cause": exchange.cause.value,
            "confidence": exchange.confidence,
            "extra_round_trips": exchange.extra_round_trips,
            "rtt": _ms(exchange.rtt),
            "first_byte": _ms(_since(exchange.first_byte_at, exchange.sent_at)),
            "last_byte": _ms(_since(exchange.last_byte_at, exchange.sent_at)),
            "tail": _ms(exchange.tail),
            "first_flight": exchange.first_flight_segments,
            "response_bytes": exchange.response_bytes,
        }
        for exchange in diagnosis.exchanges
    ]
    return pd.DataFrame(rows).astype({"index": "Int64", "extra_round_trips": "Int64"}) if rows else pd.DataFrame()


def segments_frame(diagnosis: CaptureDiagnosis) -> pd.DataFrame:
    """Return a row a segment of an exchange: connection, index, frame, at (ms since the request), direction, length,
    push, labels (joined by +), flight (<NA> outside of flights), retransmission."""
    rows = [
        {
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
        }
        for exchange in diagnosis.exchanges
        for segment in exchange.segments
    ]
    return pd.DataFrame(rows).astype({"index": "Int64", "flight": "Int64"}) if rows else pd.DataFrame()


def psh_frame(table: PshTable) -> pd.DataFrame:
    """Return a row a size: size (TCP payload, bytes), count."""
    return pd.DataFrame(table.sizes, columns=["size", "count"])


def _since(instant: int | None, start: int) -> int | None:
    return None if instant is None else instant - start


def _ms(duration: int | None) -> float:
    return float("nan") if duration is None else as_ms(duration)

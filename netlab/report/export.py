"""Exchanges as tables for other programs: CSV for spreadsheets, Parquet for data frames. One row an exchange.

Columns and units are those of `frames.exchanges_frame`.
"""

import io
from collections.abc import Sequence

from netlab.diagnosis import CaptureDiagnosis
from netlab.errors import OutputError
from netlab.report.frames import exchanges_frame
from netlab.text import plain

# A spreadsheet computes a cell that begins with one of these.
_FORMULA = ("=", "+", "-", "@")


def exchanges_csv(diagnoses: Sequence[CaptureDiagnosis]) -> bytes:
    """Return the exchanges of all `diagnoses` as CSV in UTF-8; a figure that was not measured is an empty field.

    Texts are on one line without controlling characters, and an apostrophe keeps a spreadsheet from computing them.
    """
    frame = exchanges_frame(*diagnoses)
    for name in ("file", "query", "exception"):
        frame[name] = frame[name].map(_inert, na_action="ignore")
    return frame.to_csv(index=False, lineterminator="\n").encode()


def exchanges_parquet(diagnoses: Sequence[CaptureDiagnosis]) -> bytes:
    """Return the exchanges of all `diagnoses` as Parquet. Raises OutputError where pyarrow is not installed."""
    buffer = io.BytesIO()
    try:
        exchanges_frame(*diagnoses).to_parquet(buffer, index=False, engine="pyarrow")
    except ImportError as error:
        raise OutputError("Parquet needs the package pyarrow", hint="pip install 'netlab-toolkit[parquet]'") from error
    return buffer.getvalue()


def _inert(text: str) -> str:
    shown = plain(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown

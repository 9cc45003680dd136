"""From a run's capture files to what they mean: the diagnosis and the PSH table."""

from dataclasses import replace
from pathlib import Path

from netlab.analysis import diagnose
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.capture.second import pyshark_psh_table
from netlab.diagnosis import PshTable
from netlab.errors import CaptureError
from netlab.record import ServerRun

# pyshark reads a few thousand packets a second: beyond this many our own reader counts alone.
_MOST_FOR_PYSHARK = 50_000


def read_captures(run: ServerRun, folder: Path) -> ServerRun:
    """Return `run` with the diagnosis and the PSH table of its server-side capture; what failed is in its notes."""
    capture = next((c for c in run.captures if c.vantage == "server"), None)
    if capture is None:
        return run
    path = folder / capture.path
    try:
        with open_capture(path) as opened:
            diagnosis = diagnose(opened.segments(), file=capture.path, summary=opened.summary)
        table, note = _psh(path, run.server.port, capture.packets)
    except CaptureError as error:
        return replace(run, notes=(*run.notes, str(error)))
    notes = run.notes if note is None else (*run.notes, note)
    return replace(run, diagnosis=diagnosis, psh=table, notes=notes)


def _psh(path: Path, port: int, packets: int) -> tuple[PshTable, str | None]:
    """Return the table by pyshark, or by our own reader and why."""
    why = f"the capture holds {packets} packets" if packets > _MOST_FOR_PYSHARK else ""
    if not why:
        try:
            return pyshark_psh_table(path, port), None
        except CaptureError as error:
            why = str(error)
    return psh_table(path, port), f"the PSH table is our own reader's, without tshark's second opinion: {why}"

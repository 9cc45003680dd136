"""Captures from anywhere: diagnose them, compare two, redact one. No lab, no root, no run's record.

A name of "-" is standard input, which is read once: what needs it twice asks `spooled` for a copy.
"""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from netlab.analysis import Detail, Options, diagnose
from netlab.capture.psh import table_of
from netlab.capture.read import open_capture
from netlab.diagnosis import CaptureDiagnosis, Cause, PshTable
from netlab.errors import CaptureError, OutputError
from netlab.files import make_folder, write_file
from netlab.published import Unreadable, publish
from netlab.segments import Endpoint, Flag, Segment

if TYPE_CHECKING:
    from netlab.report.compare import Side

STANDARD_INPUT = "-"
_SUFFIXES = (".gz", ".zst", ".pcapng", ".pcap", ".cap")
# Frames of one finding that get its sentence: a finding of hundreds of gaps says the same on each.
_COMMENTED = 64
# A picture of two columns has room for about as much.
_LONGEST_LABEL = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What came of a list of captures."""

    diagnoses: tuple[CaptureDiagnosis, ...]
    failures: tuple[CaptureError, ...]
    unreadable: tuple[Unreadable, ...]


def read_all(files: Sequence[str]) -> Read:
    """Diagnose each of `files`; one that cannot be read keeps none of the others from it.

    The lists of segments, which only pictures need, are not kept.
    """
    diagnoses, failures, unreadable = [], [], []
    for file in files:
        try:
            diagnoses.append(diagnose_file(file, file, detail=Detail.NONE))
        except CaptureError as error:
            failures.append(error)
            unreadable.append(Unreadable(file=file, why=error.what))
    return Read(diagnoses=tuple(diagnoses), failures=tuple(failures), unreadable=tuple(unreadable))


def diagnose_file(path: str | Path, name: str, *, detail: Detail = Detail.ALL) -> CaptureDiagnosis:
    """Return the diagnosis of the capture at `path`, which is called `name` in it. Raises CaptureError."""
    with open_capture(path) as capture:
        options = Options(detail=detail)
        return diagnose(capture.segments(), file=name, summary=capture.summary, options=options)


@contextmanager
def spooled(file: str) -> Iterator[Path]:
    """Yield a path that can be read more than once: the file itself, or a copy of standard input."""
    if file != STANDARD_INPUT:
        yield Path(file)
        return
    with tempfile.NamedTemporaryFile(prefix="netlab-", suffix=".capture") as copy:
        try:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.flush()
        except OSError as error:
            raise CaptureError(f"standard input: cannot be copied: {error.strerror or error}") from error
        yield Path(copy.name)


def save_diagnosis(file: str, folder: Path) -> tuple[CaptureDiagnosis, list[str]]:
    """Diagnose `file` and write reports, pictures, tables and the annotated capture into `folder`.

    Returns the diagnosis and sentences on what was left out. Raises CaptureError, OutputError.
    """
    from netlab.capture.pcapng import annotate
    from netlab.report import save_document
    from netlab.report.diagnosis import diagnosis_document
    from netlab.report.export import exchanges_csv, exchanges_parquet

    notes = []
    with spooled(file) as path:
        found = diagnose_file(path, file)
        make_folder(folder)
        save_document(diagnosis_document(found), folder)
        annotate(path, folder / "annotated.pcapng", frame_comments(found))
    write_file(folder / "diagnosis.json", encode(publish([found])))
    write_file(folder / "exchanges.csv", exchanges_csv([found]))
    try:
        write_file(folder / "exchanges.parquet", exchanges_parquet([found]))
    except OutputError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        notes.append(f"no exchanges.parquet: {error}")
    return found, notes


def encode(value: object) -> bytes:
    """Return `value` (a dataclass) as indented JSON."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def folders(files: Sequence[str], folder: Path) -> list[Path]:
    """Return where each of `files` is reported: `folder` for one, a folder each in it for several."""
    if len(files) == 1:
        return [folder]
    seen: Counter[str] = Counter()
    names = []
    for file in files:
        stem = label(file)
        seen[stem] += 1
        names.append(folder / (stem if seen[stem] == 1 else f"{stem}-{seen[stem]}"))
    return names


def label(file: str) -> str:
    """Return what a capture is called in a table: its name without folders and endings."""
    if file == STANDARD_INPUT:
        return "standard-input"
    name = Path(file).name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name.lstrip(".") or "capture"


def frame_comments(diagnosis: CaptureDiagnosis) -> dict[int, str]:
    """Return what to write on which frames: each finding's sentence on the frames that show it."""
    said: dict[int, list[str]] = {}
    for exchange in diagnosis.exchanges:
        if exchange.cause is Cause.HEALTHY:
            continue
        number = exchange.kind.value if exchange.index is None else f"exchange {exchange.index}"
        for finding in exchange.findings:
            where = f"connection {exchange.connection}, {number}"
            text = f"netlab: {where}: {finding.cause.value}: {finding.evidence.text}"
            for frame in finding.evidence.frames[:_COMMENTED]:
                said.setdefault(frame, []).append(text)
    return {frame: "\n".join(texts) for frame, texts in said.items()}


def read_side(file: str, name: str) -> "Side":
    """Return `file`, called `name`, as one side of a comparison: diagnosed, its PSH segments counted. One pass.

    Raises CaptureError.
    """
    from netlab.report.compare import Side

    pushes: dict[Endpoint, Counter[int]] = {}
    with open_capture(file) as capture:
        counted = _counting(capture.segments(), pushes)
        found = diagnose(counted, file=file, summary=capture.summary)
    return Side(label=name, diagnosis=found, psh=_servers(found, pushes))


def _counting(segments: Iterable[Segment], pushes: dict[Endpoint, Counter[int]]) -> Iterator[Segment]:
    """Pass `segments` on, counting those with PSH and a payload by source and size."""
    for segment in segments:
        if segment.length and segment.flags & Flag.PSH:
            pushes.setdefault(segment.source, Counter())[segment.length] += 1
        yield segment


def _servers(diagnosis: CaptureDiagnosis, pushes: dict[Endpoint, Counter[int]]) -> PshTable:
    sizes: Counter[int] = Counter()
    for server in {connection.server for connection in diagnosis.connections}:
        sizes.update(pushes.get(server, Counter()))
    return table_of(sizes)


def labels(before: str, after: str) -> tuple[str, str]:
    """Return what the two sides of a comparison are called: never the same, and of long names what differs."""
    names = (label(before), label(after))
    if names[0] == names[1]:
        return f"before: {names[0]}", f"after: {names[1]}"
    if max(map(len, names)) <= _LONGEST_LABEL:
        return names
    old, new = (name.split("-") for name in names)
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return ("-".join(old), "-".join(new)) if old and new else names


def save_comparison(before: "Side", after: "Side", folder: Path) -> None:
    """Write reports, pictures and comparison.json into `folder`. Raises OutputError."""
    from netlab.report import save_document
    from netlab.report.compare import compare_document
    from netlab.report.comparison import comparison

    make_folder(folder)
    save_document(compare_document(before, after), folder)
    write_file(folder / "comparison.json", encode(comparison(before, after)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What came of a redaction."""

    file: str
    output: str
    packets: int
    connections: int
    exchanges: int
    changed: int  # exchanges whose cause or round trips read differently in the output
    labels_lost: int  # connections of a known protocol that are none in the output


def redact_file(file: str, target: Path) -> Redaction:
    """Write the redacted form of `file` to `target`, then diagnose both. Raises CaptureError."""
    from netlab.capture.keep import KeptShape
    from netlab.capture.redact import redact

    with spooled(file) as path:
        shape = KeptShape()
        with open_capture(path) as capture:
            shape.learn(capture.segments())
        redact(path, target, filler=shape.fill)
        old = diagnose_file(path, file, detail=Detail.NONE)
    new = diagnose_file(target, str(target), detail=Detail.NONE)
    lost = sum(a.protocol is not b.protocol for a, b in zip(old.connections, new.connections, strict=False))
    return Redaction(
        file=file,
        output=str(target),
        packets=new.summary.packets,
        connections=len(new.connections),
        exchanges=len(new.exchanges),
        changed=_differences(old, new),
        labels_lost=lost,
    )


def _differences(old: CaptureDiagnosis, new: CaptureDiagnosis) -> int:
    """Return how many exchanges of either diagnosis have no equal in the other."""
    told = [
        Counter((e.connection, e.sent_at, e.kind, e.cause, e.also, e.extra_round_trips) for e in each.exchanges)
        for each in (old, new)
    ]
    return max((told[0] - told[1]).total(), (told[1] - told[0]).total())

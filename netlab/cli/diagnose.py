"""`netlab diagnose CAPTURE...`: the cause of each tail in captures from anywhere."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from netlab.cli import render
from netlab.text import plain

if TYPE_CHECKING:
    from netlab.captures import Read


@click.command(name="diagnose")
@click.argument("files", metavar="CAPTURE...", nargs=-1, required=True)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Write report.html, report.md, pictures, diagnosis.json, exchanges.csv and .parquet, and annotated.pcapng "
    "into this folder; of several captures, into a folder each in it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout instead of text.")
def command(files: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Say of each exchange in each CAPTURE why it took longer than its bytes, and which frames show it.

    A CAPTURE is a pcap or pcapng file, also gzip or zstd of one, or "-" for standard input. Needs no root and no lab.

    \b
    A file that cannot be read is named on stderr; the others are still diagnosed, and the exit code is 4.
    """
    from netlab import captures
    from netlab.errors import UsageError

    if files.count(captures.STANDARD_INPUT) > 1:
        raise UsageError('"-" is given twice, and standard input can be read once')
    read = captures.read_all(files) if output is None else _save(files, output)
    if as_json:
        from netlab.published import publish

        render.print_json(publish(read.diagnoses, read.unreadable))
    else:
        _print(read)
    for error in read.failures:
        render.note(f"netlab: {error.what}")
        if error.hint:
            render.note(f"  next: {error.hint}")
    if read.failures:
        raise click.exceptions.Exit(read.failures[0].exit_code)


def _print(read: "Read") -> None:
    from netlab.cli.findings import diagnosis_lines

    for number, found in enumerate(read.diagnoses):
        if number:
            click.echo()
        for line in diagnosis_lines(found):
            click.echo(line)


def _save(files: tuple[str, ...], output: Path) -> "Read":
    from netlab import captures
    from netlab.errors import CaptureError
    from netlab.published import Unreadable

    diagnoses, failures, unreadable = [], [], []
    for file, folder in zip(files, captures.folders(files, output), strict=True):
        try:
            found, notes = captures.save_diagnosis(file, folder)
        except CaptureError as error:
            failures.append(error)
            unreadable.append(Unreadable(file=file, why=error.what))
            continue
        diagnoses.append(found)
        for line in notes:
            render.note(line)
        render.note(f"report: {plain(str(folder))}/report.html")
    return captures.Read(diagnoses=tuple(diagnoses), failures=tuple(failures), unreadable=tuple(unreadable))

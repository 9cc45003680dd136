"""`netlab compare BEFORE AFTER`: what changed between two captures."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from netlab.cli import render
from netlab.text import plain

if TYPE_CHECKING:
    from netlab.report.document import Document


@click.command(name="compare")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Write report.html, report.md, pictures and comparison.json into this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout instead of text.")
def command(before: str, after: str, output: Path | None, as_json: bool) -> None:
    """Set the captures BEFORE and AFTER side by side: segments by size, writes, round trips, times, causes.

    Figures are per exchange, so the captures may be of any length. Either is a pcap or pcapng file, also gzip or zstd
    of one, or "-" for standard input. Needs no root and no lab.
    """
    from netlab import captures
    from netlab.errors import UsageError
    from netlab.report.compare import compare_document
    from netlab.report.comparison import comparison

    if before == after == captures.STANDARD_INPUT:
        raise UsageError('"-" is given twice, and standard input can be read once')
    names = captures.labels(before, after)
    old, new = (captures.read_side(file, name) for file, name in zip((before, after), names, strict=True))
    if output is not None:
        captures.save_comparison(old, new, output)
    if as_json:
        render.print_json(comparison(old, new))
    else:
        _print(compare_document(old, new, pictures=False))
    if output is not None:
        render.note(f"report: {plain(str(output))}/report.html")


def _print(document: "Document") -> None:
    from netlab.report.document import Section, Table

    for number, block in enumerate(block for block in document.blocks if isinstance(block, Section | Table)):
        if number:
            click.echo()
        if isinstance(block, Table):
            render.print_table(list(block.columns), [list(row) for row in block.rows], title=plain(block.title))
            continue
        click.echo(plain(block.title))
        for sentence in block.sentences:
            click.echo(f"  {plain(sentence)}")

"""`netlab redact IN OUT`: a capture that can be shown to others."""

from pathlib import Path

import click

from netlab.cli import render
from netlab.text import plain


@click.command(name="redact")
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout instead of text.")
def command(source: str, target: Path, as_json: bool) -> None:
    """Write the capture IN to the pcapng OUT without what it said: no SQL, no password, no value, no address.

    Payloads become filler of the same length, addresses are numbered, comments and names go. Times, sizes, ports,
    sequence numbers, flags and windows stay, so the diagnosis of OUT is that of IN; both are made, and exit code 3 says
    that they differ.

    In ClickHouse Native every packet keeps its type, its size and its counters; in TLS and PostgreSQL the heads of
    messages stay. A connection whose beginning is not in the capture, or whose ports were used twice, keeps none of
    that: it is read by turn-taking then.

    IN may be a pcap or pcapng file, also gzip or zstd of one, or "-" for standard input.
    """
    from netlab import captures
    from netlab.cli.findings import number
    from netlab.errors import UsageError

    if str(target) == captures.STANDARD_INPUT:
        raise UsageError("OUT is a file: what is written is read again, to see that its diagnosis is the same")
    done = captures.redact_file(source, target)
    if as_json:
        render.print_json(done)
    else:
        parts = ((done.packets, "packet"), (done.connections, "connection"), (done.exchanges, "exchange"))
        counted = ", ".join(number(count, what) for count, what in parts)
        click.echo(f"{plain(done.output)}: {counted}")
        if not done.changed:
            click.echo("the diagnosis is the same: causes and round trips of every exchange")
    if done.labels_lost:
        lost = number(done.labels_lost, "connection")
        render.note(f"{lost} lost the labels of its packets, which are read by turn-taking now")
    if done.changed:
        render.note(f"the diagnosis differs in {number(done.changed, 'exchange')}")
        raise click.exceptions.Exit(3)

"""`netlab repro`: the main job."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from netlab.cli import render
from netlab.cli.options import PASSWORD, build_scenario, output_options, read_password, scenario_options
from netlab.cli.progress import progress
from netlab.record import RttReport, RunRecord
from netlab.samples import Sample
from netlab.scenario import Scenario, Server
from netlab.text import plain
from netlab.units import format_duration


class Watcher:
    """Prints the article's lines as they come (on stdout, unless JSON goes there) and drives the progress display."""

    def __init__(self, scenario: Scenario, display: Any, *, silent: bool) -> None:
        self._scenario = scenario
        self._display = display
        self._silent = silent

    def phase(self, text: str) -> None:
        """Show the phase."""
        self._display.phase(text)

    def lab_ready(self, server: Server, rtt: RttReport) -> None:
        """Print the ping."""
        self._say(f"\n{server.label}")
        self._say(render.rtt_line(rtt))

    def server_ready(self, server: Server, address: str, version: str | None) -> None:
        """Print the article's first line."""
        if version:
            self._say(f"ClickHouse {version}")
        self._say(render.run_line(address, self._scenario))

    def queries(self, label: str, total: int) -> None:
        """Start the bar."""
        idle = format_duration(self._scenario.workload.idle)
        self._display.queries(f"{label}: queries, each after {idle} of silence", total)

    def measured(self, sample: Sample) -> None:
        """Print the query's line."""
        self._say(render.sample_line(sample))
        self._display.advance()

    def tick(self) -> None:
        """Draw the bar."""
        self._display.tick()

    def _say(self, text: str) -> None:
        if not self._silent:
            click.echo(render.plain_lines(text))
            sys.stdout.flush()


@click.command(name="repro")
@scenario_options
@PASSWORD
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for the record, captures and reports [reports/TIME-repro].",
)
@output_options
def command(password_file: Path | None, output: Path | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Reproduce the stall on real servers, say why it is there, and what would heal it.

    Each server gets an equal lab of its own: a client and a server with the round trip between them, captures at both
    ends, an idle connection before every query. By default ClickHouse 26.7, where the stall is, and 26.9, where it is
    gone.
    """
    from netlab import repro

    scenario = build_scenario(given)
    folder = output or Path("reports") / time.strftime(f"%Y%m%d-%H%M%S-{scenario.name}", time.gmtime())
    request = repro.Order(
        scenario=scenario, folder=folder, password=read_password(password_file), command_line=_command_line()
    )
    with progress(quiet=quiet) as display:
        watcher = Watcher(scenario, display, silent=as_json)
        try:
            outcome = repro.reproduce(request, watcher)
        except KeyboardInterrupt:
            _say_what_is_saved(folder, as_json=as_json)
            raise
    if as_json:
        render.print_json(outcome.record)
    else:
        _conclude(outcome.record, outcome.verdicts, folder)
    if outcome.failure is not None:
        raise outcome.failure
    unmet = repro.unmet_expectations(outcome.record)
    for line in unmet:
        render.note(line)
    if unmet:
        raise click.exceptions.Exit(3)


def _say_what_is_saved(folder: Path, *, as_json: bool) -> None:
    from netlab.store import RECORD, load_record

    if not (folder / RECORD).exists():
        return
    if as_json:
        render.print_json(load_record(folder))
    render.note(f"what was measured is in {folder / RECORD}")


def _command_line() -> tuple[str, ...]:
    return ("netlab", *sys.argv[1:])


def _conclude(record: RunRecord, verdicts: tuple[Any, ...], folder: Path) -> None:
    for verdict in verdicts:
        click.echo(f"\n{render.plain_lines(verdict.server)}: {render.plain_lines(verdict.headline)}")
        for sentence in verdict.sentences:
            click.echo(f"  {render.plain_lines(sentence)}")
        for who, what in verdict.remedies:
            click.echo(f"  heal it ({who}): {render.plain_lines(what)}")
    if verdicts:
        click.echo()
        render.print_table(*render.side_by_side(record, verdicts))
    for line in record.notes:
        render.note(line)
    where = plain(str(folder))
    click.echo(f"\nreport: {where}/report.html   record: {where}/record.json")
    click.echo(f"again:  {render.shell_line(record.command_line)}")

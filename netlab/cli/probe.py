"""`netlab probe HOST:PORT`: a server that runs already."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from netlab.cli import render
from netlab.cli.options import PASSWORD, SERVER, build_scenario, output_options, read_password, workload_options
from netlab.cli.progress import progress
from netlab.errors import UsageError
from netlab.record import ServerRun
from netlab.scenario import Server, ServerKind


@click.command(name="probe")
@click.argument("server", type=SERVER, metavar="HOST:PORT")
@workload_options
@PASSWORD
@output_options
def command(server: Server, password_file: Path | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Time queries against the ClickHouse server at HOST:PORT, each after a silence, without a lab.

    Without captures the cause of a tail stays unnamed; what the kernel knows of the connection is printed beside it.
    """
    from netlab import run
    from netlab.cli.repro import Watcher

    if server.kind is not ServerKind.REMOTE:
        raise UsageError(f"{server.label} is not HOST:PORT", hint=f"netlab repro --server {server.label}")
    scenario = build_scenario({**given, "server": (server,)})
    request = run.Request(scenario=scenario, folder=Path(), password=read_password(password_file))
    runs: list[ServerRun] = []
    started_at = time.time_ns()
    with progress(quiet=quiet) as display:
        watcher = Watcher(scenario, display, silent=as_json)
        try:
            run.measure_remote(request, server, watcher, runs.append)
        finally:
            if as_json and runs:
                render.print_json({"started_at": started_at, "command_line": ["netlab", *sys.argv[1:]], "run": runs[0]})
    if not as_json:
        for line in render.connection_lines(runs[0]):
            click.echo(line)
    failure = run.refusal(runs[0])
    if failure is not None:
        raise failure

"""`netlab scenario list|show|check`: scenario files."""

from pathlib import Path

import click

from netlab.cli.options import output_options
from netlab.errors import ScenarioError
from netlab.scenario import Scenario

_FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))


@click.group(name="scenario")
def command() -> None:
    """List, show or check scenario files. `netlab repro --scenario FILE` runs one."""


@command.command(name="list")
@click.argument("folder", default="scenarios", type=click.Path(path_type=Path))
@output_options
def list_scenarios(folder: Path, as_json: bool, quiet: bool) -> None:
    """List the scenario files of FOLDER with their stories' first lines."""
    from netlab.cli.render import print_json, print_table

    if not folder.is_dir():
        raise ScenarioError(f"{folder}: no such folder", hint="name the folder that holds the scenario files")
    found = [(path, _load(path)) for path in sorted(folder.glob("*.toml"))]
    if as_json:
        print_json({"scenarios": [{"file": str(path), "scenario": scenario} for path, scenario in found]})
        return
    rows = [
        [str(path), ", ".join(s.label for s in scenario.servers), scenario.story.partition("\n")[0]]
        for path, scenario in found
    ]
    print_table(["file", "servers", "story"], rows)


@command.command(name="show")
@click.argument("file", type=click.Path(path_type=Path))
@output_options
def show(file: Path, as_json: bool, quiet: bool) -> None:
    """Print the scenario FILE with every default spelt out."""
    from netlab.cli.render import print_json
    from netlab.scenario_file import dump_scenario

    scenario = _load(file)
    if as_json:
        print_json(scenario)
    else:
        click.echo(dump_scenario(scenario), nl=False)


@command.command(name="check")
@_FILES
@output_options
def check(files: tuple[Path, ...], as_json: bool, quiet: bool) -> None:
    """Check the scenario FILES; the first fault of each is said on stderr, and the exit code is then 2."""
    from netlab.cli.render import note, print_json

    faults: dict[str, str | None] = {}
    for file in files:
        try:
            _load(file)
            faults[str(file)] = None
        except ScenarioError as error:
            faults[str(file)] = str(error)
            note(str(error))
    if as_json:
        print_json({"files": [{"file": file, "fault": fault} for file, fault in faults.items()]})
    elif not any(faults.values()):
        click.echo(f"{len(faults)} scenario file(s) are sound")
    if any(faults.values()):
        raise click.exceptions.Exit(ScenarioError.exit_code)


def _load(path: Path) -> Scenario:
    from netlab.scenario_file import load_scenario

    return load_scenario(path)

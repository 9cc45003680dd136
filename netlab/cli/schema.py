"""`netlab schema`: the JSON schema that a run's record.json follows."""

import click


@click.command(name="schema")
@click.option("--json", "as_json", is_flag=True, help="The schema is JSON already; the flag changes nothing.")
def command(as_json: bool) -> None:
    """Print the JSON schema of run records."""
    from netlab.cli.render import print_json
    from netlab.store import record_schema

    print_json(record_schema())

"""`netlab schema`: the JSON schemas that records and the answers of commands follow."""

import click


@click.command(name="schema")
@click.option(
    "--of",
    "kind",
    type=click.Choice(["record", "diagnosis", "comparison"]),
    default="record",
    show_default=True,
    help="A run's record.json, or what `netlab diagnose --json` or `netlab compare --json` prints.",
)
@click.option("--json", "as_json", is_flag=True, help="The schema is JSON already; the flag changes nothing.")
def command(kind: str, as_json: bool) -> None:
    """Print the JSON schema of run records, diagnoses or comparisons."""
    from netlab.cli.render import print_json

    if kind == "record":
        from netlab.store import record_schema

        print_json(record_schema())
        return
    import msgspec

    from netlab.published import Published
    from netlab.report.comparison import Comparison

    print_json(msgspec.json.schema(Published if kind == "diagnosis" else Comparison))

"""`netlab down NAME`: take a kept lab down."""

import click

from netlab.cli.options import output_options


@click.command(name="down")
@click.argument("name")
@output_options
def command(name: str, as_json: bool, quiet: bool) -> None:
    """Take the lab NAME down: its namespaces, links and processes vanish."""
    from netlab.cli.render import print_json
    from netlab.lab import kept

    kept.down(name)
    if as_json:
        print_json({"down": name})
    else:
        click.echo(f"lab {name} is down")

"""`netlab clean`: reap what kept labs left behind."""

import click

from netlab.cli.options import output_options


@click.command(name="clean")
@output_options
def command(as_json: bool, quiet: bool) -> None:
    """Reap what dead labs left (their control sockets); labs that live are named and left alone."""
    from netlab.cli.render import print_json
    from netlab.lab import kept

    reaped, alive = kept.clean(), kept.list()
    if as_json:
        print_json({"reaped": reaped, "alive": alive})
        return
    click.echo(f"reaped: {', '.join(reaped) if reaped else 'nothing'}")
    for entry in alive:
        click.echo(f"still up: {entry.name} (take it down with: netlab down {entry.name})")

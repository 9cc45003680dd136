"""`netlab up NAME`: a lab that stays for looking round by hand."""

from typing import Any

import click

from netlab.cli.options import build_scenario, link_options, output_options


@click.command(name="up")
@click.argument("name")
@link_options
@output_options
def command(name: str, as_json: bool, quiet: bool, **given: Any) -> None:
    """Build a lab called NAME and keep it until `netlab down NAME`.

    Look round with `netlab exec NAME server ss -tin`, or `netlab exec NAME client ping -c 3 10.77.0.2`.
    """
    from netlab.cli.render import print_json
    from netlab.lab import kept

    scenario = build_scenario(given)
    entry = kept.up(name, scenario.link, scenario.server_tcp, scenario.client_tcp)
    if as_json:
        print_json(entry)
        return
    click.echo(f"lab {name}: client {entry.client} -- {entry.backend} -- server {entry.server}")
    click.echo(f"  netlab exec {name} server ss -tin")
    click.echo(f"  netlab down {name}")

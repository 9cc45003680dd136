"""`netlab exec NAME HOST COMMAND...`: a command at one end of a kept lab."""

import click


@click.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name")
@click.argument("host", type=click.Choice(["client", "middle", "server"]))
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
def command(name: str, host: str, argv: tuple[str, ...]) -> None:
    """Run ARGV at the HOST end of the lab NAME, with this terminal; its exit code is ours.

    Inside, `ip netns exec client|server|middle` works too.
    """
    from netlab.lab import kept

    raise click.exceptions.Exit(kept.exec(name, host, argv))

"""`netlab exec NAME HOST COMMAND...`: a command at one end of a kept lab."""

import tempfile

import click


@click.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name")
@click.argument("host", metavar="HOST", type=click.Choice(["client", "middle", "server"]))
@click.argument("argv", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: exit_code, stdout, stderr.")
def command(name: str, host: str, argv: tuple[str, ...], as_json: bool) -> None:
    """Run COMMAND at the HOST end (client, middle or server) of the lab NAME, with this terminal.

    Its exit code is ours. Options of ours go before NAME. Inside, `ip netns exec client|server|middle` works too.
    """
    from netlab.cli.render import print_json
    from netlab.lab import kept

    if not as_json:
        raise click.exceptions.Exit(kept.exec(name, host, argv))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = kept.exec(name, host, argv, (0, out.fileno(), err.fileno()))
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
    print_json({"exit_code": code, "stdout": said[0], "stderr": said[1]})
    raise click.exceptions.Exit(code)

"""`netlab completion bash|zsh|fish`."""

import click
from click.shell_completion import get_completion_class

_INSTALL = {
    "bash": 'eval "$(netlab completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(netlab completion zsh)"   # in ~/.zshrc',
    "fish": "netlab completion fish | source   # in ~/.config/fish/config.fish",
}


@click.command(name="completion", epilog="\b\n" + "\n".join(_INSTALL.values()))
@click.argument("shell", metavar="SHELL", type=click.Choice(list(_INSTALL)))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(shell: str, as_json: bool) -> None:
    """Print the completion script of SHELL (bash, zsh or fish); evaluate it in the shell's start-up file."""
    from netlab.cli import cli
    from netlab.cli.render import print_json

    maker = get_completion_class(shell)
    assert maker is not None, shell  # Click ships all three
    source = maker(cli, {}, "netlab", "_NETLAB_COMPLETE").source()
    if as_json:
        print_json({"shell": shell, "script": source, "install": _INSTALL[shell]})
    else:
        click.echo(source)

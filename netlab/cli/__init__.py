"""The command line: parse, call, render. Results on stdout, progress and errors on stderr.

Commands are imported only when they run, so that `netlab --help` answers at once.
"""

import importlib
import sys

import click

from netlab import __version__
from netlab.cli.signals import Interrupted, translate_signals
from netlab.errors import NetlabError
from netlab.text import plain

# name -> (module, what it is for): the help needs no command imported.
_COMMANDS = {
    "repro": ("netlab.cli.repro", "Reproduce the stall on real servers, say why it is there and what heals it."),
    "probe": ("netlab.cli.probe", "Time queries against a server that already runs, without a lab."),
    "engine": ("netlab.cli.engine", "Install, list, verify or remove the ClickHouse engines."),
    "scenario": ("netlab.cli.scenario", "List, show, check or run scenario files."),
    "up": ("netlab.cli.up", "Build a named lab and keep it for looking round by hand."),
    "exec": ("netlab.cli.exec", "Run a command at one end of a kept lab."),
    "down": ("netlab.cli.down", "Take a kept lab down."),
    "clean": ("netlab.cli.clean", "Reap what kept labs left behind."),
    "doctor": ("netlab.cli.doctor", "Say what this machine can do, and how to mend what it cannot."),
    "schema": ("netlab.cli.schema", "Print the JSON schema of run records."),
    "completion": ("netlab.cli.completion", "Print the shell completion script."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f'no command "{plain(args[0])}"; `netlab --help` lists them', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in _COMMANDS.items()])


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", message="netlab %(version)s")
def cli() -> None:
    """Reproduce and diagnose tail latency.

    netlab builds a network in namespaces, runs a real server in it, watches every packet, says why the
    tail is there, and proves it. Start with:  netlab repro --rtt 32ms --initcwnd 8

    Exit codes: 0 fine; 1 a bug; 2 usage or scenario; 3 a gate or an expectation failed; 4 lab, capture or
    server failed; 128+N ended by signal N.
    """


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(_run(argv))


def _run(argv: list[str] | None) -> int:
    with translate_signals():
        try:
            code = cli.main(args=argv, prog_name="netlab", standalone_mode=False)
            sys.stdout.flush()
        except NetlabError as error:
            return _complain(error)
        except click.ClickException as error:
            error.show(sys.stderr)
            return error.exit_code
        except click.Abort as abort:
            return abort.__cause__.exit_code if isinstance(abort.__cause__, Interrupted) else 130
        except Interrupted as interrupted:
            return interrupted.exit_code
        except BrokenPipeError:
            # The reader left (`netlab ... | head`): nothing more to say, and nowhere to say it.
            sys.stdout = None
            return 141
    return code if isinstance(code, int) else 0


def _complain(error: NetlabError) -> int:
    lines = [f"netlab: {plain(error.what)}"]
    if error.hint:
        lines.append(f"  next: {plain(error.hint)}")
    click.echo("\n".join(lines), err=True)
    return error.exit_code

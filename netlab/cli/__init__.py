"""The command line: parse, call, render. Results on stdout, progress and errors on stderr.

Commands are imported only when they run, so that `netlab --help` answers at once.
"""

import contextlib
import errno
import importlib
import os
import sys

import click
from click.shell_completion import shell_complete

from netlab import __version__
from netlab.cli.signals import Interrupted, translate_signals
from netlab.errors import NetlabError, OutputError, UsageError
from netlab.text import plain

# name -> (module, what it is for): the help needs no command imported.
_COMMANDS = {
    "repro": ("netlab.cli.repro", "Reproduce the stall on real servers, say why it is there and what heals it."),
    "probe": ("netlab.cli.probe", "Time queries against a server that already runs, without a lab."),
    "diagnose": ("netlab.cli.diagnose", "Name the cause of each tail in captures from anywhere, with evidence."),
    "compare": ("netlab.cli.compare", "Set two captures side by side: segments, round trips, times, causes."),
    "redact": ("netlab.cli.redact", "Make a capture fit to be shown: no payload, no address, the same diagnosis."),
    "engine": ("netlab.cli.engine", "Install, list, verify or remove the ClickHouse engines."),
    "scenario": ("netlab.cli.scenario", "List, show or check scenario files."),
    "up": ("netlab.cli.up", "Build a named lab and keep it for looking round by hand."),
    "exec": ("netlab.cli.exec", "Run a command at one end of a kept lab."),
    "down": ("netlab.cli.down", "Take a kept lab down."),
    "clean": ("netlab.cli.clean", "Reap what kept labs left behind."),
    "doctor": ("netlab.cli.doctor", "Say what this machine can do, and how to mend what it cannot."),
    "schema": ("netlab.cli.schema", "Print the JSON schema of run records, diagnoses or comparisons."),
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


# A stream that cannot take what is written: a full disk, a quota, a file at its limit, a device that fails.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_COMPLETE = "_NETLAB_COMPLETE"


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    _open_standard_streams()
    code = _run(sys.argv[1:] if argv is None else argv)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _output_failed(error)
    sys.exit(code)


def _run(argv: list[str]) -> int:
    with translate_signals():
        try:
            return _call(argv)
        except NetlabError as error:
            return _complain(error.what, error.hint, error.exit_code)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show(sys.stderr)
            return error.exit_code
        except click.ClickException as error:
            context = error.ctx if isinstance(error, click.UsageError) else None
            path = "netlab" if context is None else context.command_path
            return _complain(error.format_message().rstrip("."), f"{path} --help", error.exit_code)
        except Interrupted as interrupted:
            return _complain(f"ended by {interrupted.name}", "", interrupted.exit_code)
        except OSError as error:
            if error.errno != errno.EPIPE and error.errno not in _UNWRITABLE:
                raise
            return _output_failed(error)


def _call(argv: list[str]) -> int:
    """Parse and run. Not click's own `main`, which has exit codes and messages of its own for a closed pipe."""
    try:
        "".join(argv).encode()
    except UnicodeEncodeError as error:
        raise UsageError("an argument is not UTF-8", hint="SQL may stand in a file: --query-file") from error
    if instruction := os.environ.get(_COMPLETE):
        return shell_complete(cli, {}, "netlab", _COMPLETE, instruction)
    try:
        with cli.make_context("netlab", list(argv)) as context:
            cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0


def _open_standard_streams() -> None:
    """Give a descriptor to a standard stream that the caller closed, or a socket of ours would take its number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _output_failed(error: OSError) -> int:
    """Say that the output could not be written; return the exit code.

    A reader that left (`netlab ... | head`) is told nothing: the code is the one of a death by SIGPIPE.
    """
    # What is still buffered can go nowhere; let the interpreter's last flush write it to nothing.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    if error.errno == errno.EPIPE:
        return 141
    where = error.filename or "standard output"
    return _complain(f"{where}: {error.strerror}", "write to a disk with room", OutputError.exit_code)


def _complain(what: str, hint: str, code: int) -> int:
    lines = [f"netlab: {plain(what)}", *([f"  next: {plain(hint)}"] if hint else [])]
    with contextlib.suppress(OSError):
        click.echo("\n".join(lines), err=True)
    return code

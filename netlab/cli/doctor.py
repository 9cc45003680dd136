"""`netlab doctor`: what this machine can do."""

import shutil
from typing import TYPE_CHECKING

import click

from netlab.cli.options import output_options

if TYPE_CHECKING:
    from netlab.lab.checks import Check


@click.command(name="doctor")
@output_options
def command(as_json: bool, quiet: bool) -> None:
    """Say what this machine can do, and how to mend what it cannot. Exit code 4 when no lab can be built."""
    from netlab.cli import render

    checks = _checks()
    if as_json:
        render.print_json({"checks": checks})
    else:
        for check in checks:
            mark = "ok  " if check.had else "FAIL" if check.needed else "--  "
            click.echo(f"{mark} {check.name}: {render.plain_lines(check.found)}")
            if not check.had:
                click.echo(f"       {render.plain_lines(check.mend)}")
    if any(check.needed and not check.had for check in checks):
        raise click.exceptions.Exit(4)


def _checks() -> "list[Check]":
    from netlab.environment import environment
    from netlab.lab.checks import Check, check_congestion, check_lab, check_processors, check_python
    from netlab.servers import engine

    env = environment()
    tshark = env.tools.get("tshark")
    found = {entry.version for entry in engine.installed()}
    free = shutil.disk_usage(_existing(engine.cache_folder())).free
    return [
        Check(name="netlab", had=True, found=f"{env.netlab}, Python {env.python}, {env.kernel}, {env.machine}"),
        *check_lab(),
        check_congestion(),
        check_processors(),
        Check(
            name="tshark",
            had=tshark is not None,
            found=tshark or "not found",
            mend="apt-get install tshark; without it the PSH table comes from our own reader alone",
        ),
        check_python(),
        *(
            Check(
                name=f"engine {version}",
                had=version in found,
                found=str(engine.folder_of(version)) if version in found else "not installed",
                mend=f"netlab engine install {version}",
            )
            for version in engine.PINNED
        ),
        Check(
            name="disk",
            had=free > 10**9,
            found=f"{free / 10**9:.1f} GB free for the cache",
            mend="an engine takes 0.6 GB; set NETLAB_CACHE to another disk",
        ),
    ]


def _existing(path: "object") -> str:
    from pathlib import Path

    folder = Path(str(path))
    while not folder.exists():
        folder = folder.parent
    return str(folder)

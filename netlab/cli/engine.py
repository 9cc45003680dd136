"""`netlab engine install|list|verify|remove`: the ClickHouse engines from the package index."""

import click

from netlab.cli.options import output_options

_VERSIONS = click.argument("versions", nargs=-1)


@click.group(name="engine")
def command() -> None:
    """Install, list, verify or remove the ClickHouse engines.

    An engine is the whole ClickHouse of one version, from the package index, checked against a pinned hash. Each
    lives in a folder of its own under the cache ($NETLAB_CACHE, else ~/.cache/netlab) and takes about 560 MB.
    Only `install` downloads.
    """


@command.command(name="install")
@_VERSIONS
@output_options
def install(versions: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Install VERSIONS, such as 26.7 26.9; without any, both."""
    from netlab.cli.render import note, print_json
    from netlab.servers import engine

    say = (lambda _text: None) if quiet else note
    done = [engine.install(version, say) for version in versions or engine.PINNED]
    if as_json:
        print_json({"installed": done})


@command.command(name="list")
@output_options
def list_engines(as_json: bool, quiet: bool) -> None:
    """List the pinned engines and whether each is installed."""
    from netlab.cli.render import print_json, print_table
    from netlab.servers import engine

    found = {entry.version: entry for entry in engine.installed()}
    if as_json:
        entries = [{"version": v, "installed": v in found, "engine": found.get(v)} for v in engine.PINNED]
        print_json({"engines": entries})
        return
    rows = [[v, "yes" if v in found else "no", str(found[v].path) if v in found else ""] for v in engine.PINNED]
    print_table(["version", "installed", "folder"], rows)


@command.command(name="verify")
@_VERSIONS
@output_options
def verify(versions: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Hash the files of VERSIONS (without any: of all that are installed) and compare."""
    from netlab.cli.render import print_json
    from netlab.servers import engine

    chosen = versions or tuple(entry.version for entry in engine.installed())
    for version in chosen:
        engine.verify(version)
    if as_json:
        print_json({"verified": chosen})
    else:
        click.echo("\n".join(f"{version}: files are the ones installed" for version in chosen) or "none installed")


@command.command(name="remove")
@click.argument("versions", nargs=-1, required=True)
@output_options
def remove(versions: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Remove VERSIONS from the cache."""
    from netlab.cli.render import print_json
    from netlab.servers import engine

    for version in versions:
        engine.remove(version)
    if as_json:
        print_json({"removed": versions})
    else:
        click.echo("\n".join(f"{version}: removed" for version in versions))

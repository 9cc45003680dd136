"""ClickHouse engines from the package index: installed once into the cache, checked, and started in a host.

Only `install` downloads. An engine's folder holds the wheel's files and a manifest of their hashes. Two pins guard it:
the wheel's own hash, which pip checks, and the hash of what the wheel unpacks to, which `verify` checks.
"""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from netlab.errors import EngineError, UsageError
from netlab.hosts import Host
from netlab.scenario import Server
from netlab.servers.child import ChildServer
from netlab.units import seconds

_MANIFEST = "netlab-manifest.json"
_READY = seconds(60)
# 26.7 ends the whole process on these; the run's message then says more than "signal 6".
_ABORTED = "this engine aborts when a login fails or a first packet is no Hello: check user, password and database"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One wheel: its sha256, and that of the list of its unpacked files (see `content`)."""

    sha256: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One engine: the package's version, ClickHouse's, and the wheels by machine."""

    package: str
    clickhouse: str
    wheels: Mapping[str, Wheel]


PINNED: Mapping[str, Pin] = {
    "26.7": Pin(
        package="26.7.3",
        clickhouse="26.7.2.1",
        wheels={
            "x86_64": Wheel(
                sha256="b10b96f9599fab42ba51d9be80333e1819782bdc8a91b2b26979149693ba431f",
                content="e98b69ef28e540966b4b011cfb3e198cb2863b715b700b5aa17fcf2c40f5bc25",
            ),
            "aarch64": Wheel(
                sha256="e64c61a868cad97eb375fb17e23b00bf5058cc9d9d94351cb97dde82d212c7d6",
                content="0961249d3985659984e52cc15b9722a4c36c55c530511f36d0e209e607e7eb5b",
            ),
        },
    ),
    "26.9": Pin(
        package="26.9.0",
        clickhouse="26.9.2.1",
        wheels={
            "x86_64": Wheel(
                sha256="707e2ec3fe0f7953bac97942eaeb7a1ed1d66b1e56ecef3f0aa2130f61f6e735",
                content="81cdab4da40e8ef41a1619c584774a2da0704b276057e0481d1e960fa62e9ab2",
            ),
            "aarch64": Wheel(
                sha256="46148d3fc1edd6d6f701922be0f18e2aa6e60349e418b430e69bbb87ab6b95a9",
                content="e18c96d8e9e5434408af643369c60002c9a878fabca83e9f46b4e627483ef592",
            ),
        },
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An engine in the cache."""

    version: str
    clickhouse: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """What the manifest says of one file: bytes, ns, hex."""

    size: int
    mtime: int
    sha256: str


def cache_folder() -> Path:
    """Return where engines live: $NETLAB_CACHE/engines, else $XDG_CACHE_HOME/netlab/engines, else ~/.cache/..."""
    named = os.environ.get("NETLAB_CACHE")
    if named:
        return Path(named) / "engines"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "netlab" / "engines"


def folder_of(version: str) -> Path:
    """Return where `version` is, or would be."""
    return cache_folder() / version


def pin_of(version: str) -> Pin:
    """Return what is pinned for `version`. Raises UsageError that lists the pinned versions."""
    if version not in PINNED:
        raise UsageError(f'no engine "{version}"', hint=f"pinned engines: {', '.join(PINNED)}")
    return PINNED[version]


def wheel_of(version: str) -> Wheel:
    """Return this machine's wheel. Raises UsageError, and EngineError where there is none."""
    wheels = pin_of(version).wheels
    machine = platform.machine()
    if machine not in wheels:
        raise EngineError(f"engine {version}: no wheel for {machine}", hint=f"use a machine of {', '.join(wheels)}")
    return wheels[machine]


def is_installed(version: str) -> bool:
    """Return whether `version` is in the cache (its manifest comes last)."""
    return (folder_of(version) / _MANIFEST).is_file()


def installed() -> list[Installed]:
    """Return the engines in the cache."""
    return [entry(version) for version in PINNED if is_installed(version)]


def entry(version: str) -> Installed:
    """Describe `version` as installed."""
    return Installed(version=version, clickhouse=pin_of(version).clickhouse, path=folder_of(version))


def install(version: str, say: Callable[[str], None]) -> Installed:
    """Install `version` unless it is there and sound; `say` gets lines of progress. Raises EngineError, UsageError."""
    from netlab.servers import installer

    return installer.install(version, say)


def remove(version: str) -> None:
    """Remove `version` from the cache. Raises EngineError where it is not there, UsageError."""
    from netlab.servers import installer

    installer.remove(version)


def verify(version: str) -> None:
    """Hash every file of `version` and compare with the pin. Raises EngineError naming the first difference."""
    _require(version)
    folder, known = folder_of(version), read_manifest(version)
    found = describe(folder)
    for name in sorted(known.keys() | found.keys()):
        if name not in found:
            raise _unsound(version, f"{name} is missing")
        if name not in known:
            raise _unsound(version, f"{name} is not part of it")
        if found[name].sha256 != known[name].sha256:
            raise _unsound(version, f"{name} is not the file that was installed")
    if content(found) != wheel_of(version).content:
        raise _unsound(version, "its files are not the pinned ones")
    if found != known:
        _refresh(version, found)


def start(
    server: Server, host: Host, log_path: str, *, users: str | None = None, http_port: int | None = None
) -> ChildServer:
    """Start the engine that `server` names at `host` and return when it answers.

    `users` is the text of a users.xml. It must leave the user "default" without a password: the engine itself starts
    as that user. Raises EngineError when the engine is not installed or its files are not the pinned ones, ServerError
    when it does not start.
    """
    version = server.version or ""
    _require(version)
    if is_touched(version):
        verify(version)  # touched is not changed: the hashes decide
    config = {
        "address": host.address,
        "port": server.port,
        "http_port": http_port,
        "scratch": host.scratch,
        "users": users,
    }
    child = Path(__file__).with_name("engine_child.py")
    # -P: the child's own folder is no place for imports. No bytecode: the engine's folder stays as it was installed.
    argv = [sys.executable, "-P", str(child), json.dumps(config)]
    env = {
        **os.environ,
        "PYTHONPATH": str(folder_of(version)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": host.scratch,
    }
    running = ChildServer(host, server.label, server.port, log_path)
    running.version = pin_of(version).clickhouse
    return running.launch(argv, env=env, patience=_READY, remarks={-6: _ABORTED} if version == "26.7" else {})


def describe(folder: Path) -> dict[str, FileEntry]:
    """Hash every file below `folder` but the manifest. Keys are paths relative to `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)
    return {str(path.relative_to(folder)): _describe(path) for path in files}


def content(files: Mapping[str, FileEntry]) -> str:
    """Return the sha256 of the sorted lines "HASH  NAME\\n" of the wheel's files.

    The .dist-info folder is left out: pip writes some of it itself.
    """
    lines = [f"{f.sha256}  {name}\n" for name, f in files.items() if not name.partition("/")[0].endswith(".dist-info")]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def read_manifest(version: str) -> dict[str, FileEntry]:
    """Return the manifest of `version`. Raises EngineError."""
    try:
        raw = json.loads((folder_of(version) / _MANIFEST).read_text())
        return {name: FileEntry(**fields) for name, fields in raw.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _unsound(version, f"{_MANIFEST} cannot be read") from error


def write_manifest(folder: Path, files: Mapping[str, FileEntry]) -> None:
    """Write the manifest into `folder`, by rename."""
    fresh = folder / f".{_MANIFEST}.{os.getpid()}"
    fields = {name: {"size": f.size, "mtime": f.mtime, "sha256": f.sha256} for name, f in files.items()}
    fresh.write_text(json.dumps(fields, indent=1, sort_keys=True))
    fresh.rename(folder / _MANIFEST)


def is_touched(version: str) -> bool:
    """Return whether any file's size or time differs from the manifest. Quick: reads no file."""
    for name, known in read_manifest(version).items():
        try:
            status = (folder_of(version) / name).stat()
        except OSError:
            return True
        if (status.st_size, status.st_mtime_ns) != (known.size, known.mtime):
            return True
    return False


def _describe(path: Path) -> FileEntry:
    status = path.stat()
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        digest = "unreadable"
    return FileEntry(size=status.st_size, mtime=status.st_mtime_ns, sha256=digest)


def _require(version: str) -> None:
    pin_of(version)
    if not is_installed(version):
        raise EngineError(f"engine {version} is not installed", hint=f"netlab engine install {version}")


def _unsound(version: str, what: str) -> EngineError:
    return EngineError(
        f"engine {version}: {what}", hint=f"netlab engine remove {version} && netlab engine install {version}"
    )


def _refresh(version: str, files: Mapping[str, FileEntry]) -> None:
    """Take new file times over, so that the next start need not hash again. A read-only cache stays as it is."""
    try:
        write_manifest(folder_of(version), files)
    except OSError:
        return

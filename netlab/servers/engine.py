"""ClickHouse engines from the package index: installed once into the cache, checked, and started in a host.

Only `install` downloads. An engine's folder holds the wheel's files and a manifest of their hashes, made when the
wheel's own pinned hash had been checked by pip.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from netlab.errors import EngineError, UsageError
from netlab.hosts import Host
from netlab.scenario import Server
from netlab.servers.child import ChildServer
from netlab.units import seconds

_MANIFEST = "netlab-manifest.json"
_NEEDED = 900 * 10**6  # bytes: the wheel (180 MB) and its files (560 MB) at once, and room to breathe
_READY = seconds(60)
_PACKAGE = "chdb-core"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One engine: the package's version and its wheels' sha256 by machine."""

    package: str
    clickhouse: str
    wheels: tuple[tuple[str, str], ...]


PINNED = {
    "26.7": Pin(
        package="26.7.3",
        clickhouse="26.7.2.1",
        wheels=(("x86_64", "b10b96f9599fab42ba51d9be80333e1819782bdc8a91b2b26979149693ba431f"),),
    ),
    "26.9": Pin(
        package="26.9.0",
        clickhouse="26.9.2.1",
        wheels=(("x86_64", "707e2ec3fe0f7953bac97942eaeb7a1ed1d66b1e56ecef3f0aa2130f61f6e735"),),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An engine in the cache."""

    version: str
    clickhouse: str
    path: Path


def cache_folder() -> Path:
    """Return where engines live: $NETLAB_CACHE, else $XDG_CACHE_HOME/netlab, else ~/.cache/netlab."""
    named = os.environ.get("NETLAB_CACHE")
    if named:
        return Path(named) / "engines"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "netlab" / "engines"


def installed() -> list[Installed]:
    """Return the engines in the cache."""
    return [_entry(version) for version in PINNED if (_folder(version) / _MANIFEST).is_file()]


def install(version: str, say: Callable[[str], None]) -> Installed:
    """Install `version` unless it is there and sound; `say` gets progress. Raises EngineError, UsageError."""
    pin = _pin(version)
    wheel_hash = dict(pin.wheels).get(platform.machine())
    if wheel_hash is None:
        raise EngineError(f"engine {version}: no wheel is pinned for {platform.machine()}", hint="use an x86_64 machine")
    with _locked(version):
        if (_folder(version) / _MANIFEST).is_file() and _fault(version) is None:
            say(f"engine {version}: installed already")
            return _entry(version)
        _check_space(version)
        say(f"engine {version}: installing {_PACKAGE} {pin.package} (about 180 MB to download, 560 MB on disk)")
        _install_files(version, pin, wheel_hash)
        say(f"engine {version}: installed")
    return _entry(version)


def remove(version: str) -> None:
    """Remove `version` from the cache; one that is not there is an EngineError."""
    _pin(version)
    with _locked(version):
        if not _folder(version).exists():
            raise EngineError(f"engine {version} is not installed", hint="netlab engine list")
        _delete(_folder(version))


def verify(version: str) -> None:
    """Hash every file of `version` and compare with the manifest. Raises EngineError naming the first difference."""
    _require(version)
    manifest = _read_manifest(version)
    for name, entry in manifest.items():
        if _hash(_folder(version) / name) != entry["sha256"]:
            raise EngineError(
                f"engine {version}: {name} is not the file that was installed",
                hint=f"netlab engine remove {version} && netlab engine install {version}",
            )


def start(server: Server, host: Host, log_path: str, *, users: str | None = None) -> ChildServer:
    """Start the engine that `server` names at `host`; `users` is a users.xml. Raises EngineError, ServerError."""
    version = server.version or ""
    _require(version)
    fault = _fault(version)
    if fault is not None:
        verify(version)  # touched is not changed: the hashes decide
    config = {
        "address": host.address,
        "port": server.port,
        "http_port": None,
        "folder": f"{host.scratch}/clickhouse-{version}-{server.port}",
        "users": users,
    }
    child = Path(__file__).with_name("engine_child.py")
    argv = [sys.executable, "-P", str(child), json.dumps(config)]
    # No bytecode: the engine's folder stays as it was installed.
    env = {**os.environ, "PYTHONPATH": str(_folder(version)), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": host.scratch}
    return ChildServer(host, server.label, server.port, log_path).launch(argv, env=env, patience=_READY)


def _pin(version: str) -> Pin:
    if version not in PINNED:
        raise UsageError(f"no engine {version}", hint=f"pinned engines: {', '.join(PINNED)}")
    return PINNED[version]


def _entry(version: str) -> Installed:
    return Installed(version=version, clickhouse=PINNED[version].clickhouse, path=_folder(version))


def _folder(version: str) -> Path:
    return cache_folder() / version


def _require(version: str) -> None:
    _pin(version)
    if not (_folder(version) / _MANIFEST).is_file():
        raise EngineError(f"engine {version} is not installed", hint=f"netlab engine install {version}")


@contextmanager
def _locked(version: str) -> Iterator[None]:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{version}.lock").open("w")
    except OSError as error:
        raise EngineError(
            f"{folder}: {error.strerror}", hint="set NETLAB_CACHE to a folder that can be written"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second installer waits, then finds it done
        yield


def _check_space(version: str) -> None:
    free = shutil.disk_usage(cache_folder()).free
    if free < _NEEDED:
        raise EngineError(
            f"engine {version} needs {_NEEDED // 10**6} MB in {cache_folder()}; {free // 10**6} MB are free",
            hint="free some space, or set NETLAB_CACHE to another disk",
        )


def _install_files(version: str, pin: Pin, wheel_hash: str) -> None:
    folder = _folder(version)
    for stale in cache_folder().glob(f".{version}.new-*"):  # an installation that was killed; we hold the lock
        _delete(stale)
    fresh = Path(tempfile.mkdtemp(prefix=f".{version}.new-", dir=cache_folder()))
    try:
        requirement = fresh / "requirement.txt"
        requirement.write_text(f"{_PACKAGE}=={pin.package} --hash=sha256:{wheel_hash}\n")
        target = fresh / "files"
        _run_pip(version, requirement, target)
        manifest = {str(path.relative_to(target)): _describe(path) for path in _files(target)}
        (target / _MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
        if folder.exists():
            _delete(folder)
        target.rename(folder)
    except OSError as error:
        raise EngineError(f"engine {version}: {error.strerror} ({error.filename})", hint="see `df`, then run again") from error
    finally:
        _delete(fresh)


def _run_pip(version: str, requirement: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--no-compile", "--only-binary", ":all:", "--require-hashes"]
    command += ["--target", str(target), "-r", str(requirement)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise EngineError(
            f"engine {version}: pip could not install it: {lines[-1] if lines else 'no reason given'}",
            hint="check that pip works here (python -m pip download pip), then run again",
        )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)


def _describe(path: Path) -> dict[str, int | str]:
    status = path.stat()
    return {"size": status.st_size, "mtime": status.st_mtime_ns, "sha256": _hash(path)}


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"


def _read_manifest(version: str) -> dict[str, dict[str, int | str]]:
    path = _folder(version) / _MANIFEST
    try:
        manifest: dict[str, dict[str, int | str]] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EngineError(
            f"{path}: unreadable manifest", hint=f"netlab engine remove {version} && netlab engine install {version}"
        ) from error
    return manifest


def _fault(version: str) -> str | None:
    """Return the first file whose size or time differs from the manifest (quick), or None."""
    for name, entry in _read_manifest(version).items():
        try:
            status = (_folder(version) / name).stat()
        except OSError:
            return name
        if status.st_size != entry["size"] or status.st_mtime_ns != entry["mtime"]:
            return name
    return None


def _delete(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)

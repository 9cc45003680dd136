"""Put engines into the cache and take them out: by pip, hash-checked, whole or not at all. The only part that downloads."""

import contextlib
import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from netlab.errors import EngineError
from netlab.servers import engine

_PACKAGE = "chdb-core"
_NEEDED = 900 * 10**6  # bytes: the wheel (180 MB) and its files (560 MB) at once, and room to breathe


def install(version: str, say: Callable[[str], None]) -> engine.Installed:
    """Install `version` unless it is there and sound. Two at once: the second waits, then finds it done."""
    wheel = engine.wheel_of(version)
    with _locked(version):
        if engine.is_installed(version):
            with contextlib.suppress(EngineError):
                if engine.is_touched(version):
                    engine.verify(version)
                say(f"engine {version}: installed already")
                return engine.entry(version)
            say(f"engine {version}: its files are not the installed ones; installing again")
        _check_space(version)
        package = engine.pin_of(version).package
        say(f"engine {version}: installing {_PACKAGE} {package} (about 180 MB to download, 560 MB on disk)")
        _install(version, package, wheel)
        say(f"engine {version}: installed")
    return engine.entry(version)


def remove(version: str) -> None:
    """Remove `version` from the cache. Raises EngineError where it is not there."""
    engine.pin_of(version)
    with _locked(version):
        if not engine.folder_of(version).exists():
            raise EngineError(f"engine {version} is not installed", hint="netlab engine list")
        _delete(engine.folder_of(version))


@contextmanager
def _locked(version: str) -> Iterator[None]:
    folder = engine.cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{version}.lock").open("w")
    except OSError as error:
        raise EngineError(f"{folder}: {error.strerror}", hint="set NETLAB_CACHE to a folder that can be written") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_space(version: str) -> None:
    free = shutil.disk_usage(engine.cache_folder()).free
    if free < _NEEDED:
        raise EngineError(
            f"engine {version} needs {_NEEDED // 10**6} MB in {engine.cache_folder()}; {free // 10**6} MB are free",
            hint="free some space, or set NETLAB_CACHE to another disk",
        )


def _install(version: str, package: str, wheel: engine.Wheel) -> None:
    cache, folder = engine.cache_folder(), engine.folder_of(version)
    for stale in cache.glob(f".{version}.new-*"):  # an installation that was killed; we hold the lock
        _delete(stale)
    fresh = Path(tempfile.mkdtemp(prefix=f".{version}.new-", dir=cache))
    try:
        requirement = fresh / "requirement.txt"
        requirement.write_text(f"{_PACKAGE}=={package} --hash=sha256:{wheel.sha256}\n")
        target = fresh / "files"
        _run_pip(version, requirement, target)
        files = engine.describe(target)
        if engine.content(files) != wheel.content:
            raise EngineError(f"engine {version}: the unpacked files are not the pinned ones", hint="check the disk")
        engine.write_manifest(target, files)
        _delete(folder)
        target.rename(folder)
    except OSError as error:
        raise EngineError(f"engine {version}: {error.strerror} ({error.filename})", hint="see df, then run again") from error
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


def _delete(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)

"""Put engines into the cache and take them out: the ordinary pip, checked by hash, into place by one rename."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from netlab.errors import EngineError
from netlab.servers import engine
from netlab.servers.engine import Installed

_PACKAGE = "chdb-core"
_NEEDED = 900 * 10**6  # bytes: the wheel (180 MB) and its files (570 MB) at once, and room to breathe
_TICK = 5  # seconds between lines of progress

Say = Callable[[str], None]


def install(version: str, say: Say) -> Installed:
    """Install `version` unless it is there and sound. Raises EngineError, UsageError."""
    wheel = engine.wheel_of(version)
    with _locked(version, say):
        if _is_sound(version):
            say(f"engine {version}: installed already")
            return engine.entry(version)
        _check_space(version)
        package = f"{_PACKAGE} {engine.pin_of(version).package}"
        say(f"engine {version}: installing {package} (180 MB to fetch, 570 MB on disk)")
        _install_files(version, wheel, say)
        say(f"engine {version}: installed")
    return engine.entry(version)


def remove(version: str) -> None:
    """Remove `version` from the cache, a half-made or unsound one too. Raises EngineError, UsageError."""
    engine.pin_of(version)
    folder = engine.folder_of(version)
    if not folder.exists():
        raise EngineError(f"engine {version} is not installed", hint="netlab engine list")
    with _locked(version, lambda _text: None):
        try:
            _delete(folder)
        except OSError as error:
            raise EngineError(
                f"engine {version}: {error.strerror} ({error.filename})", hint="remove it by hand"
            ) from error


def _is_sound(version: str) -> bool:
    if not engine.is_installed(version):
        return False
    try:
        if engine.is_touched(version):
            engine.verify(version)
    except EngineError:
        return False
    return True


@contextmanager
def _locked(version: str, say: Say) -> Iterator[None]:
    folder = engine.cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{version}.lock").open("w")
    except OSError as error:
        raise EngineError(
            f"{folder}: {error.strerror}", hint="set NETLAB_CACHE to a folder that can be written"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"engine {version}: another installation is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_space(version: str) -> None:
    free = shutil.disk_usage(engine.cache_folder()).free
    if free < _NEEDED:
        raise EngineError(
            f"engine {version} needs {_NEEDED // 10**6} MB in {engine.cache_folder()}; {free // 10**6} MB are free",
            hint="free some space, or set NETLAB_CACHE to another disk",
        )


def _install_files(version: str, wheel: engine.Wheel, say: Say) -> None:
    folder, cache = engine.folder_of(version), engine.cache_folder()
    try:
        for stale in cache.glob(f".{version}.new-*"):  # an installation that was killed; we hold the lock
            _delete(stale)
        fresh = Path(tempfile.mkdtemp(prefix=f".{version}.new-", dir=cache))
        try:
            target = fresh / "files"
            _run_pip(version, wheel, fresh, say)
            files = engine.describe(target)
            if engine.content(files) != wheel.content:
                raise EngineError(f"engine {version}: pip unpacked other files than the pinned ones", hint="run again")
            engine.write_manifest(target, files)
            target.chmod(0o755)  # whatever the umask: another user's cache may be shared
            _delete(folder)
            target.rename(folder)
        finally:
            _delete(fresh)
    except OSError as error:
        raise EngineError(
            f"engine {version}: {error.strerror} ({error.filename})", hint="see `df`, then run again"
        ) from error


def _run_pip(version: str, wheel: engine.Wheel, fresh: Path, say: Say) -> None:
    requirement = fresh / "requirement.txt"
    requirement.write_text(f"{_PACKAGE}=={engine.pin_of(version).package} --hash=sha256:{wheel.sha256}\n")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--no-compile", "--only-binary", ":all:", "--require-hashes"]
    command += ["--target", str(fresh / "files"), "-r", str(requirement)]
    # pip unpacks in TMPDIR and moves: here the move is a rename, and /tmp may be small. PIP_USER clashes with --target.
    env = {**os.environ, "TMPDIR": str(fresh), "PIP_USER": "0"}
    log = fresh / "pip.log"
    with log.open("wb") as out:
        pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = pip.wait(_TICK)
                break
            say(f"engine {version}: {_size(fresh) // 10**6} MB so far")
    finally:
        if pip.poll() is None:
            pip.kill()
            pip.wait()
    if status != 0:
        raise EngineError(
            f"engine {version}: pip could not install it: {_reason(log.read_text(errors='replace'))}",
            hint="check that `python -m pip download --no-deps chdb-core` works here, then run again",
        )


def _reason(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no reason given"])[-1]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves files while we look
            total += path.lstat().st_size
    return total


def _delete(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)

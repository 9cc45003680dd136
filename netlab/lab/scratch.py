"""A lab's private mounts: its own /proc, and a tmpfs that vanishes with it. The host's mounts are never changed."""

import os
import sys
from pathlib import Path

from netlab.errors import LabError
from netlab.lab import syscalls
from netlab.lab.syscalls import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_REC

# Folders that exist on most distributions and are empty on most machines: one of them carries the tmpfs.
_CANDIDATES = (
    "/media",
    "/srv",
    "/mnt",
    "/var/opt",
    "/opt",
    "/var/local",
    "/var/empty",
    "/usr/local/src",
    "/run",
    "/tmp",
)
_NAMES = "/run/netns"


def prepare_mounts() -> tuple[str, list[str]]:
    """Make mounts private, mount /proc for the new PID namespace and a tmpfs for scratch; return its path and notes.

    Raises OSError, LabError where no folder will do.
    """
    notes: list[str] = []
    syscalls.mount("none", "/", None, MS_REC | MS_PRIVATE)
    try:
        syscalls.mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError as error:
        # A container that masks parts of /proc forbids a fresh one; the outer one serves too.
        notes.append(f"/proc is the outer one ({error.strerror})")
    for candidate in _CANDIDATES:
        if not _is_free(candidate):
            continue
        try:
            syscalls.mount("netlab", candidate, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        except OSError as error:
            notes.append(f"no tmpfs on {candidate} ({error.strerror})")
            continue
        return candidate, notes
    reasons = f" ({'; '.join(notes)})" if notes else ""
    raise LabError(
        f"no folder can carry the lab's scratch{reasons}",
        hint="one of these must exist and be empty, or be made: " + ", ".join(_CANDIDATES),
    )


def name_namespaces(namespaces: dict[str, int]) -> None:
    """Give the namespaces names inside the lab, so that `ip netns exec server ...` works there."""
    if not Path(_NAMES).is_dir():
        # /run is the host's: a folder there would outlive us, so /run gets a tmpfs of our own first.
        syscalls.mount("netlab", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        Path(_NAMES).mkdir()
    else:
        syscalls.mount("netlab", _NAMES, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for name, descriptor in namespaces.items():
        target = Path(_NAMES) / name
        target.touch()
        syscalls.mount(f"/proc/self/fd/{descriptor}", str(target), None, MS_BIND)


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return "/"


def _is_free(candidate: str) -> bool:
    folder = Path(candidate)
    ours = [_current_folder(), sys.prefix, sys.base_prefix, str(Path(__file__).parent), os.environ.get("HOME", "/")]
    if any(str(path) == candidate or str(path).startswith(candidate + "/") for path in ours):
        return False
    try:
        return folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    except OSError:
        return False

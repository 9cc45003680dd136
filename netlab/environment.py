"""The machine and the tools that a result depends on, for its record."""

import os
import platform
import shutil
import subprocess
from importlib import metadata

from netlab import __version__
from netlab.record import Environment

_PACKAGES = ("pyroute2", "scapy", "pyshark", "click", "rich", "pandas", "matplotlib", "msgspec")
# A tool that does not answer --version within this many seconds is recorded as present, without a version.
_PATIENCE = 10


def environment() -> Environment:
    """Return what this machine and this installation are. Takes some 0.3 s: tshark is asked for its version."""
    return Environment(
        netlab=__version__,
        python=platform.python_version(),
        kernel=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        tools={name: version for name in ("tshark",) if (version := _tool_version(name)) is not None},
        packages={name: version for name in _PACKAGES if (version := _package_version(name)) is not None},
    )


def _tool_version(name: str) -> str | None:
    path = shutil.which(name)
    if path is None:
        return None
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    words = answer.stdout.partition("\n")[0].split()
    return next((word.rstrip(".") for word in words if word[:1].isdigit()), "unknown")


def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

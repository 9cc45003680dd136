"""What this machine lets a lab be: the facts behind `netlab doctor`, each with how to mend it."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from netlab.errors import LabError
from netlab.lab.lab import Lab
from netlab.scenario import Backend, Link

_CONTROLS = "/proc/sys/net/ipv4/tcp_available_congestion_control"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing: whether it is had, what was found, and what to do where it is not. `needed`: nothing goes without."""

    name: str
    had: bool
    found: str
    mend: str = ""
    needed: bool = False


def check_lab() -> list[Check]:
    """Build a small lab for a moment and say what came of it."""
    try:
        with Lab(Link()) as lab:
            facts = lab.facts
    except LabError as error:
        return [Check(name="lab", had=False, found=error.what, mend=error.hint, needed=True)]
    scheduling = facts.emulation.get("scheduling", "the kernel's netem")
    punctual = "FIFO" in scheduling or facts.backend is Backend.NETEM
    made = f"made with {facts.privileges} privileges, delays by {facts.backend.value}"
    return [
        Check(name="lab", had=True, found=made, needed=True),
        Check(
            name="netem",
            had=facts.backend is Backend.NETEM,
            found="the kernel has sch_netem" if facts.backend is Backend.NETEM else "the kernel has no sch_netem",
            mend="not needed: the relay serves; for netem install the kernel's extra modules",
        ),
        Check(
            name="punctual delays",
            had=punctual,
            found=scheduling,
            mend="run as root for real-time scheduling; without it a busy machine voids more queries",
        ),
    ]


def check_congestion() -> Check:
    """Say which congestion controls a lab can choose."""
    try:
        names = Path(_CONTROLS).read_text().split()
    except OSError as error:
        return Check(name="congestion control", had=False, found=str(error.strerror), mend="mount /proc", needed=True)
    missing = [name for name in ("cubic", "reno", "bbr") if name not in names]
    return Check(
        name="congestion control",
        had=not missing,
        found=" ".join(names),
        mend=f"load as root: modprobe {' '.join('tcp_' + name for name in missing)}",
    )


def check_processors() -> Check:
    """Say whether the delay line can have a processor beside the server's."""
    count = len(os.sched_getaffinity(0))
    return Check(
        name="processors",
        had=count > 1,
        found=str(count),
        mend="with one processor, expect void queries; use two or more",
    )


def check_python() -> Check:
    """Say whether a virtual environment and pip are there for engines."""
    done = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
    found = done.stdout.split(" from ")[0] if done.returncode == 0 else "no pip"
    return Check(name="pip", had=done.returncode == 0, found=found, mend="apt-get install python3-pip python3-venv")

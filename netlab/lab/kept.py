"""Named labs that stay for looking round by hand: up, exec, down, list, clean.

A kept lab is an agent without an owner. Its control socket lives in the user's runtime folder; nothing else of it is
outside its own namespaces, so a killed one leaves a dead socket, which `clean` reaps.
"""

import builtins
import contextlib
import os
import re
import socket
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from netlab.errors import LabError, UsageError
from netlab.lab.channel import close_all
from netlab.lab.enter import run_inside
from netlab.lab.lab import Remote
from netlab.lab.plan import Place
from netlab.lab.start import Command
from netlab.lab.wiring import BuildRequest
from netlab.scenario import Link, Tcp

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}", re.ASCII)
_SOCKET = ".lab"
_ANSWER_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A kept lab: its name, what delays packets, and its ends' addresses."""

    name: str
    backend: str
    client: str
    server: str


def up(name: str, link: Link, server_tcp: Tcp, client_tcp: Tcp) -> Kept:
    """Build a lab called `name` and leave it. Raises UsageError when the name is taken, LabError."""
    path = _path(name)
    if _answers(path):
        raise UsageError(f"lab {name} is up already", hint=f"netlab down {name}")
    path.unlink(missing_ok=True)
    request = BuildRequest(link=link, server_tcp=server_tcp, client_tcp=client_tcp)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(path))
            listening.listen(8)
            _start(listening, path)
        with _connected(name) as remote:
            remote.ask("build", request=request.encode(), name=name)
        return describe(name)
    except BaseException:
        # Half a lab is nobody's: also after Ctrl-C.
        with contextlib.suppress(LabError, UsageError):
            down(name)
        path.unlink(missing_ok=True)
        raise


def describe(name: str) -> Kept:
    """Return what the lab `name` is. Raises UsageError when there is none."""
    with _connected(name) as remote:
        built, descriptors = remote.ask("about")
    close_all(descriptors)
    ends = built["ends"]
    return Kept(name=name, backend=built["backend"], client=ends["client"]["address"], server=ends["server"]["address"])


def exec(name: str, place: str, argv: tuple[str, ...], stdio: tuple[int, int, int] = (0, 1, 2)) -> int:
    """Run `argv` in the lab `name` with the descriptors `stdio`; return its exit code (128+N for signal N).

    Raises UsageError when there is no such lab or place, LabError.
    """
    if place not in [*Place]:
        raise UsageError(f'a lab has no place "{place}"', hint=", ".join(Place))
    with _connected(name) as remote:
        kinds, descriptors = remote.ask("enter", place=place)
    command = Command(argv=[*argv], env=dict(os.environ), folder=os.getcwd(), descriptors=stdio)
    try:
        return run_inside([*zip(kinds, descriptors, strict=True)], command)
    finally:
        close_all(descriptors)


def down(name: str) -> None:
    """Take the lab `name` down. Raises UsageError when there is none."""
    with _connected(name) as remote:
        remote.ask("end")
        remote.wait_end()
    _path(name).unlink(missing_ok=True)


def list() -> builtins.list[Kept]:
    """Return the kept labs that live."""
    return [describe(path.name.removesuffix(_SOCKET)) for path in _sockets() if _answers(path)]


def clean() -> builtins.list[str]:
    """Remove what dead labs left; return their names."""
    dead = [path for path in _sockets() if not _answers(path)]
    for path in dead:
        path.unlink(missing_ok=True)
    return [path.name.removesuffix(_SOCKET) for path in dead]


def _start(listening: socket.socket, path: Path) -> None:
    """Start an agent that no terminal's hang-up and no parent's end takes down, but the loss of its name does."""
    name = os.open(path, os.O_PATH | os.O_CLOEXEC)
    arguments = ["--control", str(listening.fileno()), "--name", str(name)]
    subprocess.Popen(
        [sys.executable, "-P", "-m", "netlab.lab.agent", *arguments],
        pass_fds=[listening.fileno(), name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env={key: value for key, value in os.environ.items() if key != "NETLAB_PASSWORD"},
    )
    os.close(name)


@contextlib.contextmanager
def _connected(name: str):  # type: ignore[no-untyped-def]
    path = _path(name)
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.settimeout(_ANSWER_S)
    with contextlib.closing(Remote(control)) as remote:
        try:
            control.connect(str(path))
        except OSError as error:
            raise UsageError(f"no lab called {name}", hint=f"netlab up {name}") from error
        yield remote


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as attempt:
        attempt.settimeout(_ANSWER_S)
        try:
            attempt.connect(str(path))
        except OSError:
            return False
        return True


def _sockets() -> builtins.list[Path]:
    return sorted(_folder().glob(f"*{_SOCKET}"))


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(f'no lab can be called "{name}"', hint="letters, digits, dots, dashes; at most 41")
    return _folder() / f"{name}{_SOCKET}"


def _folder() -> Path:
    """Return the user's own folder for control sockets: nobody else may read or enter it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "netlab" if runtime else Path(f"/tmp/netlab-{os.geteuid()}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise LabError(f"{folder}: {error.strerror}", hint="set XDG_RUNTIME_DIR to a folder of your own") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise LabError(f"{folder} is not ours alone", hint="remove it, or set XDG_RUNTIME_DIR to a folder of your own")
    return folder

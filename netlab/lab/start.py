"""Start programs: fork, prepare, exec; the parent learns why a program could not be started."""

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from netlab.errors import LabError
from netlab.lab import syscalls


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start. `descriptors` become 0, 1, 2, ... in order; None stands for /dev/null. No other one stays open."""

    argv: list[str]
    env: dict[str, str]
    folder: str | None = None
    descriptors: tuple[int | None, ...] = (None, None, None)


def spawn(namespace: int, command: Command) -> int:
    """Start `command` in the network namespace `namespace`; return its pid. It dies with us. Raises LabError."""

    def prepare() -> None:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        syscalls.setns(namespace, syscalls.CLONE_NEWNET)
        restore_signals()
        os.setsid()  # Ctrl-C at the owner's terminal is the owner's to handle
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)

    return fork_exec(command, prepare)


def fork_exec(command: Command, prepare: Callable[[], None]) -> int:
    """Fork, call `prepare` in the child, exec; return the pid. Raises LabError with the child's reason."""
    if not command.argv:
        raise LabError("start: there is no command", hint="name a program")
    reason_read, reason_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            # Out of the way of the numbers to come.
            reason_write = fcntl.fcntl(reason_write, fcntl.F_DUPFD_CLOEXEC, len(command.descriptors))
            os.write(reason_write, "\0".join(_become(command, prepare)).encode())
        finally:
            os._exit(127)
    os.close(reason_write)
    with os.fdopen(reason_read, "rb") as pipe:
        said = pipe.read().decode()
    if said:
        os.waitpid(pid, 0)
        reason, _, hint = said.partition("\0")
        raise LabError(f"start {command.argv[0]}: {reason}", hint=hint)
    return pid


def restore_signals() -> None:
    """Let signals do what they do by default: an exec keeps those that are ignored."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def _become(command: Command, prepare: Callable[[], None]) -> tuple[str, str]:
    """Exec; return the reason and a hint when that cannot be."""
    try:
        prepare()
        _place(command.descriptors)
    except OSError as error:
        return error.strerror or str(error), "is the lab going down?"
    try:
        if command.folder is not None:
            os.chdir(command.folder)
    except OSError as error:
        return f"{command.folder}: {error.strerror}", "a folder under the lab's scratch or home is hidden inside"
    try:
        os.execvpe(command.argv[0], command.argv, command.env)
    except OSError as error:
        return error.strerror or str(error), "check that the program exists and may be executed"
    except ValueError as error:  # a NUL, or a "=" in a variable's name
        return str(error), "check the arguments and the environment"


def _place(descriptors: tuple[int | None, ...]) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    wanted = [null if descriptor is None else descriptor for descriptor in descriptors]
    # First out of the way of the numbers to come, then into place.
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, len(wanted)) for descriptor in wanted]
    for number, descriptor in enumerate(moved):
        os.dup2(descriptor, number)
    # What stays above is closed by the exec, also what our own parent had left open.
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= len(wanted):
            with contextlib.suppress(OSError):  # the listing's own is closed by now
                os.set_inheritable(int(name), False)

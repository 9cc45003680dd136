"""Run a program of the caller's own terminal in a lab's namespaces: job control and Ctrl-C work as in any shell.

Between the caller and the program stands a process that enters the namespaces: only a single-threaded process may
enter a user namespace, and only the children of one that entered a PID namespace are in it.
"""

import json
import os
import select
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from netlab.errors import LabError
from netlab.lab import syscalls
from netlab.lab.start import Command, fork_exec, restore_signals
from netlab.lab.syscalls import CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS

# In this order descriptors of them are handed over. The user namespace is first: the rights to enter the others are in
# it. It is left out where the lab has none of its own.
KINDS = {"user": CLONE_NEWUSER, "pid": CLONE_NEWPID, "uts": CLONE_NEWUTS, "net": CLONE_NEWNET, "mnt": CLONE_NEWNS}
_POLITE_MS = 1000


def run_inside(namespaces: Sequence[tuple[str, int]], command: Command) -> int:
    """Run `command` in `namespaces` (kind, descriptor); return its exit code, 128+N for signal N. Raises LabError.

    A KeyboardInterrupt ends the program. From a terminal there is none while it runs: Ctrl-C is the program's.
    """
    said_read, said_write = os.pipe()
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(said_read)
            _stand_between(owner, namespaces, command, said_write)
        finally:
            os._exit(127)
    os.close(said_write)
    with ExitStack() as stack:
        pipe = stack.enter_context(os.fdopen(said_read, "rb"))
        between = os.pidfd_open(pid)
        stack.callback(os.close, between)
        stack.callback(os.waitpid, pid, 0)
        stack.callback(signal.pidfd_send_signal, between, signal.SIGKILL)
        with _terminal_is_the_programs(command.descriptors[0]):
            said = json.loads(pipe.readline() or "{}")
            if "error" in said:
                raise LabError(said["error"], hint=said["hint"])
            try:
                status = pipe.readline()
            except KeyboardInterrupt:
                _end_politely(said.get("pid"), pipe.fileno())
                raise
    if not status:
        raise LabError(f"run {command.argv[0]}: its process was killed", hint="run again")
    return int(status)


def _stand_between(owner: int, namespaces: Sequence[tuple[str, int]], command: Command, said: int) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        for kind, descriptor in namespaces:
            syscalls.setns(descriptor, KINDS[kind])
        # After them: a change of credentials forgets it.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:
            return
        pid = fork_exec(command, _prepare)
    except LabError as error:
        os.write(said, json.dumps({"error": error.what, "hint": error.hint}).encode())
        return
    except OSError as error:
        os.write(said, json.dumps({"error": f"enter the lab: {error.strerror}", "hint": "is it going down?"}).encode())
        return
    os.write(said, json.dumps({"pid": pid}).encode() + b"\n")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(said, str(code if code >= 0 else 128 - code).encode())


def _prepare() -> None:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    restore_signals()


def _end_politely(pid: int | None, finished: int) -> None:
    if pid is None:
        return
    try:
        os.kill(pid, signal.SIGTERM)
        select.select([finished], (), (), _POLITE_MS / 1000)
    except ProcessLookupError:
        return


@contextmanager
def _terminal_is_the_programs(stdin: int | None) -> Iterator[None]:
    """Ignore the keyboard's signals meanwhile, as a shell does: they reach the program too, and it decides."""
    if stdin is None or not os.isatty(stdin) or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""The process that owns a lab's namespaces: `python -P -m netlab.lab.agent`, started by `Lab` and by `kept.up`.

Two processes. The holder is single-threaded: it unshares, forks PID 1 of the new PID namespace, and watches the
owner; when the owner is gone it kills PID 1. PID 1 serves requests over a socket, and everything that it starts is in
its PID namespace. So whatever is killed, by whatever signal, the kernel takes down every process, namespace and link.
"""

import argparse
import os
import select
import signal
import socket
import sys
from typing import NoReturn

from netlab.errors import LabError
from netlab.lab import channel, syscalls
from netlab.lab.syscalls import CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS

_FORBIDDEN_HINT = (
    "allow unprivileged user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0, "
    "kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0; in a container, its seccomp profile), "
    "or run netlab as root"
)


def main() -> None:
    """Hold the lab until its owner leaves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", type=int, required=True, help="a SOCK_SEQPACKET socket: connected, or listening")
    parser.add_argument("--name", type=int, help="a kept lab's socket file (O_PATH); the lab ends when it is removed")
    parser.add_argument("--parent", type=int, help="the owner's pid; the lab ends with it")
    arguments = parser.parse_args()
    control = socket.socket(fileno=arguments.control)
    for descriptor in (arguments.control, arguments.name):
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
    watched = _watch_parent(arguments.parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the owner decides when the lab ends
    try:
        privileges = _isolate()
    except OSError as error:
        _refuse(control, _forbidden(error))
    lifeline_read, lifeline_write = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(lifeline_write)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        # The machine's name would be in every ProfileEvents packet, in captures that people share, and in their sizes.
        socket.sethostname("netlab")
        _serve(control, privileges, lifeline_read, arguments.name)
    os.close(lifeline_read)
    control.close()
    _hold(init, watched)


def _watch_parent(parent: int | None) -> int | None:
    if parent is None:
        return None
    descriptor = os.pidfd_open(parent)
    if os.getppid() != parent:  # the owner died before we looked; the pid may be another's already
        sys.exit(0)
    return descriptor


def _isolate() -> str:
    """Unshare into new mount and PID namespaces (as a plain user: within a new user namespace); say which."""
    rest = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS
    if os.geteuid() == 0:
        try:
            syscalls.unshare(rest)
        except PermissionError:
            pass  # a container's root: it may still make a user namespace
        else:
            return "root"
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(CLONE_NEWUSER | rest)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {uid} 1")
    _write("/proc/self/gid_map", f"0 {gid} 1")
    return "user namespace"


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _serve(control: socket.socket, privileges: str, lifeline: int, name: int | None) -> NoReturn:
    from netlab.lab.service import Service

    try:
        service = Service(control, privileges, lifeline, name)
    except LabError as error:
        _refuse(control, error)
    except OSError as error:  # some kernels allow the namespaces and forbid what is done in them
        _refuse(control, _forbidden(error))
    service.run()
    os._exit(0)


def _forbidden(error: OSError) -> LabError:
    return LabError(f"make a lab's namespaces: {error.strerror or error}", hint=_FORBIDDEN_HINT)


def _refuse(control: socket.socket, error: LabError) -> NoReturn:
    if control.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        control, _address = control.accept()
    # The request is taken first: a socket that is closed with unread data resets the other end, which then never sees
    # the answer.
    channel.receive(control)
    channel.send(control, {"id": None, "error": error.what, "hint": error.hint})
    sys.exit(4)


def _hold(init: int, watched: int | None) -> NoReturn:
    waiting = select.poll()
    own = os.pidfd_open(init)
    waiting.register(own, select.POLLIN)
    if watched is not None:
        waiting.register(watched, select.POLLIN)
    while True:
        for descriptor, _events in waiting.poll():
            if descriptor == watched:
                os.kill(init, signal.SIGKILL)
            os.waitpid(init, 0)
            sys.exit(0)


if __name__ == "__main__":
    main()

"""A host that is this machine's loopback: servers can be tested without a lab."""

import fcntl
import os
import signal
import socket as sockets
from contextlib import ExitStack


class LoopbackChild:
    """A process of ours (implements `hosts.Child`)."""

    def __init__(self, pid):
        self.pid = pid
        self._status = None
        self._pidfd = os.pidfd_open(pid)

    def poll(self):
        return self.wait(0)

    def wait(self, timeout):
        import select

        if self._status is None:
            poller = select.poll()
            poller.register(self._pidfd, select.POLLIN)
            if poller.poll(timeout / 1e6):
                self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                os.close(self._pidfd)
        return self._status

    def terminate(self):
        self._signal(signal.SIGTERM)

    def kill(self):
        self._signal(signal.SIGKILL)

    def _signal(self, number):
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)


class LoopbackHost:
    """This machine as a host (implements what servers need of `hosts.Host`)."""

    name = "server"
    address = "127.0.0.1"
    interface = "lo"

    def __init__(self, scratch):
        self.scratch = str(scratch)

    def spawn(self, argv, *, env=None, cwd=None, stdin=None, stdout=None, stderr=None, fds=()):
        with ExitStack() as stack:
            null = os.open(os.devnull, os.O_RDWR)
            stack.callback(os.close, null)
            # Above every target, so that no dup2 overwrites a source.
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in fds]
            for fd in high:
                stack.callback(os.close, fd)
            standard = [null if fd is None else fd for fd in (stdin, stdout, stderr)]
            actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate((*standard, *high))]
            environment = dict(os.environ if env is None else env)
            return LoopbackChild(os.posix_spawn(argv[0], list(argv), environment, file_actions=actions))

    def socket(self, family, kind, proto=0):
        return sockets.socket(family, kind, proto)


def free_port():
    """Return a TCP port of loopback that nobody uses just now."""
    with sockets.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]

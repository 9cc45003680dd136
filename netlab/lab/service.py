"""PID 1 of a lab: answers requests for namespaces, sockets and processes.

A request is {"do": NAME, ...}; the answer is {"ok": ...} or {"error": ..., "hint": ...}, with descriptors beside it.
Descriptors are the interface: a socket made here in a lab's namespace is used by the owner, in its own process.
"""

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from netlab.errors import LabError
from netlab.lab import channel, enter, syscalls
from netlab.lab.plan import INTERFACE, Place
from netlab.lab.relay_process import Starting
from netlab.lab.scratch import prepare_mounts
from netlab.lab.start import Command, spawn
from netlab.lab.wiring import BuildRequest
from netlab.scenario import Backend

_Result = TypeVar("_Result")
_Answer = tuple[Any, tuple[int, ...]]

_SOL_PACKET = 263
_SO_TIMESTAMPNS = 35
_ETH_P_ALL = 0x0003
_UNBUILT_S = 60.0


class Service:
    """Serves one owner (a lab that ends with it) or many clients (a kept lab)."""

    def __init__(self, control: socket.socket, privileges: str, lifeline: int, name: int | None = None) -> None:
        self._control = control
        self._kept = bool(control.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        self._lifeline = lifeline
        self._name = name
        self._privileges = privileges
        self._namespaces: dict[str, int] = {}
        self._statuses: dict[int, int | None] = {}
        self._scratch, self._notes = prepare_mounts()
        self._does: dict[str, Callable[[dict[str, Any], list[int]], _Answer]] = {
            "build": self._build,
            "about": self._about,
            "socket": self._socket,
            "packet": self._packet,
            "spawn": self._spawn,
            "enter": self._enter,
            "status": self._status,
            "end": self._end,
        }
        self._description: dict[str, Any] = {}
        self._shared: tuple[int, ...] = ()

    def run(self) -> None:
        """Serve until the owner leaves, the holder dies, or a client says "end"."""
        waiting = select.poll()
        clients: dict[int, socket.socket] = {self._control.fileno(): self._control}
        waiting.register(self._control, select.POLLIN)
        waiting.register(self._lifeline, select.POLLIN)
        started = time.monotonic()
        while not self._is_orphan(time.monotonic() - started):
            for descriptor, _events in waiting.poll(1000):
                if descriptor == self._lifeline:
                    return
                client = clients[descriptor]
                if client is self._control and self._kept:
                    peer, _address = client.accept()
                    clients[peer.fileno()] = peer
                    waiting.register(peer, select.POLLIN)
                elif not self._serve(client):
                    waiting.unregister(descriptor)
                    clients.pop(descriptor).close()
                    if not self._kept:
                        return
            self._reap()

    def _is_orphan(self, age: float) -> bool:
        """Whether a kept lab can no longer be reached by its name, or was never built (its builder was killed)."""
        if self._name is None:
            return False
        return os.fstat(self._name).st_nlink == 0 or (not self._description and age > _UNBUILT_S)

    def _serve(self, client: socket.socket) -> bool:
        number: int | None = None  # of a request that could not be read
        do, descriptors, passed = "request", list[int](), tuple[int, ...]()
        try:
            received = channel.receive(client)
            if received is None:
                return False
            message, descriptors = received
            number, do = message["id"], message["do"]
            value, passed = self._does[do](message, descriptors)
            answer = {"ok": value}
        except LabError as error:
            answer = {"error": error.what, "hint": error.hint}
        except OSError as error:
            answer = {"error": f"{do}: {error.strerror or error}", "hint": ""}
        finally:
            channel.close_all(descriptors)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            channel.send(client, {"id": number, **answer}, passed)
        if do not in ("build", "about"):
            channel.close_all(list(passed))
        if do == "end":
            os._exit(0)
        return True

    # -- requests -------------------------------------------------------------------------------------------------

    def _build(self, message: dict[str, Any], _descriptors: list[int]) -> _Answer:
        wanted = BuildRequest.decode(message["request"])
        for place in Place:
            self._namespaces[place] = in_thread(_new_namespace)
        relay: Starting | None = None
        if wanted.link.backend is not Backend.NETEM:
            # Its interpreter starts while pyroute2 is being imported and the interfaces are made.
            relay = Starting(wanted.link, self._namespaces[Place.MIDDLE])
        from netlab.lab import kernel

        built, shared = kernel.build(wanted, self._namespaces, relay)
        self._shared = shared
        self._description = {
            **built,
            "privileges": self._privileges,
            "scratch": self._scratch,
            "notes": self._notes,
            "name": message.get("name", ""),
        }
        if self._kept:
            from netlab.lab.scratch import name_namespaces

            name_namespaces(self._namespaces)
        return self._description, shared

    def _about(self, _message: dict[str, Any], _descriptors: list[int]) -> _Answer:
        return self._description, self._shared

    def _socket(self, message: dict[str, Any], _descriptors: list[int]) -> _Answer:
        def make() -> int:
            return socket.socket(message["family"], message["kind"], message["proto"]).detach()

        return None, (self._within(message["place"], make),)

    def _packet(self, message: dict[str, Any], _descriptors: list[int]) -> _Answer:
        def make() -> int:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            force = 33  # SO_RCVBUFFORCE: net.core.rmem_max does not bound it, where we may
            try:
                made.setsockopt(socket.SOL_SOCKET, force, message["receive_buffer"])
            except PermissionError:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, message["receive_buffer"])
            made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            made.bind((INTERFACE, _ETH_P_ALL))
            return made.detach()

        return None, (self._within(message["place"], make),)

    def _spawn(self, message: dict[str, Any], descriptors: list[int]) -> _Answer:
        given = list(descriptors)
        stdio = [given.pop(0) if present else None for present in message["stdio"]]
        command = Command(argv=message["argv"], env=message["env"], folder=message["cwd"], descriptors=(*stdio, *given))
        pid = spawn(self._namespaces[message["place"]], command)
        self._statuses[pid] = None
        return pid, (os.pidfd_open(pid),)

    def _enter(self, message: dict[str, Any], _descriptors: list[int]) -> _Answer:
        """Hand over the namespaces, for a process of the client's that enters them by itself."""
        own = [kind for kind in enter.KINDS if kind != "user" or self._privileges != "root"]
        opened = [
            os.dup(self._namespaces[message["place"]])
            if kind == "net"
            else os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
            for kind in own
        ]
        return own, tuple(opened)

    def _status(self, message: dict[str, Any], _descriptors: list[int]) -> _Answer:
        self._reap()
        return self._statuses.get(message["pid"]), ()

    def _end(self, _message: dict[str, Any], _descriptors: list[int]) -> _Answer:
        return None, ()

    # -- means ----------------------------------------------------------------------------------------------------

    def _within(self, place: str, function: Callable[[], _Result]) -> _Result:
        descriptor = self._namespaces[place]

        def enter() -> _Result:
            syscalls.setns(descriptor, syscalls.CLONE_NEWNET)
            return function()

        return in_thread(enter)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self._statuses:
                    self._statuses[pid] = os.waitstatus_to_exitcode(status)


def in_thread(function: Callable[[], _Result]) -> _Result:
    """Run `function` in a thread of its own, which may change namespaces without changing ours."""
    results: list[_Result] = []
    failures: list[OSError] = []

    def work() -> None:
        try:
            results.append(function())
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def _new_namespace() -> int:
    syscalls.unshare(syscalls.CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

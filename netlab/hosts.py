"""The seam between a lab and what runs in it: a host spawns processes, and makes sockets, in its own namespace.

`lab` implements these protocols; `servers`, `capture` and `probe` use them and never import `lab`.
"""

import socket as sockets
from collections.abc import Mapping, Sequence
from typing import Protocol


class Child(Protocol):
    """A process in a host. It dies with the lab, however the lab ends."""

    @property
    def pid(self) -> int:
        """The process id as processes in the lab see it."""

    def poll(self) -> int | None:
        """Return the exit status (negative: the signal), or None while it runs."""

    def wait(self, timeout: int) -> int | None:
        """Wait at most `timeout` ns; return the exit status, or None if it still runs."""

    def terminate(self) -> None:
        """Send SIGTERM; a process that is already gone is no error."""

    def kill(self) -> None:
        """Send SIGKILL; a process that is already gone is no error."""


class Host(Protocol):
    """One end of a network: "client" or "server"."""

    @property
    def name(self) -> str:
        """The end's name."""

    @property
    def address(self) -> str:
        """The IPv4 address of the end's interface."""

    @property
    def interface(self) -> str:
        """The interface that leads to the other end."""

    @property
    def scratch(self) -> str:
        """A folder on a tmpfs that only processes in the lab see; it vanishes with the lab."""

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        fds: Sequence[int] = (),
    ) -> Child:
        """Start `argv` in this host's namespaces.

        `env` replaces the environment (None: the caller's own). `stdin`, `stdout` and `stderr` are file
        descriptors of the caller (None: /dev/null). `fds` are descriptors of the caller that the
        process gets as 3, 4, ... in order. Raises LabError.
        """

    def socket(self, family: sockets.AddressFamily, kind: sockets.SocketKind, proto: int = 0) -> sockets.socket:
        """Return a socket that lives in this host's network namespace, usable by the caller. Raises LabError."""

    def packet_socket(self, receive_buffer: int) -> sockets.socket:
        """Return an AF_PACKET socket bound to `interface`, kernel time stamps on, with that receive buffer (bytes).

        Sees both directions. Raises LabError.
        """

"""What every server under test looks like to the run, and how one is started."""

from typing import Protocol

from netlab.errors import UsageError
from netlab.hosts import Host
from netlab.scenario import Server, ServerKind


class RunningServer(Protocol):
    """A server that answers at `address`:`port`. Closing it ends its process; the lab's end does too."""

    @property
    def address(self) -> str:
        """IPv4 address."""

    @property
    def port(self) -> int:
        """Native protocol port."""

    @property
    def version(self) -> str | None:
        """The server's own version, such as "26.7.2.1"; None where it has none."""

    @property
    def pid(self) -> int | None:
        """The process id as processes in the lab see it."""

    def alive(self) -> bool:
        """Return whether its process runs."""

    def failure(self) -> str | None:
        """Return why it died (the last lines of its log), or None while it lives."""

    def close(self) -> None:
        """End it: SIGTERM, then SIGKILL; bounded, and harmless when repeated."""


def start(server: Server, host: Host, log_path: str) -> RunningServer:
    """Start `server` at `host`; its output goes to the file `log_path`. Returns when it answers. Raises ServerError."""
    match server.kind:
        case ServerKind.ENGINE:
            from netlab.servers import engine

            return engine.start(server, host, log_path)
        case ServerKind.BINARY:
            from netlab.servers import binary

            return binary.start(server, host, log_path)
        case ServerKind.SCRIPTED:
            from netlab.servers import scripted

            return scripted.start(server, host, log_path)
        case ServerKind.REMOTE:
            raise UsageError(f"{server.label} runs already: it has no lab", hint=f"use: netlab probe {server.label}")

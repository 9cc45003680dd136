"""The exception tree. Each class carries the exit code of the command that lets it through.

0 fine, 1 a bug, 2 usage or scenario, 3 gate failed or a cause found where none was allowed,
4 lab, capture or server failed.
"""


class NetlabError(Exception):
    """Anything netlab reports in one line: what went wrong and where, then what to do next."""

    exit_code = 1

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


class UsageError(NetlabError):
    """A command line or an API call that cannot be meant."""

    exit_code = 2


class ScenarioError(UsageError):
    """A scenario file that cannot be read: names the file, the key and the expected form."""


class GateError(NetlabError):
    """A gate failed, or a cause was found where none was allowed."""

    exit_code = 3


class OperationError(NetlabError):
    """The lab, the capture, the server or the file system did not do what was asked."""

    exit_code = 4


class LabError(OperationError):
    """The network could not be built, or is not what it claims to be."""


class ServerError(OperationError):
    """A server did not start, died, or refused us."""


class EngineError(ServerError):
    """An engine is not installed, or its files are not the pinned ones."""


class CaptureError(OperationError):
    """A capture could not be taken or read."""


class ProbeError(OperationError):
    """The probe could not connect, or lost its connection."""


class RemoteProtocolError(ProbeError):
    """The peer sent bytes that are not the protocol, or stopped in the middle of a packet."""


class ServerExceptionError(ProbeError):
    """The server refused with an Exception packet (a wrong password, an unknown database)."""

    def __init__(self, code: int, name: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"server exception {code} {name}: {message}", hint=hint)
        self.code = code
        self.name = name
        self.message = message


class VoidRunError(OperationError):
    """A run was not what it claims (RTT, lateness, drops, a setting not taken), so it proves nothing."""


class OutputError(OperationError):
    """A result could not be written."""

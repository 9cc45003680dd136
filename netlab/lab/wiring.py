"""What an owner asks an agent to build, as it crosses the socket."""

from dataclasses import dataclass
from typing import Any

import msgspec

from netlab.scenario import Link, Tcp


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """A lab's link and both ends' TCP."""

    link: Link
    server_tcp: Tcp
    client_tcp: Tcp

    def encode(self) -> dict[str, Any]:
        """Return it as plain values for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def decode(cls, plain: dict[str, Any]) -> "BuildRequest":
        """Return the request that `encode` made."""
        return msgspec.convert(plain, cls)

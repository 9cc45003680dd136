"""Messages between a lab's owner and its agent: one JSON object and some descriptors a datagram (SOCK_SEQPACKET)."""

import contextlib
import json
import os
import socket
from typing import Any

_LARGEST = 1 << 20
_MOST_DESCRIPTORS = 32


def send(channel: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send `message` with `descriptors` (copies go; the caller keeps its own). Raises OSError."""
    socket.send_fds(channel, [json.dumps(message).encode()], list(descriptors))


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next message and its descriptors, which the caller then owns; None when the peer is gone."""
    try:
        data, descriptors, _flags, _address = socket.recv_fds(channel, _LARGEST, _MOST_DESCRIPTORS)
    except ConnectionResetError:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if not data:
        return None
    try:
        message = json.loads(data)
    except ValueError:
        close_all(descriptors)
        return None
    return message, descriptors


def close_all(descriptors: list[int]) -> None:
    """Close every descriptor."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)

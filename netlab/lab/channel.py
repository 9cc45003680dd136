"""Messages between a lab's owner and its agent: one JSON object and some descriptors a datagram (SOCK_SEQPACKET)."""

import array
import contextlib
import errno
import json
import os
import socket
from typing import Any

# A datagram must fit the socket's buffer, which only root may enlarge (net.core.wmem_max): more goes by a memfd.
_LARGEST = 1 << 16
_ELSEWHERE = b"@"
MOST_DESCRIPTORS = 250  # the kernel's bound for one message is 253 (SCM_MAX_FD)


def send(channel: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send `message` with `descriptors` (copies go; the caller keeps its own). Raises OSError."""
    data = json.dumps(message).encode()
    if len(data) <= _LARGEST:
        socket.send_fds(channel, [data], list(descriptors))
        return
    body = os.memfd_create("netlab-message")
    try:
        with open(body, "wb", closefd=False) as file:
            file.write(data)
        socket.send_fds(channel, [_ELSEWHERE], [body, *descriptors])
    finally:
        os.close(body)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next message and its descriptors, which the caller then owns; None when the peer is gone.

    Raises OSError: EMFILE when there was no room for all descriptors.
    """
    room = (MOST_DESCRIPTORS + 1) * array.array("i").itemsize
    try:
        data, ancillary, flags, _address = channel.recvmsg(
            _LARGEST + 1, socket.CMSG_SPACE(room), socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionResetError:
        return None
    descriptors = _passed(ancillary)
    try:
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if data == _ELSEWHERE:
            data = _read(descriptors.pop(0))
        message = json.loads(data) if data else None
    except BaseException:
        close_all(descriptors)
        raise
    return None if message is None else (message, descriptors)


def close_all(descriptors: list[int]) -> None:
    """Close every descriptor."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _passed(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def _read(body: int) -> bytes:
    with open(body, "rb") as file:
        file.seek(0)
        return file.read()

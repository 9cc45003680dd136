"""TSO, GSO, GRO and friends of an interface of the calling thread's namespace, by the ethtool ioctl."""

import ctypes
import fcntl
import socket
import struct

from netlab.errors import LabError

_SIOCETHTOOL = 0x8946
# name -> (get, set) commands (Linux include/uapi/linux/ethtool.h)
_FEATURES = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}
_READ_ONLY = {"rx_checksum": 0x14, "tx_checksum": 0x16, "scatter_gather": 0x18}


def set_and_check(interface: str, on: bool) -> None:
    """Switch TSO, GSO and GRO of `interface` on or off and read them back. Raises OSError, LabError."""
    for name, (get, put) in _FEATURES.items():
        _ioctl(interface, put, int(on))
        if bool(_ioctl(interface, get, 0)) != on:
            raise LabError(f"offload {name} of {interface}: wanted {'on' if on else 'off'}, and it did not change")


def read(interface: str) -> dict[str, bool]:
    """Return which offloads of `interface` are active."""
    commands = {name: get for name, (get, _) in _FEATURES.items()} | _READ_ONLY
    return {name: bool(_ioctl(interface, get, 0)) for name, get in commands.items()}


def _ioctl(interface: str, command: int, value: int) -> int:
    argument = ctypes.create_string_buffer(struct.pack("II", command, value), 8)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(argument))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, _SIOCETHTOOL, request)
    return int(struct.unpack("II", argument.raw)[1])

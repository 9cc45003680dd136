"""Take a secret out of a capture file in place: the one thing that a login carries and nobody who reads it may have."""

import mmap
from pathlib import Path

from netlab.capture.redact import checksum
from netlab.errors import CaptureError

_IPV4 = 20  # the header without options, as the lab's packets have it
_TCP = 6


def mask(path: str | Path, payload: bytes, masked: bytes) -> int:
    """Put `masked` in place of every `payload` with which a segment in the file begins; return how many there were.

    Both are of the same length. TCP checksums are made right; nothing else changes. Raises CaptureError.
    """
    assert len(payload) == len(masked)
    try:
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            count, at = 0, data.find(payload)
            while at >= 0:
                data[at : at + len(masked)] = masked
                _mend(data, at)
                count, at = count + 1, data.find(payload, at + len(masked))
            return count
    except ValueError:  # an empty file cannot be mapped
        return 0
    except OSError as error:
        raise CaptureError(f"{path}: the password could not be masked: {error.strerror}") from error


def _mend(data: mmap.mmap, payload: int) -> None:
    """Make the checksum of the IPv4 segment right whose payload begins at `payload`."""
    for size in range(20, 64, 4):
        tcp = payload - size
        ip = tcp - _IPV4
        if ip < 0 or data[tcp + 12] >> 4 != size // 4 or data[ip] != 0x45 or data[ip + 9] != _TCP:
            continue
        length = int.from_bytes(data[ip + 2 : ip + 4]) - _IPV4
        if not size < length <= len(data) - tcp:
            continue
        data[tcp + 16 : tcp + 18] = bytes(2)
        pseudo = data[ip + 12 : ip + 20] + _TCP.to_bytes(2) + length.to_bytes(2)
        data[tcp + 16 : tcp + 18] = checksum(pseudo + data[tcp : tcp + length]).to_bytes(2)
        return

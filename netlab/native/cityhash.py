"""CityHash128 as of version 1.0.2: the checksum of compressed blocks in the Native protocol.

Later versions of CityHash give other values. `tests/oracle` compares it with the C++ library's Python binding.
"""

_MASK = (1 << 64) - 1
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_K3 = 0xC949D7C7509E6557
_MULTIPLIER = 0x9DDFEA08EB382D69


def checksum(data: bytes) -> bytes:
    """Return the 16 bytes that stand before a compressed block whose method byte and the rest are `data`."""
    low, high = hash128(data)
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


def hash128(data: bytes) -> tuple[int, int]:
    """Return the low and the high half of the hash of `data`."""
    size = len(data)
    if size >= 16:
        return _seeded(data[16:], _word(data, 0) ^ _K3, _word(data, 8))
    if size >= 8:
        return _seeded(b"", _word(data, 0) ^ size * _K0 & _MASK, _word(data, size - 8) ^ _K1)
    return _seeded(data, _K0, _K1)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotate(value: int, by: int) -> int:
    value &= _MASK
    return (value >> by | value << 64 - by) & _MASK


def _mix(value: int) -> int:
    value &= _MASK
    return value ^ value >> 47


def _fold(left: int, right: int) -> int:
    """Fold two words into one."""
    first = _mix((left ^ right) * _MULTIPLIER)
    return _mix((right ^ first) * _MULTIPLIER) * _MULTIPLIER & _MASK


def _short(data: bytes) -> int:
    """Hash at most 16 bytes into a word."""
    size = len(data)
    if size > 8:
        last = _word(data, size - 8)
        return _fold(_word(data, 0), _rotate(last + size, size)) ^ last
    if size >= 4:
        first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[-4:], "little")
        return _fold(size + (first << 3), last)
    if size:
        left, right = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _mix(left * _K2 ^ right * _K3) * _K2 & _MASK
    return _K2


def _murmur(data: bytes, a: int, b: int) -> tuple[int, int]:
    """Hash less than 128 bytes."""
    size = len(data)
    if size <= 16:
        a = _mix(a * _K1) * _K1 & _MASK
        c = b * _K1 + _short(data) & _MASK
        d = _mix(a + (_word(data, 0) if size >= 8 else c))
    else:
        c = _fold(_word(data, size - 8) + _K1 & _MASK, a)
        d = _fold(b + size & _MASK, c + _word(data, size - 16) & _MASK)
        a = a + d & _MASK
        for at in range(0, size - 16, 16):
            a = (a ^ _mix(_word(data, at) * _K1) * _K1) * _K1 & _MASK
            b ^= a
            c = (c ^ _mix(_word(data, at + 8) * _K1) * _K1) * _K1 & _MASK
            d ^= c
    a, b = _fold(a, c), _fold(d, b)
    return a ^ b, _fold(b, a)


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Mix 32 bytes into two words."""
    a = a + _word(data, at) & _MASK
    last = _word(data, at + 24)
    b = _rotate(b + a + last, 21)
    c = a
    a = a + _word(data, at + 8) + _word(data, at + 16) & _MASK
    return a + last & _MASK, b + _rotate(a, 44) + c & _MASK


def _seeded(data: bytes, x: int, y: int) -> tuple[int, int]:
    size = len(data)
    if size < 128:
        return _murmur(data, x, y)
    z = size * _K1 & _MASK
    v0 = _rotate(y ^ _K1, 49) * _K1 + _word(data, 0) & _MASK
    v1 = _rotate(v0, 42) * _K1 + _word(data, 8) & _MASK
    w0 = _rotate(y + z, 35) * _K1 + x & _MASK
    w1 = _rotate(x + _word(data, 88), 53) * _K1 & _MASK
    for at in range(0, size - size % 128, 64):
        x = _rotate(x + y + v0 + _word(data, at + 16), 37) * _K1 ^ w1
        y = _rotate(y + v1 + _word(data, at + 48), 42) * _K1 ^ v0
        x, y = x & _MASK, y & _MASK
        z = _rotate(z ^ w0, 33)
        v0, v1 = _weak(data, at, v1 * _K1, x + w0)
        w0, w1 = _weak(data, at + 32, z + w1, y)
        z, x = x, z
    y += _rotate(w0, 37) * _K0 + z
    x += _rotate(v0 + z, 49) * _K0
    for done in range(32, size % 128 + 32, 32):
        at = size - done
        y = _rotate(y - x, 42) * _K0 + v1
        w0 += _word(data, at + 16)
        x = _rotate(x, 49) * _K0 + w0
        w0 += v0
        v0, v1 = _weak(data, at, v0, v1)
    x, y = _fold(x & _MASK, v0), _fold(y & _MASK, w0 & _MASK)
    return _fold(x + v1 & _MASK, w1) + y & _MASK, _fold(x + w1 & _MASK, y + v1 & _MASK)

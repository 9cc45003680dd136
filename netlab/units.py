"""Durations, sizes and rates: text at the edge, integer nanoseconds, bytes and bits per second inside.

Floats appear only in the `format_*` and `as_ms` functions, which serve printers.
"""

import re

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_DURATION_NS = {"ns": 1, "us": NS_PER_US, "µs": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S, "m": 60 * NS_PER_S}
_SIZE_BYTES = {
    "": 1,
    "b": 1,
    "k": 1_000,
    "kb": 1_000,
    "kib": 1 << 10,
    "m": 10**6,
    "mb": 10**6,
    "mib": 1 << 20,
    "g": 10**9,
    "gb": 10**9,
    "gib": 1 << 30,
}
_RATE_BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zµ/]*)", re.ASCII | re.IGNORECASE)
# Nothing netlab measures lasts longer than a day; a larger number is a slip of the pen.
_LONGEST_NS = 24 * 3600 * NS_PER_S


def us(value: float) -> int:
    """Return `value` microseconds in nanoseconds."""
    return round(value * NS_PER_US)


def ms(value: float) -> int:
    """Return `value` milliseconds in nanoseconds."""
    return round(value * NS_PER_MS)


def seconds(value: float) -> int:
    """Return `value` seconds in nanoseconds."""
    return round(value * NS_PER_S)


def as_ms(duration: int) -> float:
    """Return `duration` (ns) in milliseconds, for printers."""
    return duration / NS_PER_MS


def parse_duration(text: str) -> int:
    """Return the nanoseconds that `text` names, such as "32ms", "2s", "150us" or "0".

    Raises ValueError with a sentence that says which form was expected.
    """
    value = _parse(text, _DURATION_NS, 'a duration like "32ms"', bare_zero=True)
    if value > _LONGEST_NS:
        raise ValueError(f'expected a duration of at most 24 hours, got "{text}"')
    return value


def parse_size(text: str) -> int:
    """Return the bytes that `text` names, such as "1448", "64KiB" or "10MB". Raises ValueError."""
    return _parse(text, _SIZE_BYTES, 'a size like "64KiB"')


def parse_rate(text: str) -> int:
    """Return the bits per second that `text` names, such as "100mbit" or "1gbit". Raises ValueError."""
    return _parse(text, _RATE_BITS, 'a rate like "100mbit"')


def parse_fraction(text: str) -> float:
    """Return the fraction that `text` names, "1%" or "0.01" both giving 0.01. Raises ValueError."""
    body, scale = (text[:-1], 100.0) if text.endswith("%") else (text, 1.0)
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", body.strip(), re.ASCII) and 0 <= float(body) / scale <= 1:
        return float(body) / scale
    raise ValueError(f'expected a fraction like "1%" or "0.01", got "{text}"')


def format_duration(duration: int) -> str:
    """Return `duration` (ns) in the largest unit that keeps it exact enough to read: "32ms", "1.5s", "150us"."""
    sign, rest = ("-", -duration) if duration < 0 else ("", duration)
    for unit, size in (("s", NS_PER_S), ("ms", NS_PER_MS), ("us", NS_PER_US)):
        if rest >= size:
            return f"{sign}{rest / size:.6g}{unit}"
    return f"{sign}{rest}ns" if rest else "0s"


def format_size(size: int) -> str:
    """Return `size` (bytes) as a person writes it: "1448 B", "12.3 KB", "4.5 MB"."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= 10 * scale or (size >= scale > 10**3):
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def format_rate(rate: int) -> str:
    """Return `rate` (bits per second) as "100mbit"."""
    for unit, scale in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if rate >= scale:
            return f"{rate / scale:.6g}{unit}"
    return f"{rate}bit"


def _parse(text: str, units: dict[str, int], form: str, *, bare_zero: bool = False) -> int:
    found = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f'expected {form}, got "{text}"')
    number, unit = found[1], found[2].lower()
    if bare_zero and unit == "" and float(number) == 0:
        return 0
    if unit not in units:
        raise ValueError(f'expected {form}, got "{text}"')
    return round(float(number) * units[unit])

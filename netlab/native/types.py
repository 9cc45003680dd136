"""Data type names: the text in a block's header, such as "Map(String, Array(UInt8))", to the codec of the column.

A type whose layout is not known here raises UnsupportedError, which says which: its column's end cannot be found.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from netlab.errors import ProbeError, RemoteProtocolError
from netlab.native import columns
from netlab.native.columns import Codec
from netlab.native.low_cardinality import LowCardinality

_MAX_DEPTH = 32
_HEAD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_ ]*?)\s*(?:\((.*)\))?\s*", re.DOTALL)
_ELEMENT_NAME = re.compile(r"\s*(?:`(?:[^`\\]|\\.)*`|[A-Za-z_][A-Za-z0-9_.]*)\s+(?=\S)", re.DOTALL)
_ENUM_ITEM = re.compile(r"\s*'((?:[^'\\]|\\.|'')*)'\s*=\s*(-?[0-9]{1,6})\s*", re.DOTALL)
_INTERVALS = ("Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "Day", "Week", "Month")
_POINT = "Tuple(Float64, Float64)"


class UnsupportedError(ProbeError):
    """The peer uses a part of the protocol that is not read here (a data type, a packet)."""


class _Level(NamedTuple):
    """How deep a type may still nest, and which layout its Strings have."""

    left: int
    offsets: bool

    def deeper(self) -> "_Level":
        return self._replace(left=self.left - 1)


@lru_cache(maxsize=1024)
def codec(name: str, *, offsets: bool = False) -> Codec:
    """Return the codec of the data type `name`; `offsets`: Strings lie as offsets and bytes (54492).

    Raises UnsupportedError for a type that is not known here, RemoteProtocolError for a name that is none.
    """
    return _parse(name, _Level(_MAX_DEPTH, offsets))


def _parse(name: str, level: _Level) -> Codec:
    if level.left == 0:
        raise RemoteProtocolError(f"a data type is nested deeper than {_MAX_DEPTH} levels")
    found = _HEAD.fullmatch(name)
    if found is None:
        raise RemoteProtocolError(f'not a data type: "{name[:80]}"')
    head, inside = found[1], found[2]
    if head == "String" and level.offsets:
        return columns.OffsetStrings()
    if head in _SIMPLE:
        return _SIMPLE[head]()
    if head in _ALIASES and inside is None:
        return _parse(_ALIASES[head], level.deeper())
    if head not in _NESTING and head not in _PARAMETRIC:
        raise UnsupportedError(f'data type "{name[:80]}" is not read here', hint="select columns of plainer types")
    arguments = split(inside) if inside is not None else []
    try:
        if head in _PARAMETRIC:
            return _PARAMETRIC[head](arguments)
        return _NESTING[head](arguments, level.deeper())
    except (ValueError, IndexError) as error:
        raise RemoteProtocolError(f'not a data type: "{name[:80]}"') from error


def split(inside: str) -> list[str]:
    """Return the arguments between a type's brackets, cut at its own commas; quoted text may hold any of these."""
    parts, start, level, quote = [], 0, 0, ""
    escaped = False
    for at, letter in enumerate(inside):
        if escaped:
            escaped = False
        elif quote:
            escaped = letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in "'`\"":
            quote = letter
        elif letter == "(":
            level += 1
        elif letter == ")":
            level -= 1
        elif letter == "," and level == 0:
            parts.append(inside[start:at])
            start = at + 1
    last = inside[start:]
    return [*parts, last] if parts or last.strip() else []


def _decimal(arguments: list[str]) -> Codec:
    precision = int(arguments[0])
    scale = int(arguments[1]) if len(arguments) > 1 else 0
    width = next((width for most, width in ((9, 4), (18, 8), (38, 16), (76, 32)) if precision <= most), None)
    if width is None or not 0 <= scale <= precision:
        raise ValueError
    return columns.decimals(width, scale)


def _decimal_of(width: int) -> Callable[[list[str]], Codec]:
    def make(arguments: list[str]) -> Codec:
        scale = int(arguments[0])
        if not 0 <= scale <= 76:
            raise ValueError
        return columns.decimals(width, scale)

    return make


def _enum(width: int) -> Callable[[list[str]], Codec]:
    def make(arguments: list[str]) -> Codec:
        names: dict[int, str] = {}
        for argument in arguments:
            found = _ENUM_ITEM.fullmatch(argument)
            if found is None:
                raise ValueError
            names[int(found[2])] = re.sub(r"\\(.)|''", lambda part: part[1] or "'", found[1], flags=re.DOTALL)
        return columns.enums(width, names)

    return make


def _fixed_string(arguments: list[str]) -> Codec:
    width = int(arguments[0])
    if not 0 < width <= 1 << 24:
        raise ValueError
    return columns.items(width)


def _nullable(arguments: list[str], level: _Level) -> Codec:
    (inner,) = arguments
    return columns.Nullable(_parse(inner, level))


def _array(arguments: list[str], level: _Level) -> Codec:
    (inner,) = arguments
    return columns.Arrays(_parse(inner, level))


def _tuple(arguments: list[str], level: _Level) -> Codec:
    if not arguments:
        return columns.Nothing(())
    return columns.Tuples([_parse(_unnamed(argument), level) for argument in arguments])


def _nested(arguments: list[str], level: _Level) -> Codec:
    return columns.Arrays(_tuple(arguments, level))


def _map(arguments: list[str], level: _Level) -> Codec:
    key, value = arguments
    return columns.Maps(_parse(key, level), _parse(value, level))


def _low_cardinality(arguments: list[str], level: _Level) -> Codec:
    (inner,) = arguments
    # A dictionary's Strings keep their lengths before each, at any revision (seen of a server of 54492).
    return LowCardinality(_parse(inner, level._replace(offsets=False)))


def _simple_aggregate(arguments: list[str], level: _Level) -> Codec:
    _, inner = arguments
    return _parse(inner, level)


def _unnamed(element: str) -> str:
    """Return the type of a Tuple's element without its name, where it has one."""
    found = _ELEMENT_NAME.match(element)
    return element[found.end() :] if found else element


def _integers() -> dict[str, Callable[[], Codec]]:
    made: dict[str, Callable[[], Codec]] = {}
    for width in (1, 2, 4, 8, 16, 32):
        for signed in (True, False):
            name = f"{'' if signed else 'U'}Int{8 * width}"
            made[name] = lambda width=width, signed=signed: columns.integers(width, signed=signed)  # type: ignore[misc]
    for unit in (*_INTERVALS, "Quarter", "Year"):
        made[f"Interval{unit}"] = lambda: columns.integers(8, signed=True)
    return made


# Types of one layout whatever stands between their brackets (a time zone, a precision).
_SIMPLE: dict[str, Callable[[], Codec]] = {
    **_integers(),
    "Float32": lambda: columns.numbers("f"),
    "Float64": lambda: columns.numbers("d"),
    "BFloat16": columns.brain_floats,
    "Bool": columns.booleans,
    "Date": lambda: columns.numbers("H"),
    "Date32": lambda: columns.numbers("i"),
    "DateTime": lambda: columns.numbers("I"),
    "DateTime64": lambda: columns.numbers("q"),
    "Time": lambda: columns.numbers("i"),
    "Time64": lambda: columns.numbers("q"),
    "UUID": columns.uuids,
    "IPv4": columns.ipv4,
    "IPv6": columns.ipv6,
    "String": columns.Strings,
    "Nothing": lambda: columns.Nothing(None),
}
_PARAMETRIC: dict[str, Callable[[list[str]], Codec]] = {
    "Decimal": _decimal,
    "Decimal32": _decimal_of(4),
    "Decimal64": _decimal_of(8),
    "Decimal128": _decimal_of(16),
    "Decimal256": _decimal_of(32),
    "Enum8": _enum(1),
    "Enum16": _enum(2),
    "FixedString": _fixed_string,
}
_NESTING: dict[str, Callable[[list[str], _Level], Codec]] = {
    "Nullable": _nullable,
    "Array": _array,
    "Tuple": _tuple,
    "Nested": _nested,
    "Map": _map,
    "LowCardinality": _low_cardinality,
    "SimpleAggregateFunction": _simple_aggregate,
}
_ALIASES = {
    "Point": _POINT,
    "Ring": f"Array({_POINT})",
    "LineString": f"Array({_POINT})",
    "Polygon": f"Array(Array({_POINT}))",
    "MultiLineString": f"Array(Array({_POINT}))",
    "MultiPolygon": f"Array(Array(Array({_POINT})))",
}

"""A parsed TOML table read key by key: types checked, unknown keys refused with the closest known one.

Every fault is a ScenarioError that says file, key, what was expected and what stands there.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from netlab.errors import ScenarioError
from netlab.units import parse_duration, parse_fraction, parse_rate, parse_size

E = TypeVar("E", bound=StrEnum)
V = TypeVar("V")
# A file a person writes. Beyond it, it is another file given by mistake.
_LARGEST_FILE = 100_000


class Table:
    """One table of a file. `key` is its dotted place, "" for the file itself."""

    def __init__(self, values: Mapping[str, Any], file: str, key: str = "") -> None:
        self.file = file
        self.key = key
        self._values = values
        self._asked: set[str] = set()

    def place(self, name: str) -> str:
        """Return the dotted place of `name` in the file."""
        return f"{self.key}.{name}" if self.key else name

    def fault(self, name: str, what: str, *, hint: str = "") -> ScenarioError:
        """Return the error for the value at `name` ("": the table itself)."""
        place = self.place(name) if name else self.key
        return ScenarioError(f"{self.file}: {place}: {what}" if place else f"{self.file}: {what}", hint=hint)

    def has(self, name: str) -> bool:
        """Whether the table holds `name`."""
        self._asked.add(name)
        return name in self._values

    def names(self) -> tuple[str, ...]:
        """Return the keys in the file's order."""
        return tuple(self._values)

    def forget(self) -> None:
        """Forget what was asked for, after a look at everything."""
        self._asked.clear()

    def value(self, name: str) -> Any:
        """Return what stands at `name` as TOML gives it, or None."""
        self._asked.add(name)
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        """Return the text at `name`, or None."""
        return self._typed(name, str, "text in quotes")

    def flag(self, name: str) -> bool | None:
        """Return the true or false at `name`, or None."""
        return self._typed(name, bool, "true or false")

    def integer(self, name: str) -> int | None:
        """Return the whole number at `name`, or None."""
        return self._typed(name, int, "a whole number")

    def duration(self, name: str) -> int | None:
        """Return the ns at `name`, or None."""
        return self._parsed(name, parse_duration, 'a duration like "32ms"')

    def rate(self, name: str) -> int | None:
        """Return the bit/s at `name`, or None."""
        return self._parsed(name, parse_rate, 'a rate like "100mbit"')

    def fraction(self, name: str) -> float | None:
        """Return the fraction at `name`, or None; a bare number is one from 0 to 1."""
        value = self.value(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if 0 <= value <= 1:
                return float(value)
            raise self.fault(name, f'expected a fraction like "1%" or 0.01, got {value}')
        return self._parsed(name, parse_fraction, 'a fraction like "1%"')

    def size(self, name: str) -> int | None:
        """Return the bytes at `name`, or None; a bare whole number is bytes."""
        value = self.value(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        return self._parsed(name, parse_size, 'a number of bytes or a size like "64KiB"')

    def choice(self, name: str, choices: type[E]) -> E | None:
        """Return the member of `choices` that the text at `name` spells, or None."""
        text = self.text(name)
        if text is None:
            return None
        known = {member.value: member for member in choices}
        if text not in known:
            raise self.fault(name, f'expected one of {", ".join(known)}, got "{text}"')
        return known[text]

    def table(self, name: str) -> "Table | None":
        """Return the table at `name`, or None."""
        value: dict[str, Any] | None = self._typed(name, dict, "a table")
        return None if value is None else Table(value, self.file, self.place(name))

    def tables(self, name: str) -> "list[Table]":
        """Return the tables of the array at `name`; none when it is absent."""
        values: list[Any] = self._typed(name, list, f"tables, each under [[{self.place(name)}]]") or []
        if not all(isinstance(value, dict) for value in values):
            raise self.fault(name, f"expected tables, each under [[{self.place(name)}]]")
        return [Table(value, self.file, f"{self.place(name)}[{at}]") for at, value in enumerate(values, start=1)]

    def finish(self, hints: Mapping[str, str] | None = None) -> None:
        """Raise for the first key that nobody asked for; `hints` say more on some."""
        for name in self._values:
            if name not in self._asked:
                raise self.fault(name, unknown(name, self._asked), hint=(hints or {}).get(name, ""))

    def _typed(self, name: str, kind: type[V], form: str) -> V | None:
        value = self.value(name)
        if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
            return value
        raise self.fault(name, f"expected {form}, got {_shown(value)}")

    def _parsed(self, name: str, parse: Callable[[str], V], form: str) -> V | None:
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.fault(name, f"expected {form}, got {_shown(value)}")
        try:
            return parse(value)
        except ValueError as error:
            raise self.fault(name, str(error)) from error


def read_text(path: Path) -> str:
    """Return the text of a file that a person wrote. Raises ScenarioError that says why it cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ScenarioError(f"{path}: {reason}", hint="name a TOML file that can be read") from error
    if len(raw) > _LARGEST_FILE:
        raise ScenarioError(f"{path}: larger than {_LARGEST_FILE} bytes", hint="is it a TOML file?")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not text in UTF-8 (byte {error.start})", hint="is it a TOML file?") from error


def parse_toml(text: str, file: str) -> Table:
    """Return the table that the text of `file` holds. Raises ScenarioError with the line."""
    try:
        return Table(tomllib.loads(text), file)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file}: not TOML: {error}", hint="scenarios/ holds examples") from error
    except RecursionError as error:
        raise ScenarioError(f"{file}: nested too deeply", hint="scenarios/ holds examples") from error


def unknown(name: str, known: Iterable[str]) -> str:
    """Return what is said of an unknown `name`: the closest known one, or all of them."""
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1)
    if close:
        return f'no such key; did you mean "{close[0]}"?'
    return f"no such key; known ones: {', '.join(choices)}" if choices else "no such key"


def _shown(value: object) -> str:
    """Return `value` as its TOML reads, cut short."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, dict):
        text = "a table"
    elif isinstance(value, list):
        text = "an array"
    else:
        text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"

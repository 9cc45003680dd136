"""Scenario files: TOML that reads as prose, into `Scenario` and back. Every fault names the file, the key, the form."""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from netlab.errors import ScenarioError, UsageError
from netlab.scenario import (
    Backend,
    Congestion,
    Delivery,
    Emulation,
    Expectation,
    Link,
    Scenario,
    Server,
    ServerKind,
    Tcp,
    Workload,
)
from netlab.units import format_duration, format_rate, parse_duration, parse_fraction, parse_rate
from netlab.validate import check_scenario, parse_server

_PASSWORD_HINT = "give it in the environment as NETLAB_PASSWORD, or with --password-file"
_LARGEST = 1 << 20


class _Table:
    """One table of the file: each key is taken once, by its form; `finish` refuses what was not taken."""

    def __init__(self, where: str, path: str, values: Any) -> None:
        self._where = where
        self._path = path
        if not isinstance(values, Mapping):
            raise self.fault("", "a table", values)
        self._left = dict(values)
        self._known: list[str] = []

    def take(self, key: str, form: str, convert: Callable[[Any], Any], default: Any) -> Any:
        """Return the converted value of `key`, or `default`."""
        self._known.append(key)
        if key not in self._left:
            return default
        value = self._left.pop(key)
        try:
            return convert(value)
        except (TypeError, ValueError, UsageError) as error:
            raise self.fault(key, form, value) from error

    def table(self, key: str) -> "_Table":
        """Return the table `key`, empty where it is absent."""
        self._known.append(key)
        return _Table(self._where, self._key(key), self._left.pop(key, {}))

    def tables(self, key: str) -> "list[_Table]":
        """Return the array of tables `key`."""
        self._known.append(key)
        found = self._left.pop(key, [])
        if not isinstance(found, list):
            raise self.fault(key, "an array of tables, [[server]]", found)
        return [_Table(self._where, f"{self._key(key)}[{n}]", item) for n, item in enumerate(found)]

    def names(self) -> list[str]:
        """Return the keys that are left."""
        return list(self._left)

    def finish(self) -> None:
        """Raise for a key that no one took."""
        for key in self._left:
            near = difflib.get_close_matches(key, self._known, 1)
            hint = f'did you mean "{near[0]}"?' if near else f"known keys: {', '.join(self._known)}"
            if key == "password":
                hint = _PASSWORD_HINT
            raise ScenarioError(f"{self._where}: {self._key(key)}: unknown key", hint=hint)

    def fault(self, key: str, form: str, value: Any) -> ScenarioError:
        """Return the error that says where, and what was expected."""
        shown = f'"{value}"' if isinstance(value, str) else str(value)
        return ScenarioError(f"{self._where}: {self._key(key)}: expected {form}, got {shown}")

    def _key(self, key: str) -> str:
        return ".".join(part for part in (self._path, key) if part)


def load_scenario(path: Path) -> Scenario:
    """Read the scenario file `path`. Raises ScenarioError."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ScenarioError(f"{path}: larger than 1 MiB", hint="is this a scenario file?")
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}", hint="name a scenario file; scenarios/ holds some") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not TOML: {error}", hint="see scenarios/ for examples") from error
    root = _Table(str(path), "", document)
    scenario = Scenario(
        name=root.take("name", 'a name like "idle-window-restart"', _text, path.stem),
        story=root.take("story", "a text", _text, "").strip(),
        link=_link(root.table("link")),
        server_tcp=_tcp(root.table("server_tcp"), Tcp(initcwnd=8)),
        client_tcp=_tcp(root.table("client_tcp"), Tcp()),
        workload=_workload(root.table("workload")),
        servers=tuple(_server(item, path.parent) for item in root.tables("server")) or Scenario().servers,
        expectations=_expectations(root.table("expect")),
    )
    root.finish()
    check_scenario(scenario, str(path))
    return scenario


def dump_scenario(scenario: Scenario) -> str:
    """Return `scenario` as a file that `load_scenario` reads back, every default spelt out."""
    link, work = scenario.link, scenario.workload
    sections: list[tuple[str, dict[str, Any]]] = [
        ("", {"name": scenario.name, "story": scenario.story}),
        ("[link]", {"backend": link.backend.value, "mtu": link.mtu, "offloads": link.offloads, "seed": link.seed}),
        ("[link.to_client]", _emulation_values(link.to_client)),
        ("[link.to_server]", _emulation_values(link.to_server)),
        ("[server_tcp]", _tcp_values(scenario.server_tcp)),
        ("[client_tcp]", _tcp_values(scenario.client_tcp)),
        *(("[[server]]", _server_values(server)) for server in scenario.servers),
        (
            "[workload]",
            {
                "query": work.query,
                "count": work.count,
                "idle": format_duration(work.idle),
                "timeout": format_duration(work.timeout),
                "warmup": work.warmup,
                "user": work.user,
                "database": work.database,
            },
        ),
        ("[workload.settings]", dict(work.settings)),
        *((f"[expect.{_toml(label)}]", _expectation_values(e)) for label, e in scenario.expectations),
    ]
    blocks = []
    for title, values in sections:
        lines = [title] if title else []
        lines += [f"{_key(name)} = {_toml(value)}" for name, value in values.items() if value is not None]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _link(table: _Table) -> Link:
    rtt = table.take("rtt", 'a duration like "32ms"', _duration, None)
    split = table.take("split", "true or false", _flag, False)
    default = Link()
    to_client, to_server = default.to_client, default.to_server
    if rtt is not None:
        back = rtt // 2 if split else 0
        to_client, to_server = replace(to_client, delay=rtt - back), replace(to_server, delay=back)
    elif split:
        raise table.fault("split", "rtt beside it", True)
    link = Link(
        backend=table.take("backend", "auto, netem or relay", Backend, default.backend),
        mtu=table.take("mtu", "a number of bytes like 1500", _whole, default.mtu),
        offloads=table.take("offloads", "true or false", _flag, default.offloads),
        seed=table.take("seed", "a whole number", _whole, default.seed),
        to_client=_emulation(table.table("to_client"), to_client),
        to_server=_emulation(table.table("to_server"), to_server),
    )
    table.finish()
    return link


def _emulation(table: _Table, default: Emulation) -> Emulation:
    emulation = Emulation(
        delay=table.take("delay", 'a duration like "32ms"', _duration, default.delay),
        jitter=table.take("jitter", 'a duration like "2ms"', _duration, default.jitter),
        loss=table.take("loss", 'a fraction like "1%"', _fraction, default.loss),
        rate=table.take("rate", 'a rate like "100mbit"', lambda v: parse_rate(_text(v)), default.rate),
        limit=table.take("limit", "a number of packets like 5000", _whole, default.limit),
    )
    table.finish()
    return emulation


def _tcp(table: _Table, default: Tcp) -> Tcp:
    tcp = Tcp(
        initcwnd=table.take("initcwnd", "a number of segments like 8", _whole, default.initcwnd),
        congestion=table.take("congestion", "cubic, reno or bbr", Congestion, default.congestion),
        slow_start_after_idle=table.take(
            "slow_start_after_idle", "true or false", _flag, default.slow_start_after_idle
        ),
        no_metrics_save=table.take("no_metrics_save", "true or false", _flag, default.no_metrics_save),
        autocorking=table.take("autocorking", "true or false", _flag, default.autocorking),
    )
    table.finish()
    return tcp


def _server(table: _Table, folder: Path) -> Server:
    server = table.take("use", 'a server like "clickhouse:26.7"', lambda v: parse_server(_text(v)), None)
    if server is None:
        raise table.fault("use", 'a server like "clickhouse:26.7"', "nothing")
    delivery = table.take("delivery", "nodelay, batched, cork or nagle", Delivery, server.delivery)
    train = table.take("train", 'a file like "trains/max-id.toml"', _text, None)
    port = table.take("port", "a port like 9000", _whole, server.port)
    table.finish()
    if train is not None:
        server = replace(server, path=str(folder / train))
    elif server.kind is ServerKind.SCRIPTED and server.path is not None:
        server = replace(server, path=str(folder / server.path))
    named: Server = replace(server, delivery=delivery, port=port)
    return named


def _workload(table: _Table) -> Workload:
    default = Workload()
    settings = table.table("settings")
    workload = Workload(
        query=table.take("query", "SQL", _text, default.query).strip(),
        count=table.take("count", "a number of queries like 5", _whole, default.count),
        idle=table.take("idle", 'a duration like "2s"', _duration, default.idle),
        timeout=table.take("timeout", 'a duration like "30s"', _duration, default.timeout),
        warmup=table.take("warmup", "a number of queries like 5", _whole, default.warmup),
        user=table.take("user", "a name", _text, default.user),
        database=table.take("database", "a name", _text, default.database),
        settings=tuple((key, settings.take(key, "a number or a text", _setting, "")) for key in settings.names()),
    )
    table.finish()
    return workload


def _expectations(table: _Table) -> tuple[tuple[str, Expectation], ...]:
    found = []
    for label in table.names():
        item = table.table(label)
        expectation = Expectation(
            cause=item.take("cause", 'a cause like "idle_window_restart"', _text, None),
            extra_round_trips=item.take("extra_round_trips", "a whole number", _whole, None),
        )
        item.finish()
        found.append((label, expectation))
    return tuple(found)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _duration(value: Any) -> int:
    return parse_duration(_text(value))


def _fraction(value: Any) -> float:
    return parse_fraction(_text(value) if isinstance(value, str) else repr(float(value)))


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float | str):
        return str(value)
    raise TypeError


def _emulation_values(emulation: Emulation) -> dict[str, Any]:
    return {
        "delay": format_duration(emulation.delay),
        "jitter": format_duration(emulation.jitter),
        "loss": f"{emulation.loss * 100:.10g}%",
        "rate": None if emulation.rate is None else format_rate(emulation.rate),
        "limit": emulation.limit,
    }


def _tcp_values(tcp: Tcp) -> dict[str, Any]:
    return {
        "initcwnd": tcp.initcwnd,
        "congestion": tcp.congestion.value,
        "slow_start_after_idle": tcp.slow_start_after_idle,
        "no_metrics_save": tcp.no_metrics_save,
        "autocorking": tcp.autocorking,
    }


def _server_values(server: Server) -> dict[str, Any]:
    scripted = server.kind is ServerKind.SCRIPTED
    return {
        "use": "scripted" if scripted else server.label,
        "delivery": server.delivery.value if scripted else None,
        "train": str(Path(server.path).absolute()) if scripted and server.path else None,
        "port": server.port if server.kind is not ServerKind.REMOTE else None,
    }


def _expectation_values(expectation: Expectation) -> dict[str, Any]:
    return {"cause": expectation.cause, "extra_round_trips": expectation.extra_round_trips}


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    escaped = "".join(
        {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(c)
        or (f"\\u{ord(c):04x}" if ord(c) < 0x20 or ord(c) == 0x7F else c)
        for c in str(value)
    )
    return f'"{escaped}"'

"""Scenario files: TOML that reads as prose, into `Scenario` and back. Every fault names the file, the key, the form."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from netlab.diagnosis import Cause
from netlab.errors import UsageError
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
from netlab.tables import Table, parse_toml, read_text
from netlab.units import NS_PER_MS, NS_PER_S, NS_PER_US, parse_fraction
from netlab.validate import check_scenario, parse_server, scripted_label

_KERNEL = "kernel"  # an initcwnd left to the kernel, as TOML has no word for nothing
_PASSWORD = "a password does not belong in a scenario file"
_PASSWORD_HINT = "give it in the environment as NETLAB_PASSWORD, or with --password-file"


def load_scenario(path: Path) -> Scenario:
    """Read the scenario file `path`; paths in it are relative to its folder. Raises ScenarioError."""
    return parse_scenario(read_text(path), path)


def parse_scenario(text: str, path: Path) -> Scenario:
    """Return the scenario that `text`, the file `path`, spells. Raises ScenarioError."""
    root = parse_toml(text, str(path))
    default = Scenario()
    _refuse_passwords(root)
    servers = tuple(_server(table, path.parent) for table in root.tables("server")) or default.servers
    name, story = root.text("name"), root.text("story")
    scenario = Scenario(
        name=path.stem if name is None else name,
        story=(story or "").strip(),
        link=_link(root),
        server_tcp=_tcp(root, "server_tcp", default.server_tcp),
        client_tcp=_tcp(root, "client_tcp", default.client_tcp),
        workload=_workload(root),
        servers=servers,
        expectations=_expectations(root, {server.label for server in servers}),
    )
    root.finish()
    check_scenario(scenario, str(path))
    return scenario


def _refuse_passwords(table: Table) -> None:
    for name in table.names():
        if "password" in name.lower() and "file" not in name.lower():
            raise table.fault(name, _PASSWORD, hint=_PASSWORD_HINT)
        value = table.value(name)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                _refuse_passwords(Table(inner, table.file, table.place(name)))
    table.forget()


def _link(root: Table) -> Link:
    default = Link()
    table = root.table("link")
    if table is None:
        return default
    to_client, to_server = _directions(table, default)
    backend, mtu, offloads, seed = (
        table.choice("backend", Backend),
        table.integer("mtu"),
        table.flag("offloads"),
        table.integer("seed"),
    )
    table.finish()
    return Link(
        to_client=to_client,
        to_server=to_server,
        backend=_or(backend, default.backend),
        mtu=_or(mtu, default.mtu),
        offloads=_or(offloads, default.offloads),
        seed=_or(seed, default.seed),
    )


def _directions(table: Table, default: Link) -> tuple[Emulation, Emulation]:
    """Return both directions: the link's own keys speak of the server's egress, and `split` halves the round trip."""
    back, there = table.table("to_client"), table.table("to_server")
    rtt, split = table.duration("rtt"), table.flag("split") or False
    to_client = _emulation(table, default.to_client)
    if rtt is not None and table.has("delay"):
        raise table.fault("delay", "given twice: link.rtt says it too")
    for name in ("delay", "jitter", "loss", "rate", "limit"):
        said = name if table.has(name) else "rtt" if name == "delay" and rtt is not None else None
        if said is not None and back is not None and back.has(name):
            raise back.fault(name, f"given twice: link.{said} says it too")
    whole = _or(rtt, to_client.delay)
    outward = whole // 2 if split else 0
    to_client = replace(to_client, delay=whole - outward)
    to_server = replace(default.to_server, delay=outward, limit=to_client.limit)
    if split and (table.has("delay") or _has_delay(back) or _has_delay(there)):
        raise table.fault("split", "expected no delay beside it: it halves link.rtt")
    if back is not None:
        to_client = _finished(back, _emulation(back, to_client))
    if there is not None:
        to_server = _finished(there, _emulation(there, to_server))
    return to_client, to_server


def _has_delay(table: Table | None) -> bool:
    return table is not None and table.has("delay")


def _finished(table: Table, emulation: Emulation) -> Emulation:
    table.finish()
    return emulation


def _emulation(table: Table, default: Emulation) -> Emulation:
    return Emulation(
        delay=_or(table.duration("delay"), default.delay),
        jitter=_or(table.duration("jitter"), default.jitter),
        loss=_or(table.fraction("loss"), default.loss),
        rate=_or(table.rate("rate"), default.rate),
        limit=_or(table.integer("limit"), default.limit),
    )


def _tcp(root: Table, name: str, default: Tcp) -> Tcp:
    table = root.table(name)
    if table is None:
        return default
    kernels_own = table.value("initcwnd") == _KERNEL
    tcp = Tcp(
        initcwnd=None if kernels_own else _or(table.integer("initcwnd"), default.initcwnd),
        congestion=_or(table.choice("congestion", Congestion), default.congestion),
        slow_start_after_idle=_or(table.flag("slow_start_after_idle"), default.slow_start_after_idle),
        no_metrics_save=_or(table.flag("no_metrics_save"), default.no_metrics_save),
        autocorking=_or(table.flag("autocorking"), default.autocorking),
    )
    table.finish()
    return tcp


def _server(table: Table, folder: Path) -> Server:
    text = table.text("use")
    if text is None:
        raise table.fault("use", 'expected a server like "clickhouse:26.7"')
    try:
        server = parse_server(text)
    except UsageError as error:
        raise table.fault("use", error.what, hint=error.hint) from error
    port = table.integer("port")
    if port is not None:
        if server.kind is ServerKind.REMOTE:
            raise table.fault("port", f'the port stands in use = "{text}"')
        server = replace(server, port=port)
    if server.kind is ServerKind.SCRIPTED:
        server = _scripted(table, server)
    if server.path is not None:
        server = replace(server, path=str(folder / server.path))
    label = table.text("label")
    table.finish({} if server.kind is ServerKind.SCRIPTED else {"train": _SCRIPTED_ONLY, "delivery": _SCRIPTED_ONLY})
    return server if label is None else replace(server, label=label)


_SCRIPTED_ONLY = 'only use = "scripted" has it'


def _scripted(table: Table, server: Server) -> Server:
    train, delivery = table.text("train"), table.choice("delivery", Delivery)
    if train is not None and server.path is not None:
        raise table.fault("train", f'given twice: use = "{server.label}" says it too')
    path, chosen = train or server.path, _or(delivery, server.delivery)
    named: Server = replace(server, path=path, delivery=chosen, label=scripted_label(path, chosen))
    return named


def _workload(root: Table) -> Workload:
    default = Workload()
    table = root.table("workload")
    if table is None:
        return default
    query, user, database = table.text("query"), table.text("user"), table.text("database")
    workload = Workload(
        query=_or(query, default.query).strip(),
        count=_or(table.integer("count"), default.count),
        idle=_or(table.duration("idle"), default.idle),
        timeout=_or(table.duration("timeout"), default.timeout),
        warmup=_or(table.integer("warmup"), default.warmup),
        user=_or(user, default.user),
        database=_or(database, default.database),
        settings=_settings(table.table("settings")),
    )
    table.finish()
    return workload


def _settings(table: Table | None) -> tuple[tuple[str, str], ...]:
    if table is None:
        return ()
    found = []
    for name in table.names():
        value = table.value(name)
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, int | float | str):
            raise table.fault(name, "expected a number, a text, true or false")
        found.append((name, str(value)))
    return tuple(found)


def _expectations(root: Table, labels: set[str]) -> tuple[tuple[str, Expectation], ...]:
    table = root.table("expect")
    if table is None:
        return ()
    found = []
    for label in table.names():
        if label not in labels:
            raise table.fault(label, f"no such server here; servers: {', '.join(sorted(labels))}")
        item = table.table(label)
        assert item is not None
        cause, trips = item.choice("cause", Cause), item.integer("extra_round_trips")
        if trips is not None and trips < 0:
            raise item.fault("extra_round_trips", f"expected 0 or more, got {trips}")
        item.finish()
        expectation = Expectation(cause=None if cause is None else cause.value, extra_round_trips=trips)
        found.append((label, expectation))
    return tuple(found)


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


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
        ("[workload]", _workload_values(work)),
        ("[workload.settings]", dict(work.settings)),
        *((f"[expect.{_toml(label)}]", _expectation_values(e)) for label, e in scenario.expectations),
    ]
    blocks = []
    for title, values in sections:
        lines = [title] if title else []
        lines += [f"{_key(name)} = {_toml(value)}" for name, value in values.items() if value is not None]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _workload_values(work: Workload) -> dict[str, Any]:
    return {
        "query": work.query,
        "count": work.count,
        "idle": exact_duration(work.idle),
        "timeout": exact_duration(work.timeout),
        "warmup": work.warmup,
        "user": work.user,
        "database": work.database,
    }


def _emulation_values(emulation: Emulation) -> dict[str, Any]:
    percent = f"{emulation.loss * 100:.10g}%"
    readable = "e" not in percent and parse_fraction(percent) == emulation.loss
    return {
        "delay": exact_duration(emulation.delay),
        "jitter": exact_duration(emulation.jitter),
        "loss": percent if readable else emulation.loss,
        "rate": None if emulation.rate is None else f"{emulation.rate}bit",
        "limit": emulation.limit,
    }


def _tcp_values(tcp: Tcp) -> dict[str, Any]:
    return {
        "initcwnd": _KERNEL if tcp.initcwnd is None else tcp.initcwnd,
        "congestion": tcp.congestion.value,
        "slow_start_after_idle": tcp.slow_start_after_idle,
        "no_metrics_save": tcp.no_metrics_save,
        "autocorking": tcp.autocorking,
    }


def _server_values(server: Server) -> dict[str, Any]:
    # Absolute paths: the file may be put anywhere.
    path = None if server.path is None else str(Path(server.path).absolute())
    port = server.port if server.kind is not ServerKind.REMOTE else None
    match server.kind:
        case ServerKind.SCRIPTED:
            return {
                "use": "scripted",
                "delivery": server.delivery.value,
                "train": path,
                "port": port,
                "label": server.label,
            }
        case ServerKind.BINARY:
            return {"use": path, "port": port, "label": server.label}
        case ServerKind.ENGINE:
            return {"use": f"clickhouse:{server.version}", "port": port, "label": server.label}
    host = f"[{server.host}]" if server.host and ":" in server.host else server.host
    return {"use": f"{host}:{server.port}", "label": server.label}


def _expectation_values(expectation: Expectation) -> dict[str, Any]:
    return {"cause": expectation.cause, "extra_round_trips": expectation.extra_round_trips}


def exact_duration(duration: int) -> str:
    """Return `duration` (ns) in the largest unit in which it is a whole number."""
    for unit, size in (("s", NS_PER_S), ("ms", NS_PER_MS), ("us", NS_PER_US)):
        if duration % size == 0:
            return f"{duration // size}{unit}"
    return f"{duration}ns"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    escaped = "".join(
        {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(c)
        or (f"\\u{ord(c):04x}" if ord(c) < 0x20 or ord(c) == 0x7F else c)
        for c in str(value)
    )
    return f'"{escaped}"'

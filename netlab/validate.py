"""What a scenario may hold, checked in one place for files and flags alike, and how a server is spelt."""

import re

from netlab.errors import ScenarioError, UsageError
from netlab.scenario import Delivery, Emulation, Link, Scenario, Server, ServerKind, Workload
from netlab.units import NS_PER_S, format_duration

ENGINES = ("26.7", "26.9")
_LONGEST_DELAY = 60 * NS_PER_S
_LONGEST_WAIT = 3600 * NS_PER_S
_MOST_QUERIES = 100_000
_MOST_SEGMENTS = 1_000
_HOST_PORT = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})", re.ASCII)
_SPELLINGS = "clickhouse:26.7, clickhouse:26.9, scripted, scripted:batched, scripted:FILE.toml, a path, or HOST:PORT"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_LONGEST_NAME = 255
_LONGEST_QUERY = 1 << 18  # ClickHouse's own max_query_size


def parse_server(text: str) -> Server:
    """Return the server that `text` names. Raises UsageError that lists the spellings."""
    kind, colon, rest = text.partition(":")
    if kind == "clickhouse" and colon:
        if rest not in ENGINES:
            raise UsageError(f'no engine "{rest}"', hint=f"pinned engines: {', '.join(ENGINES)}")
        return Server(kind=ServerKind.ENGINE, label=text, version=rest)
    if kind == "scripted":
        return _scripted(text, rest if colon else "")
    if "/" in text:
        return Server(kind=ServerKind.BINARY, label=text, path=text)
    match = _HOST_PORT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise UsageError(f'no server "{text}"', hint=f"spell it as {_SPELLINGS}")
    return Server(kind=ServerKind.REMOTE, label=text, host=match["v6"] or match["host"], port=int(match["port"]))


def scripted_label(path: str | None, delivery: Delivery) -> str:
    """Return how `parse_server` spells a scripted server."""
    parts = ["scripted", *([path] if path else []), *([delivery.value] if delivery is not Delivery.NODELAY else [])]
    return ":".join(parts)


def check_scenario(scenario: Scenario, where: str = "") -> None:
    """Raise ScenarioError for the first value that no run can have; `where` (a file) goes before its key."""
    faults = (
        *_link_faults(scenario.link),
        *_workload_faults(scenario.workload),
        *_tcp_faults(scenario),
        *_server_faults(scenario),
        ("name", _named(scenario.name, _NAME, 'a short name like "idle-window-restart"')),
    )
    for key, fault in faults:
        if fault:
            raise ScenarioError(f"{where}{': ' if where else ''}{key}: {fault}", hint="see `netlab repro --help`")


def _scripted(text: str, rest: str) -> Server:
    """Return the scripted server that `rest` tells more of: FILE.toml, a delivery, or FILE.toml:DELIVERY."""
    deliveries = {delivery.value: delivery for delivery in Delivery}
    path, _, last = rest.rpartition(":")
    if last in deliveries:
        delivery = deliveries[last]
    else:
        path, delivery = rest, Delivery.NODELAY
    if path and not path.endswith(".toml"):
        raise UsageError(
            f'no delivery "{rest}" of the scripted server', hint=f"one of {', '.join(deliveries)}, or a FILE.toml"
        )
    return Server(kind=ServerKind.SCRIPTED, label=text, path=path or None, delivery=delivery)


def _server_faults(scenario: Scenario) -> list[tuple[str, str]]:
    servers = scenario.servers
    labels = [server.label for server in servers]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    return [
        ("server", "" if servers else f"expected at least one: {_SPELLINGS}"),
        ("server", "" if twice is None else f'expected different servers, got "{twice}" twice'),
        *(("server.label", "" if server.label.strip() else "expected a text, got nothing") for server in servers),
        *(("server.port", _counted(server.port, 1, 65_535)) for server in servers),
    ]


def _link_faults(link: Link) -> list[tuple[str, str]]:
    faults = [
        *_emulation_faults("link.to_client", link.to_client),
        *_emulation_faults("link.to_server", link.to_server),
        ("link.mtu", "" if 576 <= link.mtu <= 9000 else f"expected 576 to 9000 bytes, got {link.mtu}"),
    ]
    if link.rtt == 0:
        faults.append(("link.rtt", 'expected a duration longer than zero, such as "32ms"'))
    return faults


def _emulation_faults(key: str, emulation: Emulation) -> list[tuple[str, str]]:
    return [
        (f"{key}.delay", _between(emulation.delay, 0, _LONGEST_DELAY)),
        (f"{key}.jitter", _between(emulation.jitter, 0, emulation.delay, "at most the delay")),
        (f"{key}.loss", "" if 0 <= emulation.loss < 1 else f"expected 0 to less than 100%, got {emulation.loss:.0%}"),
        (f"{key}.rate", "" if emulation.rate is None or emulation.rate >= 1000 else "expected at least 1kbit"),
        (f"{key}.limit", "" if 1 <= emulation.limit <= 10**6 else f"expected 1 to 1000000, got {emulation.limit}"),
    ]


def _workload_faults(workload: Workload) -> list[tuple[str, str]]:
    return [
        ("workload.count", _counted(workload.count, 1, _MOST_QUERIES)),
        ("workload.warmup", _counted(workload.warmup, 0, _MOST_QUERIES)),
        ("workload.idle", _between(workload.idle, 0, _LONGEST_WAIT)),
        ("workload.timeout", _between(workload.timeout, NS_PER_S // 1000, _LONGEST_WAIT)),
        ("workload.query", "" if workload.query.strip() else "expected SQL, got nothing"),
        ("workload.query", "" if len(workload.query) <= _LONGEST_QUERY else f"longer than {_LONGEST_QUERY} characters"),
        ("workload.user", _printable(workload.user)),
        ("workload.database", _printable(workload.database)),
        *((f"workload.settings.{name}", _named(name, _SETTING, "a setting's name")) for name, _ in workload.settings),
    ]


def _tcp_faults(scenario: Scenario) -> list[tuple[str, str]]:
    ends = (("server_tcp", scenario.server_tcp), ("client_tcp", scenario.client_tcp))
    return [
        (f"{name}.initcwnd", _counted(tcp.initcwnd, 1, _MOST_SEGMENTS))
        for name, tcp in ends
        if tcp.initcwnd is not None
    ]


def _named(value: str, form: re.Pattern[str], words: str) -> str:
    return "" if form.fullmatch(value) else f'expected {words}, got "{value}"'


def _printable(value: str) -> str:
    good = len(value) <= _LONGEST_NAME and value.isprintable()
    return "" if good else f"expected a name of at most {_LONGEST_NAME} printable characters"


def _counted(value: int, low: int, high: int) -> str:
    return "" if low <= value <= high else f"expected {low} to {high}, got {value}"


def _between(value: int, low: int, high: int, words: str = "") -> str:
    if low <= value <= high:
        return ""
    bounds = words or f"{format_duration(low)} to {format_duration(high)}"
    return f"expected {bounds}, got {format_duration(value)}"

"""Option types and the options that describe a scenario: flags override its file, which overrides the defaults."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from netlab.errors import UsageError
from netlab.scenario import Backend, Congestion, Emulation, Link, Scenario, Server, Tcp, Workload
from netlab.units import parse_duration, parse_fraction, parse_rate

_LONGEST_PASSWORD = 256
_LARGEST_FILE = 1 << 20  # four times the longest query, so that its own fault is said


class _Parsed(click.ParamType[Any]):
    """A value that a `parse_*` function reads; its ValueError is the message."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f'expected NAME=VALUE, got "{text}"')
    return name.strip(), value.strip()


def _parse_server(text: str) -> Server:
    from netlab.validate import parse_server

    try:
        return parse_server(text)
    except UsageError as error:
        raise ValueError(str(error)) from error


Value = TypeVar("Value", Link, Tcp, Workload, Emulation)

DURATION = _Parsed("duration", parse_duration)
RATE = _Parsed("rate", parse_rate)
FRACTION = _Parsed("fraction", parse_fraction)
SETTING = _Parsed("name=value", _parse_setting)
SERVER = _Parsed("server", _parse_server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Scenario flags as given; None means that the flag was not given."""

    scenario: Path | None = None
    rtt: int | None = None
    split: bool = False
    jitter: int | None = None
    loss: float | None = None
    rate: int | None = None
    limit: int | None = None
    mtu: int | None = None
    emulation: str | None = None
    seed: int | None = None
    offloads: bool | None = None
    initcwnd: int | None = None
    congestion: str | None = None
    slow_start_after_idle: bool | None = None
    server: tuple[Server, ...] = ()
    query: str | None = None
    query_file: Path | None = None
    count: int | None = None
    idle: int | None = None
    timeout: int | None = None
    warmup: int | None = None
    user: str | None = None
    database: str | None = None
    setting: tuple[tuple[str, str], ...] = ()


_LINK = (
    click.option("--rtt", type=DURATION, help="Round trip of the path, all of it on the server's egress [32ms]."),
    click.option("--split", is_flag=True, help="Put half of the round trip on each direction."),
    click.option("--jitter", type=DURATION, help="Uniform jitter of the server's egress, either way [0]."),
    click.option("--loss", type=FRACTION, help='Random loss on the server\'s egress, such as "1%" [0].'),
    click.option("--rate", type=RATE, help='Bottleneck rate of the server\'s egress, such as "100mbit" [none].'),
    click.option("--limit", type=int, help="Packets that the delay line holds before it drops [5000]."),
    click.option("--mtu", type=int, help="MTU of the path [1500]."),
    click.option("--emulation", type=click.Choice([b.value for b in Backend]), help="What delays packets [auto]."),
    click.option("--seed", type=int, help="Seed of the delay line's randomness [1]."),
    click.option("--offloads/--no-offloads", default=None, help="Leave TSO, GSO and GRO on at the ends [off]."),
)
_TCP = (
    click.option("--initcwnd", type=int, help="The server's initial congestion window, in segments [8]."),
    click.option("--congestion", type=click.Choice([c.value for c in Congestion]), help="Congestion control [cubic]."),
    click.option(
        "--slow-start-after-idle/--no-slow-start-after-idle",
        default=None,
        help="The server's tcp_slow_start_after_idle [on].",
    ),
)
_WORKLOAD = (
    click.option("--query", help="The SQL to run [SELECT max(id) FROM benchmark_test]."),
    click.option("--query-file", type=click.Path(path_type=Path), help="Read the SQL from a file."),
    click.option("--count", type=int, help="Measured queries per server [5]."),
    click.option("--idle", type=DURATION, help="Silence before each query [2s]."),
    click.option("--timeout", type=DURATION, help="How long one query may take [30s]."),
    click.option("--warmup", type=int, help="Unmeasured queries first [5]."),
    click.option("--user", help="User name [default]."),
    click.option("--database", help="Database [default]."),
    click.option(
        "--setting", type=SETTING, multiple=True, help="A query setting, such as send_profile_events=0; repeatable."
    ),
)
PASSWORD = click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    help="File that holds the password; else the environment's NETLAB_PASSWORD. Never on the command line.",
)
OUTPUT = (
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout instead of text."),
    click.option("--quiet", is_flag=True, help="No progress on stderr."),
)
_SCENARIO = click.option("--scenario", type=click.Path(path_type=Path), help="Scenario file (TOML); flags override it.")
_SERVER = click.option(
    "--server",
    type=SERVER,
    multiple=True,
    help="clickhouse:26.7, clickhouse:26.9, a binary's path, scripted, scripted:batched, scripted:FILE.toml; "
    "repeatable [both engines].",
)


def scenario_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with every option that describes a scenario."""
    return _apply((_SCENARIO, _SERVER, *_LINK, *_TCP, *_WORKLOAD), function)


def link_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the options of the link and of TCP."""
    return _apply((_SCENARIO, *_LINK, *_TCP), function)


def workload_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the options of the workload."""
    return _apply(_WORKLOAD, function)


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with --json and --quiet."""
    return _apply(OUTPUT, function)


def build_scenario(given: dict[str, Any]) -> Scenario:
    """Return the checked scenario that the flags `given` describe.

    Keys are the fields of Flags. Raises ScenarioError or UsageError.
    """
    from netlab.scenario_file import load_scenario
    from netlab.validate import check_scenario

    flags = Flags(**{f.name: given[f.name] for f in fields(Flags) if f.name in given})
    base = Scenario() if flags.scenario is None else load_scenario(flags.scenario)
    scenario = replace(
        base,
        link=_link(base.link, flags),
        server_tcp=_tcp(base.server_tcp, flags),
        client_tcp=replace(base.client_tcp, congestion=Congestion(flags.congestion or base.client_tcp.congestion)),
        servers=flags.server or base.servers,
        workload=_workload(base.workload, flags),
    )
    check_scenario(scenario)
    return scenario


def read_password(password_file: Path | None) -> str:
    """Return the password from `password_file` or NETLAB_PASSWORD; "" without either. Raises UsageError.

    It leaves the environment, which every process that we start would inherit.
    """
    password = os.environ.pop("NETLAB_PASSWORD", "")
    if password_file is not None:
        password = _read(password_file, "--password-file", "the password alone").rstrip("\r\n")
    if len(password.encode(errors="surrogateescape")) > _LONGEST_PASSWORD:
        raise UsageError(f"the password is longer than {_LONGEST_PASSWORD} bytes", hint="is this the right file?")
    try:
        password.encode()
    except UnicodeEncodeError as error:
        raise UsageError("NETLAB_PASSWORD is not UTF-8", hint="give it with --password-file") from error
    return password


def _read(path: Path, option: str, what: str) -> str:
    """Return the text of a file that `option` names. Raises UsageError."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
        if len(raw) > _LARGEST_FILE:
            raise UsageError(f"{option} {path}: larger than {_LARGEST_FILE} bytes", hint=f"name a file with {what}")
        return raw.decode()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}", hint=f"name a file with {what}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {path}: not text in UTF-8", hint=f"name a file with {what}") from error


def _link(base: Link, flags: Flags) -> Link:
    if flags.rtt is not None:
        back = flags.rtt // 2 if flags.split else 0
        base = _delays(base, flags.rtt - back, back)
    elif flags.split:
        base = _delays(base, base.rtt - base.rtt // 2, base.rtt // 2)
    egress = _given(base.to_client, jitter=flags.jitter, loss=flags.loss, rate=flags.rate, limit=flags.limit)
    ingress = _given(base.to_server, limit=flags.limit)
    backend = Backend(flags.emulation) if flags.emulation else base.backend
    rest = _given(base, mtu=flags.mtu, seed=flags.seed, offloads=flags.offloads)
    return replace(rest, to_client=egress, to_server=ingress, backend=backend)


def _delays(link: Link, to_client: int, to_server: int) -> Link:
    there: Emulation = replace(link.to_server, delay=to_server)
    return replace(link, to_client=replace(link.to_client, delay=to_client), to_server=there)


def _tcp(base: Tcp, flags: Flags) -> Tcp:
    congestion = Congestion(flags.congestion) if flags.congestion else None
    idle = flags.slow_start_after_idle
    return _given(base, initcwnd=flags.initcwnd, congestion=congestion, slow_start_after_idle=idle)


def _workload(base: Workload, flags: Flags) -> Workload:
    query = flags.query
    if flags.query_file is not None:
        if query is not None:
            raise UsageError("--query and --query-file: only one of them", hint="leave one out")
        query = _read(flags.query_file, "--query-file", "SQL").strip()
    settings = tuple({**dict(base.settings), **dict(flags.setting)}.items())
    changed = _given(base, query=query, count=flags.count, idle=flags.idle, timeout=flags.timeout, warmup=flags.warmup)
    return replace(_given(changed, user=flags.user, database=flags.database), settings=settings)


def _given(base: Value, **changes: Any) -> Value:
    chosen = {name: value for name, value in changes.items() if value is not None}
    return replace(base, **chosen) if chosen else base


def _apply(options: tuple[Callable[..., Any], ...], function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function

"""Start a clickhouse binary of any version, named by its path."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from netlab.errors import NetlabError, ServerError, UsageError
from netlab.hosts import Host
from netlab.scenario import Server
from netlab.servers.child import ChildServer
from netlab.servers.statements import TABLE, Client
from netlab.units import format_duration, ms, seconds

_READY = seconds(60)
_RETRY = ms(20)
_ASK_S = 20  # a debug build under a debugger is slow; anything slower is no server
_CLICKHOUSE = re.compile(rb"clickhouse", re.IGNORECASE)


def start(server: Server, host: Host, log_path: str) -> ChildServer:
    """Start the binary at `server.path` at `host`; return when it answers and has its table.

    Raises UsageError for a path that cannot be executed, ServerError for what is no ClickHouse server or does not
    start.
    """
    program = find_program(server.path or "")
    argument = {"address": host.address, "port": server.port, "scratch": host.scratch, "program": program}
    argv = [sys.executable, "-P", str(Path(__file__).with_name("binary_child.py")), json.dumps(argument)]
    # Where versions from 20.x to 24.x fork a watchdog, a SIGKILL would end that alone.
    env = {**os.environ, "CLICKHOUSE_WATCHDOG_ENABLE": "0", "TMPDIR": host.scratch}
    running = ChildServer(host, server.label, server.port, log_path)
    running.launch(argv, env=env, patience=_READY, readiness=False)
    try:
        deadline = time.monotonic_ns() + _READY
        with closing(_connect(running, host, deadline)) as client:
            client.run(TABLE)
            running.version = client.hello.version
    except (OSError, NetlabError) as error:
        failed = running.died() if not running.alive() else _refused(server, error, log_path)
        running.close()
        raise failed from error
    except BaseException:
        running.close()
        raise
    return running


def find_program(path: str) -> list[str]:
    """Return the words that start the server at `path`: the file alone, or with "server" after it.

    The name tells: clickhouse-server is a server; clickhouse is a bundle that wants to be told. Raises UsageError,
    ServerError.
    """
    file = Path(path).absolute()
    if not file.exists():
        raise UsageError(f"{path}: no such file", hint="name a clickhouse or clickhouse-server binary by its path")
    if not file.is_file() or not os.access(file, os.X_OK):
        raise UsageError(f"{path}: not an executable file", hint=f"chmod +x {path}, or name another binary")
    words = [str(file)] if "server" in file.name else [str(file), "server"]
    if not _is_clickhouse(file, words):
        raise ServerError(f"{path} is not a ClickHouse server", hint="name a clickhouse or clickhouse-server binary")
    return words


def _is_clickhouse(file: Path, words: list[str]) -> bool:
    """Ask for its version; 2018's servers know no --version, so the file itself is searched for the name then."""
    try:
        answer = subprocess.run(
            [*words, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if answer.returncode == 0:
        return _CLICKHOUSE.search(answer.stdout) is not None
    return _mentions_clickhouse(file)


def _mentions_clickhouse(file: Path) -> bool:
    with file.open("rb") as content:
        tail = b""
        while piece := content.read(1 << 20):
            if _CLICKHOUSE.search(tail + piece):
                return True
            tail = piece[-16:]
    return False


def _connect(running: ChildServer, host: Host, deadline: int) -> Client:
    while True:
        try:
            return Client(host, running.port, deadline)
        except ConnectionRefusedError:
            if not running.alive():
                raise
            if time.monotonic_ns() > deadline:
                raise TimeoutError(f"no answer after {format_duration(_READY)}") from None
            time.sleep(_RETRY / 1e9)


def _refused(server: Server, error: Exception, log_path: str) -> ServerError:
    return ServerError(f"{server.label} started but its table could not be made: {error}", hint=f"see {log_path}")

"""Inside an engine's process: the whole ClickHouse in a Python wheel, made to listen. Imports only the engine.

Argument: JSON {"address", "port", "http_port": null | N, "scratch", "users": null | TEXT}. Descriptor 3 takes
"ready\\n" once the listener answers; descriptor 4 is the owner's lifeline. Exit status: 0 ended as asked, 70 the engine
ended by itself, 73 no folder for its data.

The engine serves as long as a statement runs, so the last statement reads a FIFO that this process holds open; closing
it ends the statement, and with it the engine, cleanly.
"""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn
from xml.sax.saxutils import escape

# The article's table: 939 rows, the same on every start.
_TABLE = (
    "CREATE TABLE default.benchmark_test (id UInt64, name String, value Float64, created DateTime) "
    "ENGINE = MergeTree ORDER BY id; "
    "INSERT INTO default.benchmark_test SELECT number, concat('name-', toString(number)), number / 7, "
    "toDateTime('2026-01-01 00:00:00') + number FROM numbers(939); "
)
_PR_SET_NO_NEW_PRIVS = 38
_READY, _LIFELINE = 3, 4
_ENDED, _NO_FOLDER = 70, 73
# How long to wait for the engine's own end; its data is scratch, so nothing is lost beyond that.
_CLEAN_END_S = 0.3


def main() -> None:
    """Serve until SIGTERM, SIGINT, or the owner's end."""
    config = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Blocked before the engine starts its threads: they inherit the mask, and only sigwait sees the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        folder = Path(tempfile.mkdtemp(prefix="clickhouse-", dir=config["scratch"]))
        os.chdir(folder)  # the engine reads ./config.xml
        _write_config(config)
        fifo = folder / "alive.fifo"
        os.mkfifo(fifo, 0o600)
        alive = os.open(fifo, os.O_RDWR)
    except OSError as error:
        _give_up(_NO_FOLDER, f"no folder for the data below {config['scratch']}: {error.strerror}")
    # TCP last: it is what tells that the engine is ready.
    listen = ("SYSTEM START LISTEN HTTP; " if config["http_port"] else "") + "SYSTEM START LISTEN TCP; "
    ended = threading.Event()
    statements = f"{_TABLE}{listen}SELECT count() FROM file('{fifo}', 'LineAsString', 'line String')"
    for target, arguments in (
        (_serve, (statements, folder / "data", ended)),
        (_announce, (config["address"], config["port"])),
        (_watch_owner, ()),
    ):
        threading.Thread(target=target, args=arguments, daemon=True).start()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    if ended.is_set():
        _give_up(_ENDED, "the engine ended by itself")
    os.close(alive)
    ended.wait(_CLEAN_END_S)
    os._exit(0)  # the interpreter's own end would wait for the engine's threads


def _write_config(config: dict[str, Any]) -> None:
    parts = [f"<listen_host>{config['address']}</listen_host>", f"<tcp_port>{config['port']}</tcp_port>"]
    if config["http_port"]:
        parts.append(f"<http_port>{config['http_port']}</http_port>")
    if config["users"]:
        users = Path("users.xml").resolve()
        users.write_text(config["users"])
        parts.append(f"<users_config>{escape(str(users))}</users_config>")
    # Small caches: the table is small, and no section asks for system logs, which would write behind our back.
    parts.append("<mark_cache_size>67108864</mark_cache_size>")
    Path("config.xml").write_text(f"<clickhouse>{''.join(parts)}</clickhouse>\n")


def _serve(statements: str, data: Path, ended: threading.Event) -> None:
    try:
        engine = importlib.import_module("chdb._chdb")
        # "TabSeparated", not "CSV": it becomes the HTTP interface's default format.
        engine.query(statements, "TabSeparated", path=str(data))
    except (ImportError, RuntimeError) as error:
        sys.stderr.write(f"engine: {error}\n")
        sys.stderr.flush()
    ended.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _announce(address: str, port: int) -> None:
    # Connects and closes cleanly: 26.7 aborts on a reset or on a first byte that is no Hello. The owner bounds this.
    while True:
        with socket.socket() as attempt:
            try:
                attempt.connect((address, port))
            except OSError:
                time.sleep(0.005)
                continue
            attempt.shutdown(socket.SHUT_WR)
            attempt.settimeout(2)
            with contextlib.suppress(OSError):
                attempt.recv(1)  # its FIN: only now may the socket go without a reset
            break
    os.write(_READY, b"ready\n")
    os.close(_READY)


def _watch_owner() -> None:
    with contextlib.suppress(OSError):
        os.read(_LIFELINE, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _give_up(status: int, why: str) -> NoReturn:
    sys.stderr.write(f"engine: {why}\n")
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()

"""Inside an engine's process: the whole ClickHouse in a Python wheel, made to listen. Runs alone, imports only the engine.

Argument: JSON {"address", "port", "http_port", "scratch", "users": null | {...}}. Descriptor 3 takes "ready\\n" once
the listener answers; descriptor 4 is the owner's lifeline.

The engine serves as long as a statement runs, so the last statement reads a FIFO that this process holds open; closing
it ends the statement, and with it the engine, cleanly.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time

# The article's table: 939 rows.
_TABLE = (
    "CREATE TABLE IF NOT EXISTS default.benchmark_test (id UInt64, name String, value Float64, created DateTime) "
    "ENGINE = MergeTree ORDER BY id; "
    "INSERT INTO default.benchmark_test SELECT number, concat('name-', toString(number)), number / 7, "
    "toDateTime('2026-01-01 00:00:00') + number FROM numbers(939); "
)
_CONFIG = """<clickhouse>
<listen_host>{address}</listen_host><tcp_port>{port}</tcp_port>{http}
<mark_cache_size>67108864</mark_cache_size>{users}
</clickhouse>
"""
_PR_SET_NO_NEW_PRIVS = 38


def main() -> None:
    """Serve until SIGTERM, SIGINT, or the owner's end."""
    config = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Blocked before the engine starts its threads: they inherit the mask, and only sigwait sees the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    folder = os.path.join(config["scratch"], f"clickhouse-{config['port']}-{os.getpid()}")
    os.makedirs(folder, mode=0o700)
    os.chdir(folder)
    _write_config(config)
    fifo_path = os.path.join(folder, "alive.fifo")
    os.mkfifo(fifo_path)
    fifo = os.open(fifo_path, os.O_RDWR)
    threading.Thread(target=_serve, args=(folder, fifo_path), daemon=True).start()
    threading.Thread(target=_announce, args=(config["address"], config["port"]), daemon=True).start()
    threading.Thread(target=_watch_owner, daemon=True).start()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    os.close(fifo)
    _served.wait(0.3)  # a clean end where it is quick; the data is scratch either way
    os._exit(0)


_served = threading.Event()


def _write_config(config: dict) -> None:
    http = f"<http_port>{config['http_port']}</http_port>" if config.get("http_port") else ""
    users = ""
    if config.get("users"):
        with open("users.xml", "w") as file:
            file.write(config["users"])
        users = f"<users_config>{os.path.abspath('users.xml')}</users_config>"
    with open("config.xml", "w") as file:
        file.write(_CONFIG.format(address=config["address"], port=config["port"], http=http, users=users))


def _serve(folder: str, fifo: str) -> None:
    from chdb import _chdb

    listen = "SYSTEM START LISTEN TCP; SYSTEM START LISTEN HTTP; " if "<http_port>" in open("config.xml").read() else (
        "SYSTEM START LISTEN TCP; "
    )
    statements = _TABLE + listen + f"SELECT count() FROM file('{fifo}', 'LineAsString', 'line String')"
    try:
        # "TabSeparated", not "CSV": it becomes the HTTP interface's default format.
        _chdb.query(statements, "TabSeparated", path=os.path.join(folder, "data"))
    except RuntimeError as error:
        print(f"engine: {error}", file=sys.stderr, flush=True)
        os._exit(70)
    _served.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _announce(address: str, port: int) -> None:
    # Connects and closes cleanly: 26.7 aborts on a reset or on a first byte that is no Hello.
    while True:
        with socket.socket() as attempt:
            try:
                attempt.connect((address, port))
            except OSError:
                time.sleep(0.01)
                continue
            attempt.shutdown(socket.SHUT_WR)
            attempt.settimeout(2)
            try:
                attempt.recv(1)
            except OSError:
                pass
            break
    os.write(3, b"ready\n")
    os.close(3)


def _watch_owner() -> None:
    try:
        os.read(4, 1)
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()

"""The scripted server's process. Configuration: JSON in the environment, as `Config` spells it.

Descriptor 3 takes "ready\\n" once the listening socket stands; descriptor 4 is the owner's lifeline. The log, one JSON
object a line, goes to standard output.
"""

import contextlib
import gc
import json
import os
import resource
import signal
import socket as sockets
import sys
import threading
import time
from dataclasses import replace
from typing import NoReturn, TypedDict

from netlab.errors import NetlabError
from netlab.scenario import Delivery
from netlab.servers.scripted_native import NativeSession, Play
from netlab.servers.scripted_player import Player, ServerEndError, StoppedError, prepare
from netlab.servers.scripted_raw import RawSession
from netlab.servers.scripted_train import Protocol, parse_train

VARIABLE = "NETLAB_SCRIPTED"
_READY = 3
_LIFELINE = 4
_MOST_CLIENTS = 128
_STACK = 1 << 20  # compressors and deeply nested types need much of it
# A backstop behind the sessions' own limits: what a hostile compressed block could ask for at once. The C library may
# keep 40 MiB of ended threads' stacks, which count too.
_MEMORY = (110 + 40) << 20
_EXIT = 3


class Config(TypedDict):
    """What the owner says."""

    address: str
    port: int
    delivery: str
    train: str  # TOML
    file: str
    password: str | None  # replaces the train's


_lock = threading.RLock()  # of the log, and of the set of players
_players: dict[int, tuple["ConnectionLog", int, Player]] = {}  # by connection: what its last lines must tell of


class ConnectionLog:
    """One connection's lines; they are written between queries, never inside a train."""

    def __init__(self, number: int) -> None:
        self._number = number

    def playing(self, query: int, player: Player) -> None:
        """Note that `player` answers now: should the server end, its sends are told all the same."""
        with _lock:
            _players[self._number] = (self, query, player)

    def close(self, reason: str) -> None:
        """Write the connection's last line."""
        with _lock:
            _players.pop(self._number, None)
            self.note("end", reason=reason)

    def note(self, what: str, **fields: object) -> None:
        """Write an event's line."""
        _say({"event": what, "at": time.time_ns(), "connection": self._number, **fields})

    def wrote(self, query: int, player: Player) -> None:
        """Write a line for each send, and let the player forget them."""
        with _lock:
            sends, player.sent = player.sent, []
            _say(
                *(
                    {
                        "event": "send",
                        "at": sent.at,
                        "connection": self._number,
                        "query": query,
                        "bytes": sent.size,
                        "parts": sent.parts,
                    }
                    for sent in sends
                )
            )


def main() -> None:
    """Serve until SIGTERM or the owner's end."""
    config: Config = json.loads(os.environ.pop(VARIABLE))
    threading.stack_size(_STACK)
    train = parse_train(config["train"], config["file"])
    if config["password"] is not None:
        train = replace(train, login=replace(train.login, password=config["password"]))
    play = Play(train=train, delivery=Delivery(config["delivery"]))
    with sockets.create_server((config["address"], config["port"]), backlog=128) as listener:
        threading.Thread(target=_watch_owner, daemon=True).start()
        signal.signal(signal.SIGTERM, lambda number, frame: _end(0))
        gc.collect()
        gc.freeze()  # a collection in the middle of a train would show as a gap
        os.write(_READY, b"ready\n")
        os.close(_READY)
        _accept(listener, play)


def _accept(listener: sockets.socket, play: Play) -> None:
    slots = threading.BoundedSemaphore(_MOST_CLIENTS)
    number = 0
    while True:
        try:
            connection, _ = listener.accept()
        except OSError as error:  # reset before it was accepted, or no descriptors left: the others go on
            _say({"event": "not accepted", "at": time.time_ns(), "reason": error.strerror})
            time.sleep(0.01)
            continue
        number += 1
        # Stacks count whole, however little of them is touched.
        limit = _MEMORY + (threading.active_count() + 1) * _STACK
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        if not slots.acquire(blocking=False):
            connection.close()
            _say({"event": "refused", "at": time.time_ns(), "connection": number, "reason": "too many clients"})
            continue
        try:
            threading.Thread(target=_serve, args=(connection, play, number, slots), daemon=True).start()
        except RuntimeError as error:  # no memory for its thread
            connection.close()
            slots.release()
            _say({"event": "refused", "at": time.time_ns(), "connection": number, "reason": str(error)})


def _serve(connection: sockets.socket, play: Play, number: int, slots: threading.BoundedSemaphore) -> None:
    log = ConnectionLog(number)
    reason = "the client left"
    try:
        with connection:
            prepare(connection, play.delivery, play.train.send_buffer)
            session = RawSession if play.train.protocol is Protocol.RAW else NativeSession
            session(connection, play, log).run()
    except ServerEndError:
        _end(_EXIT)
    except StoppedError as stop:
        reason = stop.what
    except NetlabError as error:
        reason = f"dropped: {error.what}"
    except OSError as error:
        reason = f"lost: {error.strerror}"
    except (MemoryError, RecursionError):
        reason = "dropped: it would have taken all memory"
    finally:
        slots.release()
        log.close(reason[:500])


def _watch_owner() -> None:
    with contextlib.suppress(OSError):
        os.read(_LIFELINE, 1)
    _end(0)


def _end(status: int) -> NoReturn:
    """End the process, the log told to its last send."""
    with _lock:
        for log, query, player in list(_players.values()):
            log.wrote(query, player)
        os._exit(status)


def _say(*lines: object) -> None:
    with _lock:
        sys.stdout.write("".join(json.dumps(line) + "\n" for line in lines))
        sys.stdout.flush()


if __name__ == "__main__":
    main()

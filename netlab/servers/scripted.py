"""The scripted server: a process of ours at a host that plays a write train to real clients.

Its log holds a JSON object a line: `read_log` gives them back as values.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import netlab
from netlab.errors import OutputError, ScenarioError, UsageError
from netlab.hosts import Host
from netlab.native.blocks import Dialect
from netlab.scenario import Server
from netlab.servers.child import ChildServer
from netlab.servers.scripted_packets import Packets
from netlab.servers.scripted_train import Answer, Group, Protocol, Repeat, Step, Train, load_train
from netlab.units import seconds

_READY = seconds(15)
_VARIABLE = "NETLAB_SCRIPTED"
_REMARKS = {3: "its train ends it"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSend:
    """One send() of the server: when (CLOCK_REALTIME ns), on which connection, for which query, how many bytes."""

    at: int
    connection: int
    query: int  # 0: the login
    size: int
    parts: tuple[str, ...]


def start(server: Server, host: Host, log_path: str, *, password: str | None = None) -> ChildServer:
    """Start the scripted server at `host`; `password` replaces the one that its train asks of clients.

    Raises ScenarioError for a bad train, ServerError.
    """
    train, text = load_train(server.path)
    check(train, server.path or "the built-in train")
    config = {
        "address": host.address,
        "port": server.port,
        "delivery": server.delivery.value,
        "train": text,
        "file": server.path or "the built-in train",
        "password": password,
    }
    paths = [str(Path(netlab.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    # In the environment, not in argv: a password must not show in a list of processes. One arena for all threads of
    # the C library: each of its own would reserve memory that the process's limit counts.
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        _VARIABLE: json.dumps(config),
        "MALLOC_ARENA_MAX": "1",
    }
    argv = [sys.executable, "-P", "-m", "netlab.servers.scripted_child"]
    running = ChildServer(host, server.label, server.port, log_path)
    running.launch(argv, env=env, patience=_READY, remarks=_REMARKS)
    running.version = ".".join(str(part) for part in train.version)
    return running


def check(train: Train, file: str) -> None:
    """Encode every packet of `train` once. Raises ScenarioError for one that cannot be."""
    if train.protocol is Protocol.RAW:
        return
    for number, answer in enumerate(train.answers, start=1):
        try:
            _encode_all(answer, answer.steps, train.revision)
        except UsageError as error:
            raise ScenarioError(f"{file}: answer[{number}].train: {error.what}", hint=error.hint) from error


def read_log(path: str) -> tuple[LoggedSend, ...]:
    """Return every send that the log at `path` tells of. Raises OutputError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from error
    sends = []
    for line in lines:
        if line.startswith('{"event": "send"'):
            said = json.loads(line)
            sends.append(
                LoggedSend(
                    at=said["at"],
                    connection=said["connection"],
                    query=said["query"],
                    size=said["bytes"],
                    parts=tuple(said["parts"]),
                )
            )
    return tuple(sends)


def _encode_all(answer: Answer, steps: tuple[Step, ...], revision: int) -> None:
    packets = Packets(answer.columns, Dialect(revision=revision))
    for step in steps:
        if isinstance(step, Repeat):
            _encode_all(answer, step.steps, revision)
        elif isinstance(step, Group):
            for send in step.sends:
                packets.encode(send)

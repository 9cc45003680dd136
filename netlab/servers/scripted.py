"""Start our own Native-protocol server, which plays a write train."""

import json
import os
import sys
from pathlib import Path

from netlab.hosts import Host
from netlab.scenario import Server
from netlab.servers.child import ChildServer
from netlab.servers.train import BUILT_IN, dump_train, load_train
from netlab.units import seconds

_READY = seconds(20)


def start(server: Server, host: Host, log_path: str, *, password: str = "") -> ChildServer:
    """Start the scripted server at `host`. `password` is what logins must give. Raises ScenarioError, ServerError."""
    train = BUILT_IN if server.path is None else load_train(Path(server.path))
    config = {
        "address": host.address,
        "port": server.port,
        "delivery": server.delivery.value,
        "train": dump_train(train),
        "password": password,
    }
    argv = [sys.executable, "-P", "-m", "netlab.servers.scripted_child"]
    env = {**os.environ, "NETLAB_SCRIPT": json.dumps(config)}  # not argv: a password must not show in a process list
    return ChildServer(host, server.label, server.port, log_path).launch(argv, env=env, patience=_READY)

"""Start the delay line in the middle namespace."""

import json
import os
import select
import sys
from typing import Any

from netlab.errors import LabError
from netlab.lab.lateness import Log
from netlab.scenario import Emulation, Link

_READY_S = 10


def start(link: Link, namespace: int) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Start the relay; return what it says of itself, and (the log, a pidfd of the process). Raises LabError."""
    from netlab.lab.service import spawn

    log, shared = Log.create()
    log.close()
    config = {"seed": link.seed, "to_client": _line(link.to_client), "to_server": _line(link.to_server)}
    ready_read, ready_write = os.pipe()
    message = {
        "argv": [sys.executable, "-P", "-m", "netlab.lab.relay", json.dumps(config)],
        "env": dict(os.environ),
        "stdio": [False, False, True],
    }
    try:
        pid = spawn(namespace, message, [2, shared, ready_write])
    finally:
        os.close(ready_write)
    with os.fdopen(ready_read, "rb", buffering=0) as pipe:
        readable = select.select([pipe], (), (), _READY_S)[0]
        said = pipe.read(4096) if readable else b""
    if not said:
        raise LabError("start the delay line: it said nothing", hint="its own words, if any, are above on stderr")
    described: dict[str, Any] = {"backend": "relay", "seed": str(link.seed), **json.loads(said)}
    for name, emulation in (("to_client", link.to_client), ("to_server", link.to_server)):
        described[name] = json.dumps(_line(emulation), sort_keys=True)
    return described, (shared, os.pidfd_open(pid))


def _line(emulation: Emulation) -> dict[str, float]:
    return {
        "delay": emulation.delay,
        "jitter": emulation.jitter,
        "loss": emulation.loss,
        "rate": emulation.rate or 0,
        "limit": emulation.limit,
    }

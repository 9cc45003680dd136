"""Start the delay line in the middle namespace, while the rest of the lab is being built."""

import json
import os
import select
import sys
from typing import Any

from netlab.errors import LabError
from netlab.lab.lateness import Log
from netlab.lab.start import Command, spawn
from netlab.scenario import Emulation, Link

_READY_S = 10


class Starting:
    """A relay that has started and waits for its interfaces: `go` when they are there, `abandon` when not needed."""

    def __init__(self, link: Link, namespace: int) -> None:
        self._link = link
        log, self._shared = Log.create()
        log.close()
        self._ready, ready_write = os.pipe()
        go_read, self._go = os.pipe()
        command = Command(
            argv=[sys.executable, "-P", "-m", "netlab.lab.relay", json.dumps(_config(link))],
            env=dict(os.environ),
            descriptors=(None, None, 2, self._shared, ready_write, go_read),
        )
        try:
            self._pid = spawn(namespace, command)
        finally:
            os.close(ready_write)
            os.close(go_read)

    def go(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Return what the relay says of itself, and (the log, a pidfd of the process). Raises LabError."""
        os.write(self._go, b"g")
        os.close(self._go)
        with os.fdopen(self._ready, "rb", buffering=0) as pipe:
            readable = select.select([pipe], (), (), _READY_S)[0]
            said = pipe.read(4096) if readable else b""
        if not said:
            raise LabError("start the delay line: it said nothing", hint="its own words, if any, are above on stderr")
        described: dict[str, Any] = {"backend": "relay", "seed": str(self._link.seed), **json.loads(said)}
        for name, emulation in (("to_client", self._link.to_client), ("to_server", self._link.to_server)):
            described[name] = json.dumps(_line(emulation), sort_keys=True)
        return described, (self._shared, os.pidfd_open(self._pid))

    def abandon(self) -> None:
        """End it: reading the end of its pipe, it leaves."""
        for descriptor in (self._go, self._ready, self._shared):
            os.close(descriptor)


def _config(link: Link) -> dict[str, Any]:
    return {"seed": link.seed, "to_client": _line(link.to_client), "to_server": _line(link.to_server)}


def _line(emulation: Emulation) -> dict[str, float]:
    return {
        "delay": emulation.delay,
        "jitter": emulation.jitter,
        "loss": emulation.loss,
        "rate": emulation.rate or 0,
        "limit": emulation.limit,
    }

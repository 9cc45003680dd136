"""The dumper's own process: packets from an inherited AF_PACKET socket into an inherited pcapng file.

It reports "ready" on standard output when no later packet can be missed, writes until standard input ends or the
caller's process is gone, then takes what the kernel still holds, writes the kernel's drop count, and reports its
facts as one JSON line. Every write ends at a block's end, so a kill leaves a file that can be read.
"""

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TypedDict

from netlab.capture import bpf, pcapng
from netlab.capture.ring import Ring

SNAPLEN = 1 << 18
_SO_TIMESTAMPNS = 35
_PACKET_OUTGOING = 4
# The kernel closes the last block within some tens of milliseconds, if it does at all.
_LAST_BLOCK_S, _POLL_MS = 5.0, 5


class Settings(TypedDict):
    """What the caller passes as one JSON argument.

    `socket`, `output` and `caller` (a pidfd) are descriptors, `ring` is in bytes.
    """

    socket: int
    output: int
    caller: int
    interface: str
    loopback: bool
    port: int | None
    ring: int
    comment: str


def main(text: str) -> int:
    """Run the dumper with `text`, the JSON form of Settings; return the exit status."""
    settings: Settings = json.loads(text)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    dump = _Dump(settings)
    try:
        dump.start()
        _say("ready")
        dump.run()
        drops = dump.finish()
    except OSError as error:
        dump.mend()
        _say(json.dumps({"error": error.strerror or str(error), "packets": dump.packets}))
        return 1
    _say(json.dumps({"packets": dump.packets, "drops": drops}))
    return 0


def _say(line: str) -> None:
    with suppress(BrokenPipeError):  # the caller may be gone; the file is finished all the same
        os.write(1, line.encode() + b"\n")


class _Dump:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket = socket.socket(fileno=settings["socket"])
        self._output = settings["output"]
        self._whole = 0  # bytes of whole blocks in the file
        self._taken = 0  # packets taken from the ring, the loopback's copies included
        self.packets = 0
        self._inbound = pcapng.packet_options(course=pcapng.Course.INBOUND)
        self._outbound = pcapng.packet_options(course=pcapng.Course.OUTBOUND)

    def start(self) -> None:
        """Write the file's head, and let packets into a fresh ring."""
        port = self._settings["port"]
        text = None if port is None else f"tcp port {port}"
        interface = pcapng.interface_block(1, SNAPLEN, name=self._settings["interface"], capture_filter=text)
        self._write([pcapng.section_header(self._settings["comment"]) + interface])
        # What is queued, or comes while the ring is made, is from before we are ready: keep it out, and its count.
        bpf.attach(self._socket, bpf.nothing())
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._ring = Ring(self._socket, self._settings["ring"])
        self._ring.statistics()
        bpf.attach(self._socket, bpf.everything() if port is None else bpf.tcp_port(port))

    def run(self) -> None:
        """Write packets until the caller says stop or is gone."""
        packets = self._socket.fileno()
        events = select.poll()
        for descriptor in (0, self._settings["caller"], packets):
            events.register(descriptor, select.POLLIN)
        while True:
            for descriptor, event in events.poll():
                if descriptor != packets:
                    return
                if event & select.POLLERR:
                    # The interface went down. Reading the error clears it; it may come up again.
                    self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._drain()

    def finish(self) -> int:
        """Take every packet that the kernel had by now, write the statistics, force all to disk; return the drops."""
        seen, drops = self._ring.statistics()
        events, deadline = select.poll(), time.monotonic() + _LAST_BLOCK_S
        events.register(self._socket.fileno(), select.POLLIN)
        self._drain()
        while self._taken < seen - drops and time.monotonic() < deadline:
            events.poll(_POLL_MS)
            self._drain()
        # What came meanwhile, and was not asked for, may have been dropped too.
        drops += self._ring.statistics()[1]
        self._write([pcapng.statistics_block(0, time.time_ns(), self.packets + drops, drops)])
        os.fsync(self._output)
        return drops

    def mend(self) -> None:
        """Cut off a block that was written in part."""
        with suppress(OSError):  # if not even that works, the reader copes with a cut block
            os.ftruncate(self._output, self._whole)

    def _drain(self) -> None:
        """Write the packets of the blocks that are ready now, one lap of the ring at most."""
        for _ in range(self._ring.blocks):
            packets = self._ring.block()
            if packets is None:
                return
            self._taken += len(packets)
            if self._settings["loopback"]:  # it shows each packet twice
                packets = [packet for packet in packets if packet[3] != _PACKET_OUTGOING]
            inbound, outbound = self._inbound, self._outbound
            self._write(
                [
                    pcapng.packet_block(at, data, wire, 0, options=outbound if kind == _PACKET_OUTGOING else inbound)
                    for at, data, wire, kind in packets
                ]
            )
            self.packets += len(packets)

    def _write(self, blocks: list[bytes]) -> None:
        """Write `blocks` at once; when that fails half-way, count those that are in the file as a whole."""
        data = memoryview(b"".join(blocks))
        written = 0
        try:
            while written < len(data):
                written += os.write(self._output, data[written:])
        except OSError:
            for block in blocks:
                written -= len(block)
                if written < 0:
                    break
                self._whole += len(block)
                self.packets += 1
            raise
        self._whole += len(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

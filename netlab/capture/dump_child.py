"""The dumper's own process: packets from an inherited AF_PACKET socket into an inherited pcapng file.

It reports "ready" on standard output when no later packet can be missed, writes until standard input ends or the
caller's process is gone, then takes what the kernel still holds, writes the kernel's drop count, and reports its
facts as one JSON line. Every write ends at a block's end, so a kill leaves a file that can be read.
"""

import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import TypedDict

from netlab.capture import bpf, pcapng

SNAPLEN = 1 << 18
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_SO_TIMESTAMPNS = 35
_PACKET_OUTGOING = 4
_STAMP = struct.Struct("@ll")
# A wake-up per packet would take time from what is being measured; the kernel's stamps make lateness harmless.
_REST_MS = 3
_BATCH = 256


class Settings(TypedDict):
    """What the caller passes as one JSON argument. `socket`, `output` and `caller` (a pidfd) are descriptors."""

    socket: int
    output: int
    caller: int
    interface: str
    loopback: bool
    port: int | None
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
        self._socket.setblocking(False)
        self._output = settings["output"]
        self._whole = 0  # bytes of whole blocks in the file
        self.packets = 0
        self._last = 0  # stamp of the newest packet
        self._course: pcapng.Course | None = None  # of the newest packet; None: not to be written
        self._buffer = memoryview(bytearray(SNAPLEN))
        self._options = {course: pcapng.packet_options(course=course) for course in pcapng.Course}

    def start(self) -> None:
        """Write the file's head, empty the socket of what came before the filter, and set the filter."""
        port = self._settings["port"]
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        text = None if port is None else f"tcp port {port}"
        self._write(pcapng.section_header(self._settings["comment"]))
        self._write(pcapng.interface_block(1, SNAPLEN, name=self._settings["interface"], capture_filter=text))
        if port is not None:
            bpf.attach(self._socket, bpf.nothing())
            while self._receive():
                pass
            self._statistics()
            bpf.attach(self._socket, bpf.tcp_port(port))

    def run(self) -> None:
        """Write packets until the caller says stop or is gone."""
        control = select.poll()
        control.register(0, select.POLLIN)
        control.register(self._settings["caller"], select.POLLIN)
        either = select.poll()
        for descriptor in (0, self._settings["caller"], self._socket.fileno()):
            either.register(descriptor, select.POLLIN)
        while True:
            idle = not self._drain(_BATCH)
            woken = either.poll() if idle else control.poll(_REST_MS)
            if any(descriptor != self._socket.fileno() for descriptor, _ in woken):
                return

    def finish(self) -> int:
        """Take what the socket holds up to this instant, write the statistics, force all to disk; return the drops."""
        until = time.time_ns()
        while self._drain(_BATCH) and self._last <= until:
            pass
        drops = self._statistics()
        self._write(pcapng.statistics_block(0, time.time_ns(), self.packets + drops, drops))
        os.fsync(self._output)
        return drops

    def mend(self) -> None:
        """Cut off a block that was written in part."""
        with suppress(OSError):  # if not even that works, the reader copes with a cut block
            os.ftruncate(self._output, self._whole)

    def _drain(self, most: int) -> int:
        """Write at most `most` packets that are there; return how many there were."""
        blocks: list[bytes] = []
        taken = 0
        while taken < most:
            length = self._receive()
            if not length:
                break
            taken += 1
            if self._course is None:
                continue
            data = bytes(self._buffer[: min(length, SNAPLEN)])
            blocks.append(pcapng.packet_block(self._last, data, length, 0, options=self._options[self._course]))
        if blocks:
            self._write(b"".join(blocks))
            self.packets += len(blocks)
        return taken

    def _receive(self) -> int:
        """Take one packet into the buffer; return its length on the wire, 0 if there is none."""
        try:
            length, ancillary, _, address = self._socket.recvmsg_into([self._buffer], 64, socket.MSG_TRUNC)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise
            # The interface went down. The kernel says so once; what was queued before is still there.
            return self._receive()
        self._last = time.time_ns()
        for _, kind, data in ancillary:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _STAMP.unpack(data)
                self._last = seconds * 1_000_000_000 + nanoseconds
        outgoing = address[2] == _PACKET_OUTGOING
        self._course = pcapng.Course.OUTBOUND if outgoing else pcapng.Course.INBOUND
        if outgoing and self._settings["loopback"]:
            self._course = None  # the loopback interface shows each packet twice
        return length

    def _statistics(self) -> int:
        """Return the packets that the kernel dropped since the last call."""
        raw = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        drops: int = struct.unpack("@II", raw)[1]
        return drops

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._output, view) :]
        self._whole += len(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

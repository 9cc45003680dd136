"""Captures at both ends of a real lab: they hold the same segments, each from its own side."""

import socket
import threading

import pytest

from netlab.capture.container import read_options
from netlab.capture.dump import Dumper
from netlab.capture.read import open_capture
from netlab.lab.lab import Lab
from netlab.scenario import Backend, Emulation, Link
from netlab.segments import Flag
from netlab.units import ms

pytestmark = pytest.mark.lab
PORT = 9000


def fetch(lab, size):
    """Let the server send `size` bytes to a client that asks, over one connection."""
    with (
        lab.server.socket(socket.AF_INET, socket.SOCK_STREAM) as listener,
        lab.client.socket(socket.AF_INET, socket.SOCK_STREAM) as client,
    ):
        listener.bind((lab.server.address, PORT))
        listener.listen()
        client.connect((lab.server.address, PORT))
        client.sendall(b"q")
        server, _ = listener.accept()
        with server:
            assert server.recv(10) == b"q"
            sender = threading.Thread(target=lambda: (server.sendall(bytes(size)), server.shutdown(socket.SHUT_WR)))
            sender.start()
            got = 0
            while data := client.recv(1 << 16):
                got += len(data)
            sender.join()
    return got


def courses(path):
    """Return source address -> the directions that the capture gives its packets (epb_flags)."""
    found = {}
    with open_capture(path) as capture:
        decode = capture.decoder.segment
        for frame in capture.frames():
            _, buffer, start, end, _, _, _, stop = frame
            flags = dict(read_options(buffer, end + (start - end & 3), stop, capture.container.order))[2]
            found.setdefault(decode(frame).source.address, set()).add(flags[0])
    return found


@pytest.mark.parametrize("offloads", [False, True])
def test_both_ends_see_the_same_bytes(tmp_path, offloads):
    size = 3_000_000
    link = Link(to_client=Emulation(delay=ms(5)), backend=Backend.RELAY, offloads=offloads)
    with Lab(link) as lab:
        names = (tmp_path / "client.pcapng", tmp_path / "server.pcapng")
        ends = (lab.client, lab.server)
        with Dumper.start(ends[0], names[0], port=PORT) as one, Dumper.start(ends[1], names[1], port=PORT) as two:
            assert fetch(lab, size) == size
            facts = (one.stop(), two.stop())
        addresses = [end.address for end in ends]
    assert [f.drops for f in facts] == [0, 0]
    assert [f.vantage for f in facts] == ["client", "server"]
    for path in names:
        with open_capture(path) as capture:
            segments = list(capture.segments())
        assert segments[0].flags == Flag.SYN
        first = next(s.seq for s in segments if s.flags & Flag.SYN and s.source.port == PORT) + 1
        covered = bytearray(size)
        for s in segments:
            if s.source.port == PORT and s.length:
                offset = s.seq - first & 0xFFFFFFFF
                covered[offset : offset + s.length] = b"\1" * s.length
        assert covered.count(0) == 0
        assert offloads or max(s.length for s in segments) <= 1448
    # 1 is inbound, 2 outbound.
    assert courses(names[0]) == {addresses[0]: {2}, addresses[1]: {1}}
    assert courses(names[1]) == {addresses[0]: {1}, addresses[1]: {2}}


def test_a_lab_that_goes_first_ends_no_capture_in_disorder(tmp_path):
    path = tmp_path / "c.pcapng"
    with Lab(Link(to_client=Emulation(delay=ms(1)), backend=Backend.RELAY)) as lab:
        dumper = Dumper.start(lab.client, path, port=PORT)
        fetch(lab, 1000)
    with dumper:
        facts = dumper.stop()
    with open_capture(path) as capture:
        summary = capture.summary()
    assert facts.packets == summary.packets >= 8
    assert not summary.truncated

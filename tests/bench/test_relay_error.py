"""The delay line's own error: one-way delay by the kernel's stamps, less the delay asked for and a bare veth hop."""

import socket
import statistics
import struct
import sys
import time

import pytest

from netlab.lab import Lab
from netlab.scenario import Backend, Emulation, Link
from netlab.units import NS_PER_S, ms, us

PACKETS = 2000
SPACING = ms(2)
_SO_TIMESTAMPNS, _SOL_SOCKET = 35, socket.SOL_SOCKET
_ETH_P_ALL = 3
MARK = b"netlab-relay-error"


def stamps(tap: socket.socket) -> dict[int, int]:
    """Number of the marked packet -> when it passed (ns CLOCK_REALTIME)."""
    tap.setblocking(False)
    found = {}
    while True:
        try:
            frame, ancillary, _flags, _address = tap.recvmsg(2048, 64)
        except BlockingIOError:
            return found
        start = frame.find(MARK)
        if start < 0:
            continue
        for level, kind, data in ancillary:
            if (level, kind) == (_SOL_SOCKET, _SO_TIMESTAMPNS):
                seconds, nanoseconds = struct.unpack("=qq", data[:16])
                found[struct.unpack_from("!I", frame, start + len(MARK))[0]] = seconds * NS_PER_S + nanoseconds


def middle_tap(lab: Lab) -> socket.socket:
    """Where the server's frames come out of their veth pair: the end of a bare link."""
    _, passed = lab.server._remote.ask("socket", place="middle", family=socket.AF_PACKET, kind=socket.SOCK_RAW, proto=0)
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0, fileno=passed[0])
    tap.setsockopt(_SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    tap.setsockopt(_SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    tap.bind(("toserver", _ETH_P_ALL))
    return tap


def send(lab: Lab) -> None:
    sink = lab.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sink, lab.server.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sink.bind((lab.client.address, 9))  # or a refusal that quotes the packet comes back
        start = time.monotonic_ns()
        for number in range(PACKETS):
            time.sleep(max(0, start + number * SPACING - time.monotonic_ns()) / NS_PER_S)
            sending.sendto(MARK + struct.pack("!I", number), (lab.client.address, 9))
        time.sleep(0.2)


@pytest.mark.parametrize("delay", [ms(0), ms(32), ms(80)], ids=["0ms", "32ms", "80ms"])
def test_one_way_error_over_a_bare_link(delay: int):
    with Lab(Link(backend=Backend.RELAY, to_client=Emulation(delay=delay))) as lab:
        taps = [lab.server.packet_socket(8 << 20), middle_tap(lab), lab.client.packet_socket(8 << 20)]
        began = time.time_ns()
        send(lab)
        left, passed, arrived = (stamps(tap) for tap in taps)
        for tap in taps:
            tap.close()
        late = lab.lateness(began, time.time_ns())
        scheduling = lab.facts.emulation["scheduling"]
    assert len(left) == len(passed) == len(arrived) == PACKETS
    floor = statistics.median(passed[number] - left[number] for number in left)
    errors = sorted(arrived[number] - left[number] - delay - floor for number in left)
    median, p99 = errors[PACKETS // 2], errors[PACKETS * 99 // 100]
    print(
        f"\n{scheduling}, delay {delay / 1e6:g} ms: one-way error over a bare hop ({floor / 1000:.1f} us): "
        f"median {median / 1000:.0f} us, p99 {p99 / 1000:.0f} us, worst {errors[-1] / 1000:.0f} us; "
        f"its own lateness: p99 {late.p99 / 1000:.0f} us, worst {late.worst / 1000:.0f} us"
    )
    assert min(errors) >= -us(20)
    # 0 ms has nothing to wait for: its error is the wake-up alone, and has no bound here.
    assert not delay or (median <= ms(0.1) and p99 <= ms(0.3))


def test_a_transfer_is_not_held_up_by_the_delay_line():
    """Bulk through the delay line at 32 ms, offloads on."""
    size = 200 << 20
    link = Link(backend=Backend.RELAY, to_client=Emulation(delay=ms(32), limit=50_000), offloads=True)
    with Lab(link) as lab:
        listening = lab.server.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.bind((lab.server.address, 9000))
        listening.listen()
        program = f"import socket;s=socket.create_connection(('{lab.server.address}',9000));n=0\n"
        program += "while d:=s.recv(1<<20): n+=len(d)\nprint(n)"
        child = lab.client.spawn([sys.executable, "-c", program])
        sending, _ = listening.accept()
        began = time.monotonic()
        sending.sendall(bytes(size))
        sending.shutdown(socket.SHUT_WR)
        assert sending.recv(1) == b""
        took = time.monotonic() - began
        assert child.wait(10 * NS_PER_S) == 0
        report = lab.lateness(0, time.time_ns())
    print(f"\n{size * 8 / took / 1e6:.0f} Mbit/s at 32 ms, {report.dropped} dropped")
    assert report.dropped == 0

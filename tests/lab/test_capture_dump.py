"""The dumper, on the loopback interface of a network namespace of its own: exact, alive no longer than its caller."""

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from netlab.capture import bpf
from netlab.capture.craft import ethernet, tcp_packet
from netlab.capture.dump import Dumper
from netlab.capture.read import open_capture
from netlab.capture.second import pyshark_psh_table
from netlab.errors import CaptureError
from netlab.segments import Endpoint, Flag

pytestmark = pytest.mark.lab
PORT, OTHER = 9000, 9001

# Makes the namespace in a process of its own, which needs no root, and passes sockets of it to us.
KEEPER = textwrap.dedent(
    """
    import ctypes, fcntl, os, socket, struct, sys
    new = 0x40000000 | (0 if os.geteuid() == 0 else 0x10000000)
    if ctypes.CDLL(None, use_errno=True).unshare(new):
        sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
    up = socket.socket()
    fcntl.ioctl(up, 0x8914, struct.pack("16sH14x", b"lo", 1))
    line = socket.socket(fileno=int(sys.argv[1]))
    while True:
        asked = line.recv(100).decode().split()
        if not asked:
            break
        made = socket.socket(*map(int, asked[:3]))
        if asked[3:]:
            made.setsockopt(1, 8, int(asked[3]))
            made.setsockopt(1, 35, 1)
            made.bind(("lo", 3))
        socket.send_fds(line, [b"x"], [made.fileno()])
        made.close()
    """
)


class LoopbackHost:
    """A netlab.hosts.Host as far as a capture needs one."""

    name, address, interface, scratch = "server", "127.0.0.1", "lo", "/tmp"

    def __init__(self):
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._keeper = subprocess.Popen(
                [sys.executable, "-c", KEEPER, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def close(self):
        self._line.close()
        assert self._keeper.wait() == 0

    def _ask(self, *numbers):
        self._line.send(" ".join(str(int(n)) for n in numbers).encode())
        _, fds, _, _ = socket.recv_fds(self._line, 10, 1)
        return socket.socket(fileno=fds[0])

    def socket(self, family, kind, proto=0):
        return self._ask(family, kind, proto)

    def packet_socket(self, receive_buffer):
        return self._ask(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3), receive_buffer)


@pytest.fixture
def host():
    host = LoopbackHost()
    yield host
    host.close()


def talk(host, rounds, port=PORT, family=socket.AF_INET):
    """Send `rounds` small messages over one connection, each answered; return the bytes sent by the server."""
    where = ("::1" if family == socket.AF_INET6 else "127.0.0.1", port)
    with host.socket(family, socket.SOCK_STREAM) as listener, host.socket(family, socket.SOCK_STREAM) as client:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen()
        client.connect(where)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server, _ = listener.accept()
        with server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(rounds):
                client.sendall(b"q")
                assert server.recv(10) == b"q"
                server.sendall(bytes(1 + number % 50))
                assert client.recv(100)
    return sum(1 + number % 50 for number in range(rounds))


def read(path):
    with open_capture(path) as capture:
        return list(capture.segments()), capture.summary()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_everything_from_syn_to_fin_is_there(host, tmp_path, family):
    path = tmp_path / "c.pcapng"
    with Dumper.start(host, path, port=PORT, comment="a test of the dumper") as dumper:
        talk(host, 3, OTHER)
        sent = talk(host, 400, family=family)
        facts = dumper.stop()
        assert dumper.stop() == facts
    segments, summary = read(path)
    assert (facts.packets, facts.drops, facts.vantage) == (len(segments), 0, "server")
    assert {s.source.port for s in segments} | {s.destination.port for s in segments} >= {PORT}
    assert all(PORT in {s.source.port, s.destination.port} for s in segments)
    assert segments[0].flags == Flag.SYN
    assert sum(s.flags & Flag.FIN for s in segments) == 2
    assert not segments[-1].flags & Flag.FIN
    assert segments[-1].length == 0
    assert sum(s.length for s in segments if s.source.port == PORT) == sent
    assert summary.comment == "a test of the dumper"
    assert [(i.name, i.drops) for i in summary.interfaces] == [("lo", 0)]
    assert not summary.truncated


def test_nothing_is_lost_at_start_or_stop(host, tmp_path):
    for number in range(8):
        path = tmp_path / f"{number}.pcapng"
        with Dumper.start(host, path, port=PORT) as dumper:
            talk(host, 1)
            dumper.stop()
        segments, _ = read(path)
        assert segments[0].flags == Flag.SYN
        assert sum(s.flags & Flag.FIN for s in segments) == 2


def test_without_a_filter_all_is_there_and_tshark_agrees(host, tmp_path):
    path = tmp_path / "c.pcapng"
    with Dumper.start(host, path) as dumper:
        talk(host, 2, OTHER)
        talk(host, 20)
        dumper.stop()
    segments, _ = read(path)
    assert {s.source.port for s in segments} >= {PORT, OTHER}
    assert pyshark_psh_table(path, PORT).sizes == tuple((size, 1) for size in range(1, 21))


def test_a_flood_is_exact_or_its_drops_are_counted(host, tmp_path):
    path = tmp_path / "c.pcapng"
    with Dumper.start(host, path) as dumper, host.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for _ in range(20_000):
            udp.sendto(b"x" * 100, ("127.0.0.1", PORT))
        facts = dumper.stop()
    _, summary = read(path)
    # Port unreachable is answered with ICMP, at a limited rate.
    assert summary.packets == facts.packets
    assert facts.packets + facts.drops >= 20_000
    assert summary.interfaces[0].drops == facts.drops


def test_drops_are_counted(host, tmp_path):
    path = tmp_path / "c.pcapng"
    with Dumper.start(host, path, ring=1) as dumper, host.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        os.kill(dumper.pid, signal.SIGSTOP)
        for _ in range(4000):
            udp.sendto(b"x" * 1000, ("127.0.0.1", PORT))
        os.kill(dumper.pid, signal.SIGCONT)
        facts = dumper.stop()
    assert facts.drops > 0
    assert facts.packets + facts.drops >= 4000
    assert read(path)[1].interfaces[0].drops == facts.drops


def test_killed_it_leaves_a_file_that_can_be_read(host, tmp_path):
    path = tmp_path / "c.pcapng"
    with Dumper.start(host, path, port=PORT) as dumper:
        talk(host, 2000)
        os.kill(dumper.pid, signal.SIGKILL)
        with pytest.raises(CaptureError, match="died"):
            dumper.stop()
    segments, summary = read(path)
    assert summary.comment is not None
    assert all(PORT in {s.source.port, s.destination.port} for s in segments)


def test_a_full_disk_is_an_error_and_what_was_written_can_be_read(host, tmp_path):
    # A limit on the size of files fails a write in the middle, as a full disk does.
    path, script = tmp_path / "c.pcapng", tmp_path / "limited"
    script.write_text(
        f"#!{sys.executable}\nimport os, resource, signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (20_001, 20_001))\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])\n"
    )
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(script))
        dumper = Dumper.start(host, path, port=PORT)
    with dumper:
        talk(host, 1000)
        with pytest.raises(CaptureError, match="File too large") as caught:
            dumper.stop()
    segments, summary = read(path)
    assert len(segments) > 50
    assert f"c.pcapng: the capture ended after {len(segments)} packets" in str(caught.value)
    assert not summary.truncated
    assert path.stat().st_size <= 20_001


def test_paths_that_cannot_be_written(host, tmp_path):
    with pytest.raises(CaptureError, match="cannot be written"):
        Dumper.start(host, tmp_path / "no" / "c.pcapng")
    with pytest.raises(CaptureError, match="No space left"):
        Dumper.start(host, "/dev/full")


def test_it_ends_with_its_caller(host, tmp_path):
    """Kill a caller that has a dumper running: the dumper finishes the file by itself."""
    path = tmp_path / "c.pcapng"
    caller = textwrap.dedent(
        """
        import os, signal, socket, sys
        from netlab.capture.dump import Dumper
        class Host:
            name, address, interface, scratch = "client", "127.0.0.1", "lo", "/tmp"
            def packet_socket(self, receive_buffer):
                return socket.socket(fileno=int(sys.argv[1]))
        dumper = Dumper.start(Host(), sys.argv[2])
        # A stray copy of the control pipe must not keep the dumper alive.
        if os.fork() == 0:
            os.closerange(0, 3)
            signal.pause()
        print(dumper.pid, flush=True)
        signal.pause()
        """
    )
    with host.packet_socket(1 << 20) as packets:
        process = subprocess.Popen(
            [sys.executable, "-c", caller, str(packets.fileno()), str(path)],
            stdout=subprocess.PIPE,
            pass_fds=[packets.fileno()],
            start_new_session=True,
        )
    dumper = int(process.stdout.readline())
    watch = os.pidfd_open(dumper)
    talk(host, 5)
    process.kill()
    process.wait()
    process.stdout.close()
    assert select.select([watch], [], [], 60)[0], "the dumper outlives its caller"
    os.close(watch)
    os.killpg(process.pid, signal.SIGKILL)
    segments, summary = read(path)
    assert sum(s.flags & Flag.FIN for s in segments) == 2
    assert summary.interfaces[0].drops == 0


def test_started_in_a_thread_that_ends_it_goes_on(host, tmp_path):
    started = []
    thread = threading.Thread(target=lambda: started.append(Dumper.start(host, tmp_path / "c.pcapng", port=PORT)))
    thread.start()
    thread.join()
    with started[0] as dumper:
        talk(host, 10)
        assert dumper.stop().packets > 20


def test_an_interrupt_from_the_terminal_does_not_end_it(host, tmp_path):
    with Dumper.start(host, tmp_path / "c.pcapng", port=PORT) as dumper:
        os.kill(dumper.pid, signal.SIGINT)
        talk(host, 1)
        assert dumper.stop().packets >= 8


def test_nothing_stays_open_or_running(host, tmp_path):
    def descriptors():
        return sorted(Path("/proc/self/fd").iterdir())

    talk(host, 1)
    before = descriptors()
    with Dumper.start(host, tmp_path / "a.pcapng") as dumper:
        dumper.stop()
    left = Dumper.start(host, tmp_path / "b.pcapng")
    left.close()
    left.close()
    assert descriptors() == before
    assert not Path(f"/proc/{left.pid}").exists()
    with pytest.raises(CaptureError, match="closed"):
        left.stop()


def accepted(program, frame):
    """Run a classic BPF program over `frame` on a socket pair, as the kernel does; return whether it passes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        bpf.attach(theirs, program)
        ours.send(frame)
        theirs.setblocking(False)
        try:
            return theirs.recv(1 << 16) == frame
        except BlockingIOError:
            return False


def test_the_filter():
    program = bpf.tcp_port(PORT)
    for client, server in (("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")):
        for tags in ([], [(0x8100, 3)], [(0x88A8, 3), (0x8100, 4)]):
            for ports, wanted in (((PORT, 5), True), ((5, PORT), True), ((5, 6), False)):
                packet = tcp_packet(Endpoint(client, ports[0]), Endpoint(server, ports[1]), b"x", options=b"\1" * 12)
                assert accepted(program, ethernet(packet, tags)) is wanted, (client, tags, ports)
    plain = tcp_packet(Endpoint("10.0.0.1", PORT), Endpoint("10.0.0.2", 1))
    assert accepted(program, ethernet(b"\x46" + plain[1:20] + b"\1\1\1\0" + plain[20:]))
    assert not accepted(program, ethernet(plain[:9] + b"\x11" + plain[10:]))
    assert not accepted(program, ethernet(plain[:7] + b"\x05" + plain[8:]))
    assert not accepted(program, b"\xff" * 12 + b"\x08\x06" + plain)
    assert not accepted(bpf.nothing(), ethernet(plain))

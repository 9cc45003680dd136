"""A lab is what it claims, is read back, and leaves nothing."""

import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from netlab.errors import LabError, VoidRunError
from netlab.lab import Lab
from netlab.scenario import Backend, Congestion, Emulation, Link, Tcp
from netlab.segments import Endpoint
from netlab.units import ms, seconds

pytestmark = pytest.mark.lab
RELAY = Backend.RELAY


def end(lab: Lab, name: str):
    return next(facts for facts in lab.facts.ends if facts.name == name)


def test_every_setting_is_read_back_from_the_kernel():
    tcp = Tcp(initcwnd=6, congestion=Congestion.RENO, slow_start_after_idle=False, no_metrics_save=True)
    with Lab(Link(backend=RELAY, mtu=1400), tcp, Tcp(initcwnd=20, congestion=Congestion.BBR)) as lab:
        server, client = end(lab, "server"), end(lab, "client")
    assert server.route == {"initcwnd": "6", "cc_algo": "reno"}
    assert client.route == {"initcwnd": "20", "cc_algo": "bbr"}
    assert server.sysctls["net.ipv4.tcp_slow_start_after_idle"] == "0"
    assert client.sysctls["net.ipv4.tcp_slow_start_after_idle"] == "1"
    assert server.sysctls["net.ipv4.tcp_no_metrics_save"] == "1"
    assert server.sysctls["net.ipv4.tcp_autocorking"] == "0"
    assert server.mtu == client.mtu == 1400
    assert not any(server.offloads[name] for name in ("tso", "gso", "gro"))


def test_offloads_stay_on_when_asked():
    with Lab(Link(backend=RELAY, offloads=True)) as lab:
        assert all(end(lab, "server").offloads[name] for name in ("tso", "gso"))


@pytest.mark.parametrize(
    ("there", "back"), [(0, 32), (16, 16), (3, 1)], ids=["all on the server's egress", "split", "uneven"]
)
def test_the_round_trip_is_what_the_link_says(there: int, back: int):
    link = Link(backend=RELAY, to_server=Emulation(delay=ms(there)), to_client=Emulation(delay=ms(back)))
    with Lab(link) as lab:
        report = lab.verify()
        late = lab.lateness(0, time.time_ns())
    assert report.received == report.sent == 10
    assert report.minimum >= ms(there + back)
    assert late is not None and late.packets == 20 and late.dropped == 0 and late.lost == 0


def test_a_link_that_is_not_what_it_claims_is_void():
    with Lab(Link(backend=RELAY, to_client=Emulation(delay=ms(5)))) as lab:
        lab.link = replace(lab.link, to_client=Emulation(delay=ms(50)))
        with pytest.raises(VoidRunError, match="not 50ms"):
            lab.verify()


def test_loss_is_seeded_and_counted():
    lost = []
    for _ in range(2):
        link = Link(backend=RELAY, seed=7, to_client=Emulation(delay=ms(1), loss=0.3))
        with Lab(link) as lab:
            report = lab.measure_rtt(100)
            late = lab.lateness(0, time.time_ns())
        assert late is not None and report.received == 100 - late.lost
        lost.append(late.lost)
    assert lost[0] == lost[1] and 10 < lost[0] < 60


def test_jitter_spreads_round_trips_within_its_bounds():
    with Lab(Link(backend=RELAY, to_client=Emulation(delay=ms(20), jitter=ms(10)))) as lab:
        report = lab.measure_rtt(100)
    assert report.minimum >= ms(10)
    assert report.maximum - report.minimum > ms(3)


def test_a_rate_takes_its_time():
    data = 200_000
    with Lab(Link(backend=RELAY, to_client=Emulation(delay=ms(1), rate=8_000_000))) as lab:
        listening = lab.server.socket(socket.AF_INET, socket.SOCK_STREAM)
        receiving = lab.client.socket(socket.AF_INET, socket.SOCK_STREAM)
        with listening, receiving:
            listening.bind((lab.server.address, 9000))
            listening.listen()
            receiving.connect((lab.server.address, 9000))
            sending, _ = listening.accept()
            thread = threading.Thread(target=lambda: (sending.sendall(b"x" * data), sending.close()))
            started = time.monotonic()
            thread.start()
            got = 0
            while piece := receiving.recv(65536):
                got += len(piece)
            took = time.monotonic() - started
            thread.join()
    assert got == data
    assert took >= data * 8 / 8_000_000 * 0.9


def test_the_servers_kernel_tells_its_window():
    with Lab(Link(backend=RELAY, to_client=Emulation(delay=ms(2))), Tcp(initcwnd=5)) as lab:
        listening = lab.server.socket(socket.AF_INET, socket.SOCK_STREAM)
        client = lab.client.socket(socket.AF_INET, socket.SOCK_STREAM)
        with listening, client:
            listening.bind((lab.server.address, 9000))
            listening.listen()
            client.connect((lab.server.address, 9000))
            local = Endpoint(*client.getsockname())
            info = lab.server_tcp_info(Endpoint(lab.server.address, 9000), local)
            missing = lab.server_tcp_info(Endpoint(lab.server.address, 9001), local)
    assert info is not None and info.snd_cwnd == 5 and info.rto >= ms(200)
    assert missing is None


def test_two_labs_at_once_do_not_meet():
    with Lab(Link(backend=RELAY)) as one, Lab(Link(backend=RELAY, to_client=Emulation(delay=ms(8)))) as two:
        assert one.verify().median >= ms(32)
        assert two.verify().median < ms(16)


def test_commands_run_in_the_ends_namespace_with_their_environment():
    with Lab(Link(backend=RELAY)) as lab:
        done = lab.server.run(["cat", "/proc/net/dev", "-"], feed=b"fed")
        assert done.returncode == 0
        assert b"eth0" in done.stdout and done.stdout.endswith(b"fed")
        host = os.open("/proc/self/ns/net", os.O_RDONLY)
        inside = lab.server.run(["readlink", "/proc/self/ns/net"]).stdout.decode().strip()
        assert inside != os.readlink(f"/proc/self/fd/{host}")
        os.close(host)
        read, write = os.pipe()
        child = lab.client.spawn(
            ["sh", "-c", 'printf %s "$GREETING" >&3; pwd >&3'],
            env={"GREETING": "hello ", "PATH": os.environ["PATH"]},
            cwd="/etc",
            fds=[write],
        )
        os.close(write)
        with os.fdopen(read) as pipe:
            assert pipe.read() == "hello /etc\n"
        assert child.wait(seconds(10)) == 0


def test_a_missing_program_is_one_clear_line():
    with Lab(Link(backend=RELAY)) as lab, pytest.raises(LabError, match="start no-such-program: No such file"):
        lab.server.run(["no-such-program"])


def test_scratch_is_seen_only_inside():
    with Lab(Link(backend=RELAY)) as lab:
        made = f"{lab.server.scratch}/made-inside"
        assert lab.server.run(["touch", made]).returncode == 0
        assert lab.client.run(["test", "-e", made]).returncode == 0
        assert not Path(made).exists()


def test_a_dead_delay_line_voids_the_lab():
    with Lab(Link(backend=RELAY)) as lab:
        found = lab.server.run(["sh", "-c", "grep -l netlab.lab.relay /proc/[0-9]*/cmdline"]).stdout.decode().split()
        pids = [path.split("/")[2] for path in found if path.split("/")[2] != "self"]
        lab.server.run(["sh", "-c", f"for p in {' '.join(pids)}; do kill -9 $p 2>/dev/null; done; true"])
        with pytest.raises((VoidRunError, LabError)):
            lab.measure_rtt(3)
            lab.lateness(0, time.time_ns())


def test_netem_where_there_is_none_says_what_to_do():
    link = Link(backend=Backend.NETEM)
    try:
        with Lab(link) as lab:
            assert lab.backend is Backend.NETEM and lab.verify().median >= ms(32)
    except LabError as error:
        assert "netem" in error.what and "relay" in error.hint


def test_no_descriptor_is_left_after_many_labs():
    with Lab(Link(backend=RELAY)):
        pass
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with Lab(Link(backend=RELAY)) as lab:
            lab.server.run(["true"])
            lab.measure_rtt(1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_host_is_not_touched():
    def snapshot() -> dict[str, str]:
        names = ["tcp_slow_start_after_idle", "tcp_no_metrics_save", "tcp_autocorking", "tcp_congestion_control"]
        values = {name: Path(f"/proc/sys/net/ipv4/{name}").read_text() for name in names}
        links = "\n".join(sorted(line.split(":")[0] for line in Path("/proc/net/dev").read_text().splitlines()))
        return {**values, "links": links, "mounts": Path("/proc/self/mountinfo").read_text()}

    before = snapshot()
    with Lab(Link(backend=RELAY), Tcp(initcwnd=4, slow_start_after_idle=False)) as lab:
        lab.verify()
        assert snapshot() == before
    assert snapshot() == before

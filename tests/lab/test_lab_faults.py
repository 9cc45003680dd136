"""What goes wrong in a lab is said, belongs to its moment, and leaves nothing."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from netlab.errors import LabError, VoidRunError
from netlab.lab import Lab
from netlab.scenario import Backend, Congestion, Emulation, Link, Tcp
from netlab.units import ms, seconds

pytestmark = pytest.mark.lab
RELAY = Link(backend=Backend.RELAY, to_client=Emulation(delay=ms(2)))
_WAIT_S = 30


def children(pid: int | str) -> list[int]:
    """Living children of every thread of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            if "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text():
                found.append(child)
    return found


def descendants(pid: int | str) -> set[int]:
    found: set[int] = set()
    for child in children(pid):
        found |= {child} | descendants(child)
    return found


def gone(pids: set[int]) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], _WAIT_S)[0], f"process {pid} is still there"
        finally:
            os.close(descriptor)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def pid_of(pidfd: int) -> int:
    line = next(line for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines() if line.startswith("Pid:"))
    return int(line.split()[1])


@pytest.mark.parametrize(
    ("link", "tcp", "words"),
    [
        (Link(backend=Backend.RELAY, mtu=70_000), Tcp(), "veth at client: Invalid argument"),
        (RELAY, Tcp(initcwnd=0), "route metric initcwnd at server: wanted 0, got None"),
    ],
    ids=["its first step", "one of its last"],
)
def test_a_step_that_fails_undoes_all_before_it(link: Link, tcp: Tcp, words: str):
    before, running = descriptors(), set(children("self"))
    with pytest.raises(LabError, match=words), Lab(link, tcp):
        pass
    assert descriptors() == before
    assert set(children("self")) == running


def test_drops_belong_to_the_window_that_they_were_in():
    link = Link(backend=Backend.RELAY, to_client=Emulation(delay=ms(20), limit=5))
    with Lab(link) as lab:
        sink = lab.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sending = lab.server.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sink, sending:
            sink.settimeout(10)
            sink.bind((lab.client.address, 9))

            def burst(count: int, received: int) -> int:
                """Send `count` at once, of which `received` arrive; return how many were dropped meanwhile."""
                began = time.time_ns()
                for _ in range(count):
                    sending.sendto(b"x", (lab.client.address, 9))
                for _ in range(received):
                    sink.recv(10)
                report = lab.lateness(began, time.time_ns())
                assert report is not None and report.packets == received and report.lost == 0
                return report.dropped

            assert burst(50, 5) == 45
            assert burst(3, 3) == 0


def test_a_killed_delay_line_voids_what_is_measured():
    with Lab(RELAY) as lab:
        assert lab._relay is not None
        relay = pid_of(lab._relay)
        os.kill(relay, signal.SIGKILL)
        gone({relay})
        with pytest.raises(VoidRunError, match="the delay line died"):
            lab.lateness(0, time.time_ns())
        with pytest.raises(LabError, match="no reply"):
            lab.measure_rtt(1)
        assert lab.server.run(["true"]).returncode == 0  # the rest of the lab lives


@pytest.mark.parametrize("victim", ["holder", "first process"])
def test_a_killed_part_takes_the_whole_lab_down_and_the_owner_is_told(victim: str):
    before, running = descriptors(), set(children("self"))
    with Lab(RELAY) as lab:
        (holder,) = set(children("self")) - running
        (init,) = children(holder)
        lab.server.spawn(["sleep", "600"])
        everything = descendants("self") - running
        assert len(everything) >= 4  # the holder, the first process, the delay line, the sleeper
        os.kill(holder if victim == "holder" else init, signal.SIGKILL)
        gone(everything - {holder})
        with pytest.raises(LabError, match="the lab is gone"):
            lab.server.run(["true"])
        with pytest.raises(VoidRunError, match="died"):
            lab.lateness(0, time.time_ns())
    assert descriptors() == before
    assert set(children("self")) == running


def test_interrupts_in_the_middle_of_requests_leave_a_lab_that_answers_rightly():
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        with Lab(RELAY) as lab:
            for number in range(100):
                signal.setitimer(signal.ITIMER_REAL, 0.0003 + number * 0.00002)
                try:
                    while True:
                        lab.server.run(["true"])
                except KeyboardInterrupt:
                    interrupted += 1
                done = lab.server.run(["sh", "-c", "echo right; exit 3"])
                assert (done.stdout, done.returncode) == (b"right\n", 3)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted == 100


def test_many_commands_use_up_no_descriptors():
    with Lab(RELAY) as lab:
        lab.server.run(["true"])
        before = descriptors()
        for _ in range(200):
            assert lab.server.run(["true"]).returncode == 0
        assert descriptors() == before


def test_every_descriptor_of_many_reaches_the_program():
    files = [os.memfd_create("file") for _ in range(200)]
    try:
        with Lab(RELAY) as lab:
            child = lab.client.spawn(
                ["sh", "-c", "for n in $(seq 3 202); do printf $n > /proc/self/fd/$n; done"], fds=files
            )
            assert child.wait(seconds(20)) == 0
        said = [os.pread(descriptor, 10, 0) for descriptor in files]
    finally:
        for descriptor in files:
            os.close(descriptor)
    assert said == [str(number).encode() for number in range(3, 203)]


def test_an_environment_of_any_size_gets_through():
    env = {f"NAME{number}": "x" * 50_000 for number in range(20)}
    with Lab(RELAY) as lab:
        child = lab.server.spawn(["sh", "-c", 'test "${#NAME19}" = 50000'], env={**os.environ, **env})
        assert child.wait(seconds(20)) == 0


def test_a_lab_serves_several_threads():
    wrong: list[object] = []

    def work(lab: Lab, number: int) -> None:
        for _ in range(20):
            done = lab.server.run(["echo", str(number)])
            if done.stdout != f"{number}\n".encode():
                wrong.append(done)

    with Lab(RELAY) as lab:
        threads = [threading.Thread(target=work, args=(lab, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_closed_lab_says_so_and_may_be_closed_again():
    with Lab(RELAY) as lab:
        pass
    lab.close()
    with pytest.raises(LabError, match="the lab is closed"):
        lab.server.run(["true"])


@pytest.mark.parametrize("congestion", [Congestion.RENO, Congestion.CUBIC])
def test_connections_take_the_congestion_control_of_their_own_end(congestion: Congestion):
    with Lab(RELAY, Tcp(congestion=congestion), Tcp(congestion=Congestion.BBR)) as lab:
        listening = lab.server.socket(socket.AF_INET, socket.SOCK_STREAM)
        client = lab.client.socket(socket.AF_INET, socket.SOCK_STREAM)
        with listening, client:
            listening.bind((lab.server.address, 9000))
            listening.listen()
            client.connect((lab.server.address, 9000))
            with listening.accept()[0] as server:
                used = [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) for end in (server, client)]
    assert [name.rstrip(b"\0").decode() for name in used] == [congestion.value, "bbr"]


# -- as somebody who may little ---------------------------------------------------------------------------------------

PROGRAM = """
import sys, time
from netlab.lab import Lab
with Lab() as lab:
    print(lab.facts.privileges, lab.facts.emulation["scheduling"], sep="|")
    report = lab.verify()
    assert report.received == 10
    assert lab.lateness(0, time.time_ns()).packets == 20
    said = "id -u; cat /proc/sys/kernel/hostname; echo hidden > $0/file"
    done = lab.server.run(["sh", "-c", said, lab.server.scratch])
    assert done.stdout == b"0\\nnetlab\\n" and done.returncode == 0, done
    assert next(end for end in lab.facts.ends if end.name == "server").route == {"initcwnd": "8", "cc_algo": "cubic"}
    lab.client.packet_socket(1 << 20).close()
"""


def run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=_WAIT_S, env={**os.environ, **env})


def test_a_plain_user_gets_the_same_lab():
    # A user with no rights at all, whose files are still ours: another user might not reach the interpreter.
    user = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    done = run(*user, sys.executable, "-P", "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    privileges, scheduling = done.stdout.strip().split("|")
    assert privileges == "user namespace" and scheduling.startswith("SCHED_OTHER")


def test_a_plain_user_keeps_labs(tmp_path: Path):
    user = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "sh", "-ec")
    netlab = f"{sys.executable} -P -m netlab"
    program = f"""
        {netlab} up mine --rtt 2ms --quiet
        {netlab} exec mine client cat /run/netns/server /proc/sys/kernel/hostname 2>&1 | tail -1
        {netlab} exec mine server sh -c 'exit 5' || echo $?
        {netlab} down mine
    """
    done = run(*user, program, XDG_RUNTIME_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "netlab\n5\n" in done.stdout
    assert list((tmp_path / "netlab").iterdir()) == []


def test_without_a_folder_for_scratch_it_says_which_to_make():
    from netlab.lab.scratch import _CANDIDATES

    # Not the folder that this very interpreter runs from: it holds something, so it is not free either.
    ours = (sys.executable, sys.prefix, sys.base_prefix, str(Path(__file__).resolve()))
    hidden = [name for name in _CANDIDATES if not any(path.startswith(f"{name}/") for path in ours)]
    hide = "; ".join(f"if [ -d {name} ]; then mount --bind /etc {name}; fi" for name in hidden)
    program = f'{hide}; "$0" -P -c "$1"'
    done = run("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", program, sys.executable, PROGRAM)
    last = done.stderr.strip().splitlines()[-1]
    assert "no folder can carry the lab's scratch" in last and "/srv" in last
    assert "the lab is gone" not in done.stderr

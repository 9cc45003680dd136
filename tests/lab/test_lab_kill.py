"""Whatever is killed, whenever: no namespace, link, process or file is left."""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab
KILLS = 50
_WAIT_S = 30
PROGRAM = """
import sys
from netlab.lab import Lab
print("begin", flush=True)
with Lab() as lab:
    child = lab.server.spawn(["sleep", "600"])
    lab.server.run(["touch", lab.server.scratch + "/file"])
    print("up", flush=True)
    lab.measure_rtt(50)
    while True:
        lab.measure_rtt(10)
"""


def processes(mark: str) -> set[int]:
    """Pids whose environment holds `mark`: every descendant of the command inherits it."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def namespaces() -> set[str]:
    """Network namespaces that any process holds, by descriptor or by living in them."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            found.add(os.readlink(entry / "ns/net"))
            for descriptor in (entry / "fd").iterdir():
                target = os.readlink(descriptor)
                if target.startswith("net:"):
                    found.add(target)
        except OSError:
            continue
    return found


def gone(pids: set[int]) -> None:
    """Wait until every one of `pids` is gone; fail when one is not."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], _WAIT_S)[0], f"process {pid} is still there"
        finally:
            os.close(descriptor)


def start(mark: str) -> subprocess.Popen[str]:
    env = {**os.environ, "NETLAB_TEST_MARK": mark}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
    )


def links() -> str:
    return "\n".join(sorted(line.split(":")[0] for line in Path("/proc/net/dev").read_text().splitlines()))


def test_fifty_kills_at_random_moments_leave_nothing():
    chance = random.Random(20261201)
    before, links_before, files_before = namespaces(), links(), set(os.listdir("/tmp"))
    for number in range(KILLS):
        mark = f"netlab-kill-{os.getpid()}-{number}"
        with start(mark) as command:
            assert command.stdout is not None
            assert command.stdout.readline() == "begin\n"
            # From the first system call of the lab to long after it stands.
            select.select([command.stdout], [], [], chance.uniform(0, 0.5))
            seen = processes(mark)
            victim = chance.choice(sorted(seen)) if number % 2 and seen else command.pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            if victim != command.pid:
                # Its owner notices by itself, or is killed in turn: a lost agent must not leave the rest behind.
                command.kill()
            command.wait(_WAIT_S)
            gone(seen | processes(mark))
        assert not processes(mark)
    assert namespaces() <= before
    assert links() == links_before
    assert {name for name in set(os.listdir("/tmp")) - files_before if "netlab" in name} == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_polite_signal_leaves_nothing_either(number: signal.Signals):
    mark = f"netlab-polite-{os.getpid()}-{number}"
    with start(mark) as command:
        assert command.stdout is not None
        assert [command.stdout.readline() for _ in range(2)] == ["begin\n", "up\n"]
        seen = processes(mark)
        command.send_signal(number)
        command.wait(_WAIT_S)
        gone(seen)
    assert not processes(mark)


def test_the_owner_learns_that_its_lab_was_killed():
    program = """
from netlab.errors import LabError
from netlab.lab import Lab
import os, signal, subprocess
with Lab() as lab:
    pgrep = ["pgrep", "-P", str(os.getpid()), "-f", "netlab.lab.agent"]
    holders = subprocess.run(pgrep, capture_output=True, text=True)
    os.kill(int(holders.stdout.split()[0]), signal.SIGKILL)
    try:
        while True:
            lab.server.run(["true"])
    except LabError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=_WAIT_S)
    assert "the lab is gone" in done.stdout
    assert done.returncode == 0


def test_a_kept_lab_whose_name_is_gone_ends(tmp_path: Path):
    mark = f"netlab-kept-{os.getpid()}"
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "NETLAB_TEST_MARK": mark}
    subprocess.run([sys.executable, "-m", "netlab", "up", "lost", "--rtt", "2ms"], env=env, check=True)
    seen = processes(mark)
    assert seen
    (name,) = tmp_path.rglob("lost*")
    name.unlink()
    gone(seen)
    assert not processes(mark)

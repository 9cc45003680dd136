"""`netlab exec` at a terminal: the program there is the terminal's own, and dies with the command or the lab."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab
COMMAND = (sys.executable, "-P", "-m", "netlab")
_WAIT_S = 15


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which a kept lab "x" is found."""
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "PS1": "ready> ", "TERM": "dumb"}
    subprocess.run([*COMMAND, "up", "x", "--rtt", "2ms", "--quiet"], env=env, check=True)
    yield env
    subprocess.run([*COMMAND, "down", "x"], env=env, check=True)


class Terminal:
    """A command on a pseudo-terminal, talked to like a person does: wait for words, then type."""

    def __init__(self, env: dict[str, str], *argv: str) -> None:
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, env)
        self.seen = ""

    def expect(self, pattern: str) -> None:
        deadline = time.monotonic() + _WAIT_S
        while (found := re.search(pattern, self.seen)) is None:
            data = self._read(deadline)
            assert data, f"ended without {pattern}: {self.seen!r}"
            self.seen += data.decode(errors="replace")
        self.seen = self.seen[found.end() :]

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def end(self) -> int:
        deadline = time.monotonic() + _WAIT_S
        while self._read(deadline):
            pass
        os.close(self.screen)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, deadline: float) -> bytes:
        left = max(0, deadline - time.monotonic())
        if not select.select([self.screen], [], [], left)[0]:
            os.kill(self.pid, signal.SIGKILL)
            pytest.fail(f"nothing more came after {self.seen!r}")
        with suppress(OSError):  # EIO: the terminal's last user left
            return os.read(self.screen, 4096)
        return b""


def test_a_shell_in_a_lab_has_job_control_and_survives_ctrl_c(kept):
    shell = Terminal(kept, *COMMAND, "exec", "x", "server", "bash", "--norc", "--noediting", "-i")
    shell.expect(r"(?s)\A(?!.*no job control).*ready> ")
    shell.type("tty; echo at-$((1+1))\n")
    shell.expect(r"/dev/pts/\d+\s+at-2\s+ready> ")
    # The program itself says that it is there: a Ctrl-C before it has the terminal would be the shell's.
    shell.type("sh -c 'echo start-$((2+2)); exec sleep 600'\n")
    shell.expect("start-4")
    shell.type("\x03")
    shell.expect("ready> ")
    shell.type("echo lives-$?-$((3+3))\n")
    shell.expect(r"lives-130-6\s+ready> ")
    shell.type("sleep 600 &\n")
    shell.expect("ready> ")
    shell.type("jobs\n")
    shell.expect(r"Running\s+sleep 600.*\s+ready> ")
    shell.type("kill %1; wait; grep -c eth0 /proc/net/dev; exit 7\n")  # or it would keep the terminal open
    shell.expect(r"\s1\s")
    assert shell.end() == 7


def test_ctrl_c_ends_a_program_that_does_not_mind_it(kept):
    program = Terminal(kept, *COMMAND, "exec", "x", "client", "sh", "-c", "echo up; exec sleep 600")
    program.expect("up")
    program.type("\x03")
    assert program.end() == 130


def descendants(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found |= {child} | descendants(child)
    return found


@contextmanager
def running(env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A command that runs a program in the lab, which is up; it never outlives the test."""
    argv = [*COMMAND, "exec", "x", "server", "sh", "-c", "echo up; exec sleep 600"]
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as command:
        try:
            assert command.stdout is not None and command.stdout.readline() == "up\n"
            yield command
        finally:
            command.kill()


def gone(pids: set[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            assert select.select([descriptor], [], [], _WAIT_S)[0], f"process {pid} is still there"
            os.close(descriptor)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_program_ends_with_the_command_that_ran_it(kept, number: signal.Signals, code: int):
    with running(kept) as command:
        inside = descendants(command.pid)
        assert len(inside) == 2  # the program, and what entered the lab for it
        command.send_signal(number)
        assert command.wait(_WAIT_S) == code
    gone(inside)


def test_the_program_ends_with_its_lab(kept):
    with running(kept) as command:
        subprocess.run([*COMMAND, "down", "x"], env=kept, check=True, capture_output=True)
        assert command.wait(_WAIT_S) == 128 + signal.SIGKILL
    subprocess.run([*COMMAND, "up", "x", "--rtt", "2ms", "--quiet"], env=kept, check=True)


def test_its_streams_and_folder_are_the_callers(kept, tmp_path: Path):
    argv = [*COMMAND, "exec", "x", "client", "sh", "-c", "cat; pwd; echo aside >&2"]
    done = subprocess.run(argv, env=kept, input="typed\n", capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == (f"typed\n{tmp_path}\n", "aside\n", 0)

"""Programs that start with exactly what they were given, or say why not."""

import os
import signal

import pytest

from netlab.errors import LabError
from netlab.lab.start import Command, fork_exec, restore_signals

ENV = {"PATH": os.environ["PATH"]}


def ready() -> None:
    restore_signals()


def run(*argv: str, **more) -> tuple[int, str]:
    """Return the exit status and what the program wrote to its stdout."""
    read, write = os.pipe()
    with os.fdopen(read) as pipe:
        try:
            given = (None, write, None, *more.pop("extra", ()))
            pid = fork_exec(Command(argv=[*argv], env=ENV, descriptors=given, **more), ready)
        finally:
            os.close(write)
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def test_a_program_runs_in_its_folder_with_its_environment_alone():
    code, said = run("sh", "-c", 'pwd; echo "${HOME-none}"; exit 7', folder="/etc")
    assert (code, said) == (7, "/etc\nnone\n")


@pytest.mark.parametrize("count", [0, 1, 40, 200])
def test_it_has_the_descriptors_it_was_given_and_no_other(count: int):
    kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
    try:
        # In an order that is not theirs, so that each lands on another's number.
        _, said = run("sh", "-c", "exec ls /proc/self/fd", extra=kept[::-1])
    finally:
        for descriptor in kept:
            os.close(descriptor)
    # One more: ls has the folder open.
    assert sorted(map(int, said.split())) == list(range(3 + count + 1))


def test_descriptors_arrive_in_order():
    files = [os.memfd_create("file") for _ in range(12)]
    for number, descriptor in enumerate(files):
        os.write(descriptor, str(number).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        _, said = run("sh", "-c", "cat /proc/self/fd/3 /proc/self/fd/4 /proc/self/fd/14", extra=files[::-1])
    finally:
        for descriptor in files:
            os.close(descriptor)
    assert said == "11100"


def test_signals_that_we_ignore_are_not_ignored_by_it():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        code, _ = run("sh", "-c", "kill -TERM $$; exit 0")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == -signal.SIGTERM


@pytest.mark.parametrize(
    ("argv", "more", "words"),
    [
        (("no-such-program",), {}, "start no-such-program: No such file"),
        (("/etc/passwd",), {}, "start /etc/passwd: Permission denied"),
        (("true",), {"folder": "/no/such"}, "start true: /no/such: No such file"),
        ((), {}, "there is no command"),
        (("tr\0ue",), {}, "null"),
        (("true", "x" * 200_000), {}, "Argument list too long"),
        (("true",), {"extra": (999_999,)}, "Bad file descriptor"),
    ],
)
def test_a_program_that_cannot_start_says_why_and_leaves_nothing(argv, more, words: str):
    before = os.listdir("/proc/self/fd")
    with pytest.raises(LabError) as caught:
        run(*argv, **more)
    assert words in caught.value.what and caught.value.hint
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)

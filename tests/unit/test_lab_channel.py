"""Messages between a lab's owner and its agent: sizes, descriptors, ends, and answers that nobody waits for."""

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterator

import pytest

from netlab.errors import LabError
from netlab.lab import channel
from netlab.lab.lab import Remote

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.settimeout(10)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def null() -> Iterator[int]:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("size", [0, 60_000, 70_000, 300_000, 5_000_000])
@pytest.mark.parametrize("count", [0, 1, channel.MOST_DESCRIPTORS])
def test_any_size_and_every_descriptor_arrives(pair: Pair, null: int, size: int, count: int):
    before = opened()
    message = {"text": "x" * size}
    channel.send(pair[0], message, (null,) * count)
    received = channel.receive(pair[1])
    assert received is not None
    assert received[0] == message and len(received[1]) == count
    assert not any(os.get_inheritable(descriptor) for descriptor in received[1])
    assert {os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in received[1]} <= {os.devnull}
    channel.close_all(received[1])
    assert opened() == before


def test_a_peer_that_left_is_none(pair: Pair):
    pair[0].close()
    assert channel.receive(pair[1]) is None


def test_without_room_for_descriptors_none_is_lost_in_silence(pair: Pair, null: int):
    before = opened()
    channel.send(pair[0], {}, (null,) * 8)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        # The numbers below `highest` that are free still fit: fill them first.
        filled: list[int] = []
        with contextlib.suppress(OSError):
            while True:
                filled.append(os.dup(null))
        channel.close_all([filled.pop()])
        with pytest.raises(OSError, match="Too many open files"):
            channel.receive(pair[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        channel.close_all(filled)
    assert opened() == before


class Agent(threading.Thread):
    """Answers each request with what the test says."""

    def __init__(self, control: socket.socket, *answers) -> None:
        super().__init__()
        self.control = control
        self.answers = answers
        self.start()

    def run(self) -> None:
        for answer in self.answers:
            received = channel.receive(self.control)
            assert received is not None
            for extra in answer(received[0]["id"]):
                channel.send(self.control, *extra)


def test_an_answer_whose_asker_was_interrupted_is_not_the_next_ones(pair: Pair, null: int):
    """As after Ctrl-C between a request and its answer."""
    before = opened()
    remote = Remote(pair[0])
    agent = Agent(
        pair[1],
        lambda number: [({"id": number, "ok": "first"},)],
        lambda number: [({"id": number - 5, "ok": "stale"}, (null, null)), ({"id": number, "ok": "second"},)],
    )
    assert remote.ask("one") == ("first", [])
    assert remote.ask("two") == ("second", [])
    agent.join()
    assert opened() == before


def test_an_error_is_the_agents_words(pair: Pair):
    agent = Agent(pair[1], lambda number: [({"id": number, "error": "no such thing", "hint": "look"},)])
    with pytest.raises(LabError, match="no such thing") as caught:
        Remote(pair[0]).ask("find")
    assert caught.value.hint == "look"
    agent.join()


def test_a_refusal_before_any_request_was_read_is_heard(pair: Pair):
    agent = Agent(pair[1], lambda _number: [({"id": None, "error": "forbidden", "hint": "allow it"},)])
    with pytest.raises(LabError, match="forbidden"):
        Remote(pair[0]).ask("build")
    agent.join()


def test_an_agent_that_is_gone_is_said(pair: Pair):
    pair[1].close()
    with pytest.raises(LabError, match="spawn: the lab is gone"):
        Remote(pair[0]).ask("spawn")


def test_an_agent_that_does_not_answer_is_not_waited_for_without_end(pair: Pair):
    pair[0].settimeout(0.01)
    with pytest.raises(LabError, match="no answer from the lab"):
        Remote(pair[0]).ask("spawn")


def test_a_closed_lab_and_closed_descriptors_are_told_apart(pair: Pair):
    remote = Remote(pair[0])
    with pytest.raises(LabError, match="descriptor 999999: Bad file descriptor"):
        remote.ask("spawn", (999_999,))
    with pytest.raises(LabError, match="251 descriptors"):
        remote.ask("spawn", (0,) * (channel.MOST_DESCRIPTORS + 1))
    remote.close()
    with pytest.raises(LabError, match="the lab is closed"):
        remote.ask("spawn")

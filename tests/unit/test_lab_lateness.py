"""The delay line's log: windows of time, drops in their own window, a wrapped ring, a clock that was set."""

import os
from collections.abc import Iterator

import pytest

from netlab.lab.lateness import CAPACITY, Kind, Log


@pytest.fixture
def logs() -> Iterator[tuple[Log, Log]]:
    """The writer's and the reader's mapping of one log."""
    writer, descriptor = Log.create()
    reader = Log(descriptor)
    yield writer, reader
    writer.close()
    reader.close()
    os.close(descriptor)


def test_an_empty_log_reports_no_figures(logs):
    report = logs[1].read(0, 10**18).summary()
    assert (report.packets, report.median, report.p99, report.worst) == (0, None, None, None)


def test_a_window_holds_what_is_in_it_ends_included(logs):
    writer, reader = logs
    for at, late in ((10, 5), (20, 1), (30, 9), (40, 3)):
        writer.note(at, late, Kind.TO_CLIENT if at % 20 else Kind.TO_SERVER)
    window = reader.read(20, 30)
    assert window.latenesses == (1, 9) and window.whole
    assert reader.read(20, 40).summary().worst == 9
    assert reader.read(41, 50).latenesses == ()


def test_drops_losses_and_steps_belong_to_their_own_window(logs):
    writer, reader = logs
    writer.note(10, 3, Kind.DROPPED)
    writer.note(11, 1, Kind.LOST)
    writer.note(12, -5_000_000, Kind.STEPPED)
    writer.note(20, 7, Kind.TO_CLIENT)
    before, after = reader.read(0, 15), reader.read(16, 30)
    assert (before.dropped, before.lost, before.stepped, before.latenesses) == (3, 1, True, ())
    assert (after.dropped, after.lost, after.stepped, after.latenesses) == (0, 0, False, (7,))


def test_percentiles_are_those_of_the_sorted_packets(logs):
    writer, reader = logs
    for number in range(200):
        writer.note(number, 199 - number, Kind.TO_CLIENT)
    report = reader.read(0, 199).summary()
    assert (report.packets, report.median, report.p99, report.worst) == (200, 100, 198, 199)


def test_a_window_that_the_ring_overwrote_is_not_whole(logs):
    writer, reader = logs
    for number in range(CAPACITY + 10):
        writer.note(number, 0, Kind.TO_CLIENT)
    assert not reader.read(5, CAPACITY + 10).whole
    late = reader.read(CAPACITY - 5, CAPACITY + 10)
    assert late.whole and len(late.latenesses) == 15


def test_a_window_that_ends_before_it_begins_saw_the_clock_set_back(logs):
    writer, reader = logs
    writer.note(100, 1, Kind.TO_CLIENT)
    writer.note(40, -70, Kind.STEPPED)
    writer.note(45, 1, Kind.TO_CLIENT)
    assert reader.read(100, 50).stepped

"""Golden captures of real engines, made by the tool itself, and what the analysis says of them."""

import importlib.util
from pathlib import Path

import msgspec
import pytest

from netlab.analysis import diagnose
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.capture.second import pyshark_psh_table
from netlab.diagnosis import Cause, ExchangeKind

HERE = Path(__file__).resolve().parent
CAPTURES = HERE.parents[1] / "captures"
PATHS = sorted(CAPTURES.glob("*.pcapng"))
IDLE_FROM = 5  # queries before this one warm the connection up: no silence before them


def load_remake():
    spec = importlib.util.spec_from_file_location("golden_remake", HERE / "remake.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def queries(path: Path):
    with open_capture(path) as capture:
        found = diagnose(capture.segments(), file=path.name, summary=capture.summary)
    return [e for e in found.exchanges if e.kind is ExchangeKind.QUERY and e.index >= IDLE_FROM]


def test_there_are_captures_of_both_engines_at_both_ends():
    names = {path.name for path in PATHS}
    for version in ("26.7", "26.9"):
        for end in ("client", "server"):
            assert f"clickhouse-{version}-rtt32-initcwnd8.{end}.pcapng" in names


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_diagnosis_is_the_golden_one(path: Path):
    golden = msgspec.json.decode((HERE / f"{path.stem}.json").read_bytes())
    derived = msgspec.json.decode(msgspec.json.encode(load_remake().derive(path)))
    assert derived == golden


@pytest.mark.parametrize(("case", "window"), [("rtt32-initcwnd8", 8), ("rtt80-initcwnd6", 6)])
def test_the_stalled_engine_restarts_at_its_initial_window(case: str, window: int):
    found = queries(CAPTURES / f"clickhouse-26.7-{case}.server.pcapng")
    assert len(found) >= 3
    for exchange in found:
        assert exchange.cause is Cause.IDLE_WINDOW_RESTART
        assert exchange.first_flight_segments == window
        assert exchange.extra_round_trips == 1
        (finding,) = exchange.findings
        before, ack, resumed = finding.evidence.frames
        assert before < ack < resumed, "the ACK that is named came between the flight and what it released"
        assert exchange.rtt is not None and exchange.tail is not None and exchange.tail > 0.9 * exchange.rtt


@pytest.mark.parametrize("name", ["clickhouse-26.9-rtt32-initcwnd8", "clickhouse-26.7-rtt32-initcwnd20"])
def test_the_healed_ones_wait_for_nothing(name: str):
    for end in ("server", "client"):
        for exchange in queries(CAPTURES / f"{name}.{end}.pcapng"):
            assert exchange.extra_round_trips == 0
            assert exchange.rtt is not None and exchange.tail is not None and exchange.tail < 0.1 * exchange.rtt


def test_the_patch_halves_the_pushes():
    before, after = (
        psh_table(CAPTURES / f"clickhouse-{version}-rtt32-initcwnd8.server.pcapng", 9000)
        for version in ("26.7", "26.9")
    )
    assert after.segments <= before.segments / 2


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_tshark_counts_the_same_pushes(path: Path):
    assert pyshark_psh_table(path, 9000) == psh_table(path, 9000)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_nothing_of_the_machine_is_in_a_capture(path: Path):
    assert path.stat().st_size < 100_000
    assert b"/home/" not in path.read_bytes() and b"/root" not in path.read_bytes()

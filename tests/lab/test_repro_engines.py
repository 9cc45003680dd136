"""The main job on the real engines, judged by round trips."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.engine]


def repro(folder: Path, *arguments: str, code: int = 0) -> dict:
    command = [sys.executable, "-m", "netlab", "repro", "--quiet", "--json", "--output", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def tails(run: dict) -> list[float]:
    """Tails of the sound queries in round trips."""
    rtt = run["rtt"]["median"]
    return [(s["eos_at"] - s["first_row_at"]) / rtt for s in run["samples"] if s["void"] is None]


def trips(run: dict) -> list[int]:
    """Extra round trips of the exchanges that belong to sound queries."""
    sent = [s["sent_at"] for s in run["samples"] if s["void"] is None]
    exchanges = [e for e in run["diagnosis"]["exchanges"] if e["index"] is not None]
    near = [min(exchanges, key=lambda e: abs(e["sent_at"] - at)) for at in sent]
    return [e["extra_round_trips"] for e in near]


@pytest.mark.parametrize(("rtt", "initcwnd"), [("32ms", 8), ("80ms", 6)])
def test_the_stall_is_one_round_trip_before_the_patch_and_none_after(rtt: str, initcwnd: int, tmp_path: Path):
    record = repro(tmp_path, "--rtt", rtt, "--initcwnd", str(initcwnd), "--count", "2")
    before, after = record["runs"]
    assert (before["version"], after["version"]) == ("26.7.2", "26.9.2")
    # Round trips do not depend on the machine; a busy one may hold a single row or end back for a while.
    assert max(tails(before)) >= 0.9 and min(tails(before)) <= 1.1 and len(tails(before)) == 2
    assert min(tails(after)) < 0.1 and len(tails(after)) == 2
    assert trips(before) == [1, 1] and trips(after) == [0, 0]
    causes = {e["cause"] for e in before["diagnosis"]["exchanges"][-2:]}
    assert causes == {"idle_window_restart"}
    assert after["psh"]["segments"] < 0.6 * before["psh"]["segments"]
    assert before["lab"]["ends"][1]["route"]["initcwnd"] == str(initcwnd)


@pytest.mark.parametrize(
    "cure",
    [["--initcwnd", "20"], ["--no-slow-start-after-idle"], ["--setting", "send_profile_events=0"]],
    ids=["a larger window", "no restart after idleness", "no ProfileEvents"],
)
def test_each_cure_takes_the_round_trip_away(cure: list[str], tmp_path: Path):
    record = repro(tmp_path, "--server", "clickhouse:26.7", "--count", "2", *cure)
    (run,) = record["runs"]
    assert min(tails(run)) < 0.1 and trips(run) == [0, 0]


def test_a_servers_exception_ends_its_query_and_not_the_run(tmp_path: Path):
    query = ["--idle", "100ms", "--query", "SELECT no_such"]
    # Nothing could be measured, and the exit code says so; every query was asked all the same.
    record = repro(tmp_path, "--server", "clickhouse:26.9", "--count", "2", *query, code=4)
    (run,) = record["runs"]
    assert [s["exception"]["code"] for s in run["samples"]] == [47, 47]
    assert run["error"] is None

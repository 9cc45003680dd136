"""The shipped scenarios tell what comes out, and say so when it does not."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from netlab.scenario_file import load_scenario

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
FILES = sorted(SCENARIOS.glob("*.toml"))
SCRIPTED = [path for path in FILES if "clickhouse" not in path.read_text().partition("[[server]]")[2]]
# Fewer queries and shorter gaps than the story's own: still beyond the retransmission timeout, after which the window
# shrinks.
SHORT = ("--count", "2", "--idle", "500ms")


def netlab(*arguments):
    command = [sys.executable, "-P", "-m", "netlab", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scenario_tells_its_story_and_what_must_come_out(path):
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.story
    assert path.read_text().startswith("# ")
    assert {label for label, _ in scenario.expectations} == {server.label for server in scenario.servers}
    assert all(e.cause and e.extra_round_trips is not None for _, e in scenario.expectations)


def test_shown_scenarios_are_files_that_say_the_same(tmp_path):
    for path in FILES:
        shown = netlab("scenario", "show", path)
        assert (shown.returncode, shown.stderr) == (0, "")
        copy = tmp_path / path.name
        copy.write_text(shown.stdout)
        again, first = load_scenario(copy), load_scenario(path)
        assert again == first or [s.path for s in first.servers if s.path]
    listed = json.loads(netlab("scenario", "list", SCENARIOS, "--json").stdout)["scenarios"]
    assert [entry["file"] for entry in listed] == [str(path) for path in FILES]


@pytest.mark.lab
@pytest.mark.parametrize("path", SCRIPTED, ids=lambda path: path.stem)
def test_what_a_scenario_expects_comes_out(path, tmp_path):
    done = netlab("repro", "--scenario", path, *SHORT, "--output", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    scenario = json.loads((tmp_path / "record.json").read_text())["scenario"]
    assert scenario["workload"]["count"] == 2  # flags override the file
    assert scenario["name"] == path.stem


FLIPS = [
    ("scripted-idle-window-restart", ("--initcwnd", "20"), "scripted: expected cause idle_window_restart, got healthy"),
    (
        "scripted-idle-window-restart",
        ("--no-slow-start-after-idle",),
        "scripted: expected 1 extra round trips, got 0",
    ),
    ("workaround-batched", ("--initcwnd", "2"), "scripted:batched: expected cause healthy, got idle_window_restart"),
]


@pytest.mark.lab
@pytest.mark.parametrize(("name", "switch", "said"), FLIPS, ids=lambda value: str(value)[:40])
def test_a_flipped_switch_fails_the_expectation(name, switch, said, tmp_path):
    only = ("--server", said.partition(": ")[0])  # half the time
    done = netlab(
        "repro", "--scenario", SCENARIOS / f"{name}.toml", *SHORT, *switch, *only, "--quiet", "--output", tmp_path
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert said in done.stderr.splitlines()
    assert (tmp_path / "report.html").exists()


def test_scenario_check_passes_for_all_of_them():
    done = netlab("scenario", "check", *FILES)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"{len(FILES)} scenario file\(s\) are sound\n", done.stdout)

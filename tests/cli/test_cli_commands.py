"""The command line as a user meets it: exit codes, one clear line, stdout and stderr apart, nothing left."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

QUICK = ["--server", "scripted", "--count", "1", "--idle", "600ms", "--warmup", "2", "--rtt", "8ms"]
COMMANDS = [
    "repro", "probe", "engine", "scenario", "up", "exec", "down", "clean", "doctor", "schema", "completion",
]  # fmt: skip


def netlab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    command = [sys.executable, "-m", "netlab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)


def complains(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The command failed as it should: the code, the words on stderr, no traceback, nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rtt", "32"], ["--rtt", 'a duration like "32ms"']),
        (["--rtt", "3parsec"], ["--rtt", 'a duration like "32ms"']),
        (["--rtt", "0"], ["rtt"]),
        (["--initcwnd", "0"], ["initcwnd", "1 to"]),
        (["--initcwnd", "many"], ["initcwnd"]),
        (["--idle", "-2s"], ["idle"]),
        (["--count", "0"], ["count"]),
        (["--loss", "200%"], ["--loss"]),
        (["--rate", "fast"], ["--rate", "100mbit"]),
        (["--server", "clickhouse:1.1"], ["26.7", "26.9"]),
        (["--server", "nonsense"], ["clickhouse:26.7"]),
        (["--server", "127.0.0.1:9000"], ["netlab probe"]),
        (["--setting", "nameonly"], ["NAME=VALUE"]),
        (["--scenario", "no-such.toml"], ["no-such.toml"]),
        (["--query", "SELECT 1", "--query-file", __file__], ["only one"]),
        (["--password-file", "/no/such/file"], ["--password-file", "No such file"]),
        (["--nonsense"], ["--nonsense"]),
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(arguments: list[str], words: list[str], tmp_path: Path):
    done = netlab("repro", *arguments, "--output", str(tmp_path / "out"))
    complains(done, 2, *words)
    assert not (tmp_path / "out").exists()


def test_an_unknown_command_is_named(tmp_path: Path):
    complains(netlab("reproduce"), 2, "reproduce", "netlab --help")


def test_help_lists_every_command_and_loads_nothing_heavy():
    done = netlab("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    program = (
        "import sys\nfrom netlab.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n"
        "    heavy = {'pandas', 'matplotlib', 'pyroute2', 'scapy', 'pyshark', 'rich', 'numpy', 'msgspec'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert loaded.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_does(name: str):
    done = netlab(name, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert "Usage: netlab" in done.stdout and len(done.stdout.splitlines()) > 5


@pytest.mark.lab
def test_a_run_prints_the_articles_lines_and_leaves_its_record(tmp_path: Path):
    done = netlab("repro", *QUICK, "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "addr=10.77.0.2:9000 sleep=600ms profile_events=true" in done.stdout
    assert "query 1: first_row=" in done.stdout and "(rows=1)" in done.stdout
    assert "1 extra round trip in the one query: idle_window_restart" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    wanted = {"record.json", "report.md", "report.html", "scripted.client.pcapng", "scripted.server.pcapng"}
    assert wanted <= names and not any(name.startswith(".") for name in names)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["schema"] == "netlab.run/1" and record["finished_at"] is not None
    assert record["runs"][0]["samples"][0]["void"] is None


@pytest.mark.lab
def test_json_is_one_object_on_stdout_and_quiet_is_quiet(tmp_path: Path):
    done = netlab("repro", *QUICK, "--json", "--quiet", "--output", str(tmp_path))
    assert done.returncode == 0
    assert json.loads(done.stdout)["runs"][0]["server"]["label"] == "scripted"
    assert done.stderr == ""


@pytest.mark.lab
def test_output_that_cannot_be_written_is_said_before_anything_runs(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    done = netlab("repro", *QUICK, "--output", str(blocked / "out"))
    complains(done, 4, "--output")


def test_an_engine_that_is_not_installed_says_how_to_get_it(tmp_path: Path):
    done = netlab("repro", "--server", "clickhouse:26.7", "--output", str(tmp_path), NETLAB_CACHE=str(tmp_path / "no"))
    assert done.returncode == 4
    assert "engine 26.7 is not installed" in done.stderr and "netlab engine install 26.7" in done.stderr


@pytest.mark.lab
def test_without_tshark_the_run_goes_on_and_says_so(tmp_path: Path):
    done = netlab("repro", *QUICK, "--output", str(tmp_path), PATH="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert "our own reader's" in done.stderr
    assert json.loads((tmp_path / "record.json").read_text())["runs"][0]["psh"]["segments"] > 0


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_what_was_measured(number: signal.Signals, tmp_path: Path):
    command = [sys.executable, "-m", "netlab", "repro", *QUICK, "--count", "50", "--output", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("query 1:"):
                process.send_signal(number)
                break
        _, stderr = process.communicate()
    assert process.returncode == 128 + number
    assert "Traceback" not in stderr
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["interrupted"] == number.name and record["finished_at"] is None
    assert len(record["runs"][0]["samples"]) >= 1


@pytest.mark.lab
def test_an_unmet_expectation_is_exit_code_3(tmp_path: Path):
    scenario = tmp_path / "s.toml"
    scenario.write_text(
        '[link]\nrtt = "8ms"\n[[server]]\nuse = "scripted"\n[workload]\ncount = 1\nidle = "600ms"\nwarmup = 2\n'
        '[expect.scripted]\ncause = "healthy"\nextra_round_trips = 0\n'
    )
    done = netlab("repro", "--scenario", str(scenario), "--output", str(tmp_path / "out"))
    assert done.returncode == 3
    assert "expected" in done.stderr and "idle_window_restart" in done.stderr


@pytest.mark.lab
def test_a_kept_lab_can_be_looked_into_and_goes_away(tmp_path: Path):
    name, env = f"t{os.getpid()}", {"XDG_RUNTIME_DIR": str(tmp_path)}
    up = netlab("up", name, "--rtt", "4ms", "--initcwnd", "5", **env)
    assert up.returncode == 0, up.stderr
    try:
        again = netlab("up", name, **env)
        complains(again, 2, "is up already")
        inside = netlab("exec", name, "server", "cat", "/proc/net/dev", **env)
        assert "eth0" in inside.stdout
        assert netlab("exec", name, "client", "sh", "-c", "exit 7", **env).returncode == 7
    finally:
        assert netlab("down", name, **env).returncode == 0
    complains(netlab("exec", name, "client", "true", **env), 2, "no lab called")
    assert json.loads(netlab("clean", "--json", **env).stdout) == {"reaped": [], "alive": []}


class Peer(threading.Thread):
    """A listener on loopback that says `greeting` to its one client and then closes."""

    def __init__(self, greeting: bytes) -> None:
        super().__init__(daemon=True)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._greeting = greeting

    def run(self) -> None:
        with self._listening:
            if not select.select([self._listening], [], [], 30)[0]:
                return
            client, _ = self._listening.accept()
            with client:
                client.recv(4096)
                client.sendall(self._greeting)


@pytest.mark.parametrize("greeting", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n", b"", b"\xff" * 64])
def test_a_server_that_is_no_clickhouse_is_named(greeting: bytes):
    peer = Peer(greeting)
    peer.start()
    done = netlab("probe", f"127.0.0.1:{peer.port}", "--count", "1", "--quiet")
    peer.join(30)
    complains(done, 4, str(peer.port))


def test_a_refused_connection_says_what_to_check():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    complains(netlab("probe", f"127.0.0.1:{port}", "--quiet"), 4, str(port), "next:")


def test_the_schema_and_the_completion_are_printed():
    schema = json.loads(netlab("schema").stdout)
    assert "RunRecord" in json.dumps(schema)
    for shell in ("bash", "zsh", "fish"):
        assert "_NETLAB_COMPLETE" in netlab("completion", shell).stdout


@pytest.mark.lab
def test_the_doctor_says_what_this_machine_can_do():
    done = netlab("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0 and checks["lab"]["had"] and checks["lab"]["needed"]
    assert {"netem", "tshark", "engine 26.7", "congestion control"} <= set(checks)
    assert all(check["had"] or check["mend"] for check in checks.values())


def test_shipped_scenarios_are_sound():
    root = Path(__file__).resolve().parents[2] / "scenarios"
    files = [str(path) for path in sorted(root.glob("*.toml"))]
    assert len(files) >= 7
    done = netlab("scenario", "check", *files)
    assert done.returncode == 0, done.stderr

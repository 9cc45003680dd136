"""A clumsy and a hostile user: every fault is one line with the next step, and nothing of it is left."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUN = ("repro", "--count", "1", "--idle", "0", "--warmup", "0", "--rtt", "4ms", "--output", "out")
QUICK = (*RUN, "--server", "scripted")
COMMAND = (sys.executable, "-P", "-m", "netlab")  # -P: no folder of the test is taken for the package
PASSWORD = "correct-horse-7281"


def run(*argv, env=None, **options):
    env = {**os.environ, **(env or {})}
    return subprocess.run(argv, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL, **options)


def netlab(folder, *arguments, **env):
    return run(*COMMAND, *arguments, env=env, cwd=folder)


def complaint(done, code):
    """Return what was said and the hint of a command that failed with `code`: two lines at the end of stderr."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    said, hint = done.stderr.splitlines()[-2:]
    assert said.startswith("netlab: ")
    assert hint.startswith("  next: ")
    return said, hint


def scripted(folder, train, name="train.toml"):
    (folder / name).write_text(train)
    return f"scripted:{name}"


def marked(mark):
    """Return the processes whose environment holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue  # it ended, or is not ours to look at
    return found


def all_gone(mark):
    """Whether the processes marked so have ended; the last of a lab is its holder, which ends after its lab."""
    return any(not marked(mark) for _ in range(200))


# -- usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (
            ("repro", "--rtt", "32"),
            """Invalid value for '--rtt': expected a duration like "32ms", got "32\"""",
            "repro",
        ),
        (("probe", "127.0.0.1:99999"), 'no server "127.0.0.1:99999"', "netlab probe --help"),
        (("probe",), "Missing argument 'HOST:PORT'", "netlab probe --help"),
        (("probe", "scripted"), "scripted is not HOST:PORT", "netlab repro --server scripted"),
        (("repro", "--password", "x"), "No such option '--password'", "netlab repro --help"),
        (("engine", "reinstall"), "No such command 'reinstall'", "netlab engine --help"),
        (("engine", "install", "1.1"), 'no engine "1.1"', "26.7, 26.9"),
        (("exec", "x", "nowhere", "ls"), "Invalid value for 'HOST': 'nowhere'", "netlab exec --help"),
        (("up", "a/b"), 'no lab can be called "a/b"', "letters"),
        (("down", "none"), "no lab called none", "netlab up none"),
        (("completion", "tcsh"), "Invalid value for 'SHELL': 'tcsh'", "netlab completion --help"),
        (("scenario", "list", "nowhere"), "nowhere: no such folder", "name the folder"),
        (("repro", "--query-file", "binary"), "--query-file binary: not text in UTF-8", "a file with SQL"),
        (("repro", "--query-file", "."), "--query-file .: Is a directory", "a file with SQL"),
        (("repro", "--query-file", "none"), "--query-file none: No such file", "a file with SQL"),
        (("repro", "--query-file", "empty"), "workload.query: expected SQL, got nothing", "netlab repro --help"),
        (("repro", "--query-file", "large"), "--query-file large: larger than", "a file with SQL"),
        (("repro", "--password-file", "binary"), "--password-file binary: not text", "the password alone"),
        (("repro", "--password-file", "large"), "--password-file large: larger", "the password alone"),
        (("repro", "--scenario", "secret.toml"), "a password does not belong in a scenario file", "NETLAB_PASSWORD"),
        (("repro", "--scenario", "."), ".: Is a directory", "TOML file"),
        (("repro", "--query", "\udcff"), "an argument is not UTF-8", "--query-file"),
    ],
    ids=lambda value: " ".join(value).encode(errors="replace").decode() if isinstance(value, tuple) else "",
)
def test_what_cannot_be_meant_names_the_fault_and_the_next_step(tmp_path, arguments, said, hint):
    (tmp_path / "binary").write_bytes(b"SELECT \xff")
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "large").write_text("1" * (2 << 20))
    (tmp_path / "secret.toml").write_text(f'[workload]\npassword = "{PASSWORD}"\n')
    before = sorted(tmp_path.iterdir())
    done = netlab(tmp_path, *arguments, XDG_RUNTIME_DIR=str(tmp_path / "run"))
    spoken = complaint(done, 2)
    assert said in spoken[0]
    assert hint in spoken[1]
    assert done.stdout == ""
    assert PASSWORD not in done.stderr
    assert [path for path in sorted(tmp_path.iterdir()) if path.name != "run"] == before


def test_scenario_check_says_every_files_first_fault(tmp_path):
    (tmp_path / "good.toml").write_text('[link]\nrtt = "4ms"\n')
    (tmp_path / "typo.toml").write_text("[link]\nrrt = 5\n")
    (tmp_path / "bad.toml").write_text("x = ")
    done = netlab(tmp_path, "scenario", "check", "--json", "good.toml", "typo.toml", "bad.toml")
    faults = {entry["file"]: entry["fault"] for entry in json.loads(done.stdout)["files"]}
    assert done.returncode == 2
    assert faults["good.toml"] is None
    assert 'link.rrt: no such key; did you mean "rtt"?' in faults["typo.toml"]
    assert "not TOML" in faults["bad.toml"]
    assert done.stderr.splitlines() == [faults["typo.toml"], faults["bad.toml"]]


# -- servers ----------------------------------------------------------------------------------------------------------


@pytest.mark.lab
def test_the_password_is_nowhere(tmp_path):
    """Neither a right one nor a wrong one: not in the terminal, records, logs or captures; nor in a child's memory."""
    server = scripted(tmp_path, f'[login]\npassword = "{PASSWORD}"\n[[answer]]\ntrain = ["end_of_stream"]\n')
    done = netlab(tmp_path, *RUN, "--server", server, NETLAB_PASSWORD=PASSWORD)
    assert done.returncode == 0, done.stderr
    (tmp_path / "file").write_text(f"{PASSWORD}wrong\n")
    refused = netlab(tmp_path, *RUN, "--server", server, "--output", "refused", "--password-file", "file")
    said, hint = complaint(refused, 4)
    assert "server exception 516" in said
    assert "password" in hint
    written = [path for name in ("out", "refused") for path in (tmp_path / name).iterdir()]
    assert {path.suffix for path in written} >= {".json", ".md", ".html", ".pcapng", ".log"}
    for path in written:
        assert PASSWORD.encode() not in path.read_bytes(), path
    for each in (done, refused):
        assert PASSWORD not in each.stdout + each.stderr


@pytest.mark.lab
def test_no_process_of_ours_inherits_the_password(tmp_path):
    mark = f"NETLAB_TEST_MARK={os.urandom(8).hex()}"
    env = {**os.environ, **dict([mark.split("=")]), "NETLAB_PASSWORD": PASSWORD}
    server = scripted(tmp_path, f'[login]\npassword = "{PASSWORD}"\n[[answer]]\ntrain = ["end_of_stream"]\n')
    argv = [*COMMAND, *RUN, "--server", server, "--idle", "300ms", "--count", "20"]
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for line in process.stdout:
            if line.startswith(b"query 1:"):
                break
        pids = marked(mark)
        # The server's process is told the password that its train asks for.
        own = {str(process.pid)} | {pid for pid in pids if b"scripted_child" in read(pid, "cmdline")}
        holding = [pid for pid in pids if PASSWORD.encode() in read(pid, "environ")]
        arguments = [read(pid, "cmdline") for pid in pids]
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert len(pids) > 5
    assert set(holding) <= own
    assert not any(PASSWORD.encode() in each for each in arguments)
    assert process.returncode == 143
    assert all_gone(mark)


def read(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


@pytest.mark.lab
def test_an_unknown_database_is_refused_at_the_login(tmp_path):
    said, hint = complaint(netlab(tmp_path, *QUICK, "--database", "nope"), 4)
    assert "server exception 81" in said
    assert "nope does not exist" in said
    assert "database" in hint
    assert "server exception 81" in json.loads((tmp_path / "out/record.json").read_text())["runs"][0]["error"]


EXCEPTION = """
[[answer]]
query = "bad"
train = [{ send = "exception", code = 47, text = "no \\u001b[31m`column`\\u202e here" }]
"""
FINE = '[[answer]]\ntrain = ["header", "data", "end_of_stream"]\n'


@pytest.mark.lab
def test_a_query_that_ends_in_an_exception_does_not_end_the_run(tmp_path):
    server = scripted(tmp_path, EXCEPTION + FINE)
    done = netlab(tmp_path, *RUN, "--server", server, "--server", "scripted", "--query", "SELECT bad", "--count", "2")
    lines = [line for line in done.stdout.splitlines() if line.startswith("query ")]
    assert len(lines) == 4
    for line in lines[:2]:
        assert "exception 47" in line
        assert "\\x1b[31m`column`\\u202e here" in line
    assert all("first_row=" in line for line in lines[2:])
    said, hint = complaint(done, 4)
    assert "every query ended in an exception" in said
    assert "query" in hint
    record = json.loads((tmp_path / "out/record.json").read_text())
    assert [len(each["samples"]) for each in record["runs"]] == [2, 2]
    assert record["runs"][0]["samples"][1]["exception"]["code"] == 47


@pytest.mark.lab
@pytest.mark.engine
@pytest.mark.parametrize(
    ("extra", "code", "words"),
    [
        (("--query", "SELECT nope"), 47, "nope"),
        (("--setting", "no_such_setting=1"), 115, "no_such_setting"),
    ],
    ids=["column", "setting"],
)
def test_an_engines_exception_is_printed_with_its_code(tmp_path, extra, code, words):
    done = netlab(tmp_path, *RUN, "--server", "clickhouse:26.9", *extra)
    said, _ = complaint(done, 4)
    assert f"exception {code}" in said
    assert words in said
    assert f"exception {code} " in done.stdout


@pytest.mark.lab
@pytest.mark.parametrize(
    ("train", "words"),
    [
        ('["header", { disconnect = "close" }]', "closed the connection during query 1"),
        ('["header", { disconnect = "reset" }]', "reset"),
        ('["header", { disconnect = "exit" }]', "the server died"),
        ('[{ text = "garbage" }]', "no packet has type 103"),
        ('["header"]', "no end of the answer within 400ms"),
    ],
    ids=["close", "reset", "exit", "garbage", "silence"],
)
def test_a_server_that_fails_in_an_answer_is_named(tmp_path, train, words):
    server = scripted(tmp_path, f"[[answer]]\ntrain = {train}\n")
    done = netlab(tmp_path, *RUN, "--server", server, "--timeout", "400ms")
    said, hint = complaint(done, 4)
    assert words in said + hint
    record = json.loads((tmp_path / "out/record.json").read_text())
    (only,) = record["runs"]
    assert only["error"]
    assert [sample["void"] is None for sample in only["samples"]] == [False]
    assert {capture["vantage"] for capture in only["captures"]} == {"client", "server"}
    assert (tmp_path / "out/report.html").exists()


@pytest.mark.parametrize(
    ("server", "code", "words"),
    [("/bin/true", 4, "not a ClickHouse server"), ("./none", 2, "no such file"), ("scripted:none.toml", 2, "No such")],
)
@pytest.mark.lab
def test_what_is_no_server_is_named(tmp_path, server, code, words):
    said, _ = complaint(netlab(tmp_path, *RUN, "--server", server), code)
    assert words in said


# -- the machine ------------------------------------------------------------------------------------------------------

NO_NAMESPACES = """
echo 0 > /proc/sys/user/max_user_namespaces
exec setpriv --bounding-set=-all --inh-caps=-all "$@"
"""


@pytest.mark.lab
def test_without_user_namespaces_the_hint_says_what_to_allow(tmp_path):
    argv = ("unshare", "--user", "--map-root-user", "sh", "-c", NO_NAMESPACES, "sh", *COMMAND)
    said, hint = complaint(run(*argv, *QUICK, cwd=tmp_path), 4)
    assert "namespaces" in said
    assert "user.max_user_namespaces" in hint
    assert "root" in hint
    doctor = run(*argv, "doctor", cwd=tmp_path)
    assert doctor.returncode == 4
    assert "FAIL lab" in doctor.stdout
    assert "Traceback" not in doctor.stderr


@pytest.mark.lab
@pytest.mark.parametrize("size", ["8k", "300k"])
def test_a_full_disk_is_said_and_half_a_file_is_not_left(tmp_path, size):
    program = f'mount -t tmpfs -o size={size} none . && cd . && cd "$PWD" && "$@"; code=$?; ls -A out >&2; exit $code'
    done = run("unshare", "--mount", "sh", "-c", program, "sh", *COMMAND, *QUICK, cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left on device\n  next: choose a folder with room" in done.stderr
    listed = done.stderr.partition("  next: ")[2].splitlines()[1:]
    assert listed
    assert not [name for name in listed if name.startswith(".")]
    assert "report:" not in done.stdout


def test_a_folder_that_nothing_can_be_put_into(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for output in ("/proc/x", "file", "file/below"):
        done = netlab(tmp_path, *QUICK, "--output", output)
        said, hint = complaint(done, 4)
        assert said.startswith(f"netlab: {output}: ")
        assert "--output" in hint
        assert done.stdout == ""
    assert (tmp_path / "file").read_text() == "in the way"


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_the_record_and_no_process(tmp_path, number):
    mark = f"NETLAB_TEST_MARK={os.urandom(8).hex()}"
    env = {**os.environ, **dict([mark.split("=")])}
    argv = [*COMMAND, *QUICK, "--idle", "100ms", "--count", "500"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=tmp_path, env=env, text=True, **pipes) as process:
        for line in process.stdout:
            if line.startswith("query 2:"):
                process.send_signal(number)
                break
        _, said = process.communicate()
    assert process.returncode == 128 + number
    assert said.splitlines()[-2:] == [
        "what was measured is in out/record.json",
        f"netlab: ended by {number.name}",
    ]
    assert all_gone(mark)
    record = json.loads((tmp_path / "out/record.json").read_text())
    assert record["interrupted"] == number.name
    assert len([s for s in record["runs"][0]["samples"] if s["eos_at"]]) >= 2
    assert len(record["runs"][0]["captures"]) == 2


@pytest.mark.lab
def test_a_signal_while_a_kept_lab_is_built_leaves_no_half_of_it(tmp_path):
    mark = f"NETLAB_TEST_MARK={os.urandom(8).hex()}"
    env = {**os.environ, **dict([mark.split("=")]), "XDG_RUNTIME_DIR": str(tmp_path)}
    argv = [*COMMAND, "up", "half"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not (tmp_path / "netlab/half.lab").exists():
            pass
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert list((tmp_path / "netlab").iterdir()) == []
    assert all_gone(mark)


@pytest.mark.lab
def test_a_kept_lab_that_cannot_be_built_leaves_nothing(tmp_path):
    mark = f"NETLAB_TEST_MARK={os.urandom(8).hex()}"
    env = {**dict([mark.split("=")]), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = netlab(tmp_path, "up", "half", "--emulation", "netem", "--rtt", "1ms", **env)
    if done.returncode == 0:  # a kernel with netem
        assert netlab(tmp_path, "down", "half", **env).returncode == 0
    else:
        assert "netem" in complaint(done, 4)[0]
    assert list((tmp_path / "netlab").iterdir()) == []
    assert all_gone(mark)


@pytest.mark.lab
def test_the_tool_in_a_lab_keeps_its_streams_and_exit_code_apart(tmp_path):
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert netlab(tmp_path, "up", "x", "--rtt", "2ms", **env).returncode == 0
    try:
        inside = ("x", "client", "sh", "-c", "echo said; echo meant >&2; exit 3")
        plain = netlab(tmp_path, "exec", *inside, **env)
        assert (plain.stdout, plain.stderr, plain.returncode) == ("said\n", "meant\n", 3)
        told = netlab(tmp_path, "exec", "--json", *inside, **env)
        assert json.loads(told.stdout) == {"exit_code": 3, "stdout": "said\n", "stderr": "meant\n"}
        assert (told.stderr, told.returncode) == ("", 3)
        assert netlab(tmp_path, "exec", "x", "client", "sh", "-c", "kill -9 $$", **env).returncode == 137
        missing = netlab(tmp_path, "exec", "x", "client", "no-such-tool", **env)
        assert "no-such-tool" in complaint(missing, 4)[0]
        listed = json.loads(netlab(tmp_path, "clean", "--json", **env).stdout)
        assert [entry["name"] for entry in listed["alive"]] == ["x"]
    finally:
        assert netlab(tmp_path, "down", "x", **env).returncode == 0

"""What goes where: results on stdout, progress and faults on stderr, JSON alone, no escape sequences, help for all."""

import html
import json
import os
import re
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path

import click
import pytest

from netlab.cli import cli
from netlab.cli.render import shell_line

COMMAND = (sys.executable, "-P", "-m", "netlab")
QUICK = ("repro", "--server", "scripted", "--count", "1", "--idle", "0", "--warmup", "0", "--rtt", "4ms")
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def netlab(folder, *arguments, **options):
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.run([*COMMAND, *arguments], cwd=folder, text=True, **{**settings, **options})


def commands():
    """Yield every command and group with the words that call it."""
    context = click.Context(cli, info_name="netlab")
    pending = [((), cli, context)]
    while pending:
        words, command, context = pending.pop()
        yield words, command, context
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                pending.append(((*words, name), inner, click.Context(inner, parent=context, info_name=name)))


COMMANDS = {" ".join(words): (words, command, context) for words, command, context in commands()}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name):
    words, command, context = COMMANDS[name]
    text = command.get_help(context)
    assert command.help and command.help.split("\n")[0].endswith((".", ":"))
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert all(option in text for option in parameter.opts)
        else:
            word = parameter.make_metavar(context).strip("[].")
            described = command.help + (context.parent.command.help or "")
            assert word.split(":")[0] in described, (name, word)
    if words and not isinstance(command, click.Group):
        assert "--json" in text


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("repro", "--help"), ("exec", "--help"), ("--version",)])
def test_help_imports_nothing_heavy(words):
    heavy = ("pandas", "matplotlib", "numpy", "pyroute2", "scapy", "pyshark", "rich", "msgspec")
    done = subprocess.run([sys.executable, "-P", "-X", "importtime", "-m", "netlab", *words], capture_output=True)
    assert done.returncode == 0
    assert done.stdout
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.decode().splitlines()}
    assert "click" in loaded
    assert not loaded & set(heavy)


@pytest.mark.parametrize(
    "words",
    [
        ("doctor",),
        ("engine", "list"),
        ("engine", "verify", "--quiet"),
        ("scenario", "list", str(SCENARIOS)),
        ("scenario", "show", str(SCENARIOS / "idle-window-restart.toml")),
        ("scenario", "check", str(SCENARIOS / "idle-window-restart.toml")),
        ("clean",),
        ("schema",),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_json_is_one_object_and_nothing_else(tmp_path, words):
    if words[:2] == ("engine", "verify"):
        env = {**os.environ, "NETLAB_CACHE": str(tmp_path)}  # hashing an engine takes seconds
    else:
        env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = netlab(tmp_path, *words, "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    assert done.stderr == ""


@pytest.mark.lab
def test_a_run_in_json_with_progress_on_stderr(tmp_path):
    done = netlab(tmp_path, *QUICK, "--json")
    assert done.returncode == 0
    record = json.loads(done.stdout)
    assert record["schema"].startswith("netlab.run/")
    (folder,) = (tmp_path / "reports").iterdir()
    assert record == json.loads((folder / "record.json").read_text())
    assert "scripted: building the lab" in done.stderr.splitlines()
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.lab
def test_a_failed_run_in_json_is_still_one_object(tmp_path):
    done = netlab(tmp_path, *QUICK, "--json", "--quiet", "--database", "nope")
    assert done.returncode == 4
    assert "server exception 81" in json.loads(done.stdout)["runs"][0]["error"]
    assert done.stderr.startswith("netlab: server exception 81")


@pytest.mark.lab
def test_quiet_text_has_no_progress(tmp_path):
    done = netlab(tmp_path, *QUICK, "--quiet", "--output", "out")
    assert done.returncode == 0
    assert done.stderr == ""
    assert re.search(r"^query 1: first_row= +[0-9.]+ms eos= +[0-9.]+ms tail= +[0-9.]+ms \(rows=1\)$", done.stdout, re.M)
    assert "report: out/report.html   record: out/record.json" in done.stdout


FULL = [("schema",), ("--help",), ("scenario", "list", str(SCENARIOS))]


@pytest.mark.parametrize("words", FULL, ids=" ".join)
def test_a_full_disk_behind_stdout_is_said(tmp_path, words):
    with open("/dev/full", "w") as full:
        done = netlab(tmp_path, *words, stdout=full)
    assert done.returncode == 4
    assert done.stderr == "netlab: standard output: No space left on device\n  next: write to a disk with room\n"


@pytest.mark.parametrize("words", [*FULL, QUICK], ids=lambda words: words[0])
def test_a_reader_that_left_is_told_nothing(tmp_path, words):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as nobody:
        done = netlab(tmp_path, *words, stdout=nobody)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr
    if words is not QUICK:
        assert done.stderr == ""


@pytest.mark.lab
def test_a_run_whose_reader_leaves_keeps_what_it_measured(tmp_path):
    argv = [*COMMAND, *QUICK, "--count", "500", "--idle", "50ms", "--quiet", "--output", "out"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("query 2:"):
                break
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141
    record = json.loads((tmp_path / "out/record.json").read_text())
    assert record["finished_at"] is None
    assert 2 <= len(record["runs"][0]["samples"]) < 500


@pytest.mark.lab
@pytest.mark.parametrize("words", [("schema",), (*QUICK, "--output", "out")], ids=["schema", "repro"])
def test_closed_streams_harm_nothing(tmp_path, words):
    done = subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *COMMAND, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    if "repro" in words:
        assert json.loads((tmp_path / "out/record.json").read_text())["finished_at"]
        assert (tmp_path / "out/report.html").exists()


EVIL = "SELECT '<script>alert(1)</script> | `x` ``` [a](javascript:b) \x1b[31m \u202e \u2066 \x07 é' -- \\\n+ 1"


@pytest.mark.lab
def test_hostile_sql_is_inert(tmp_path):
    (tmp_path / "evil.sql").write_text(EVIL)
    evil = ("--query-file", "evil.sql", "--output", "out\x1b[31m")
    done = netlab(tmp_path, *QUICK, *evil)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out\x1b[31m"
    assert json.loads((folder / "record.json").read_text())["scenario"]["workload"]["query"] == EVIL
    texts = {name: (folder / name).read_text() for name in ("report.md", "report.html")}
    texts |= {"stdout": done.stdout, "stderr": done.stderr}
    for name, text in texts.items():
        hidden = {c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t"}
        assert not hidden, name
    page = texts["report.html"]
    assert html.escape("<script>alert(1)</script>") in page
    assert "<script" not in page.lower()
    assert 'href="javascript' not in page.lower()
    # The line that repeats the run is what a shell reads back.
    again = next(line for line in done.stdout.splitlines() if line.startswith("again:"))
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {again.removeprefix('again:')}"], capture_output=True, text=True
    ).stdout.split("\0")[:-1]
    assert words == ["netlab", *QUICK, *evil]


@pytest.mark.parametrize("word", [EVIL, "", "plain", "it's", "a\\b\x1b", "é\u202e'\\", "$(x)\x07", "\x1b1"])
def test_a_shell_reads_back_what_it_is_told_to_run_again(word):
    line = shell_line(("printf", "%s", word))
    assert line.isprintable()
    assert subprocess.run(["bash", "-c", line], capture_output=True).stdout == word.encode()
    if word.isprintable():
        assert shlex.split(line) == ["printf", "%s", word]


def test_a_shell_completes_commands_and_options(tmp_path):
    for words, wanted in (("netlab rep", "plain,repro"), ("netlab repro --initc", "plain,--initcwnd")):
        env = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = netlab(tmp_path, env={**env, "_NETLAB_COMPLETE": "bash_complete"})
        assert done.stdout.splitlines() == [wanted]
        assert done.stderr == ""

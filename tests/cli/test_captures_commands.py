"""Captures from anywhere: what diagnose and compare print and write, and what they say of files that are none."""

import csv
import gzip
import html
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from netlab.analysis import diagnose
from netlab.capture.craft import ethernet, write_pcap
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.captures import labels
from netlab.diagnosis import Cause

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
BEFORE = CAPTURES / "clickhouse-26.7-rtt32-initcwnd8.server.pcapng"
AFTER = CAPTURES / "clickhouse-26.9-rtt32-initcwnd8.server.pcapng"
ALL = sorted(CAPTURES.glob("*.pcapng"))
SQL = b"SELECT max(id) FROM benchmark_test"
EVIL = b"<script>alert(1)</script>|`\x1b[31m\n\\"
COMMAND = (sys.executable, "-P", "-m", "netlab")


def netlab(folder, *arguments, **options):
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.run([*COMMAND, *map(str, arguments)], cwd=folder, text=True, **{**settings, **options})


def found_in(path):
    with open_capture(path) as capture:
        return diagnose(capture.segments(), file=str(path), summary=capture.summary)


def hidden(text):
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"}


@pytest.fixture
def hostile(tmp_path):
    """Return a capture whose SQL is hostile to terminals, Markdown and HTML."""
    assert len(EVIL) == len(SQL)
    raw = BEFORE.read_bytes()
    assert raw.count(SQL) == 8
    (tmp_path / "hostile.pcapng").write_bytes(raw.replace(SQL, EVIL))
    return tmp_path / "hostile.pcapng"


@pytest.fixture
def no_tcp(tmp_path):
    """Return a capture of one UDP packet."""
    udp = bytes([0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]) + bytes(
        [0, 53, 0, 53, 0, 8, 0, 0]
    )
    write_pcap(tmp_path / "udp.pcap", [(10**9, ethernet(udp))])
    return tmp_path / "udp.pcap"


def test_text_names_causes_frames_and_vantage(tmp_path):
    done = netlab(tmp_path, "diagnose", BEFORE)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0].endswith("128 packets, 128 TCP segments, 1 connection, 8 exchanges; captured at: server")
    assert lines[-3] == f"exchange 7: {SQL.decode()}"
    assert lines[-2].startswith("first row 2.02 ms, tail 31.68 ms, extra round trips 1")
    assert lines[-1].startswith("idle_window_restart (confidence 98%, 31.50 ms): 8 segments went out")
    assert lines[-1].endswith("[frames 115, 116, 117]")
    assert "handshake RTT 32.21 ms, least RTT 32.07 ms, MSS 1448" in lines
    assert "healthy (confidence 97%)" in lines
    assert not hidden(done.stdout)


def test_json_says_what_the_diagnosis_says(tmp_path):
    done = netlab(tmp_path, "diagnose", "--json", *ALL)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert [capture["file"] for capture in answer["captures"]] == [str(path) for path in ALL]
    for capture, path in zip(answer["captures"], ALL, strict=True):
        found = found_in(path)
        assert capture["vantage"] == found.vantage
        assert len(capture["connections"]) == len(found.connections)
        assert [e["cause"] for e in capture["exchanges"]] == [e.cause for e in found.exchanges]
        assert capture["exchanges"][0]["kind"] == "handshake"
        assert [e["index"] for e in capture["exchanges"]] == [None, *range(len(found.exchanges) - 1)]
        for exchange, original in zip(capture["exchanges"], found.exchanges, strict=True):
            main = next((f for f in original.findings if f.cause is original.cause), None)
            assert exchange["evidence"] == {
                "frames": list(main.evidence.frames) if main else [],
                "text": main.evidence.text if main else "",
            }
            assert exchange["tail_ms"] == (None if original.tail is None else original.tail / 1e6)
            assert exchange["first_byte_ms"] == (original.first_byte_at - original.sent_at) / 1e6
            assert exchange["last_byte_ms"] == (original.last_byte_at - original.sent_at) / 1e6
            assert exchange["rtt_ms"] == original.rtt / 1e6
            assert exchange["first_flight_segments"] == original.first_flight_segments
            assert exchange["extra_round_trips"] == original.extra_round_trips
            assert exchange["also"] == list(original.also)
            assert 0 <= exchange["confidence"] <= 1


def test_one_unreadable_file_keeps_none_of_the_others(tmp_path):
    for flags in ((), ("--output", "out")):
        done = netlab(tmp_path, "diagnose", "--json", *flags, "missing.pcap", BEFORE, "/etc/passwd")
        assert done.returncode == 4
        answer = json.loads(done.stdout)
        assert [capture["file"] for capture in answer["captures"]] == [str(BEFORE)]
        assert [each["file"] for each in answer["unreadable"]] == ["missing.pcap", "/etc/passwd"]
        faults = [line for line in done.stderr.splitlines() if line.startswith("netlab: ")]
        assert faults[0] == "netlab: missing.pcap: no such file"
        assert faults[1].startswith("netlab: /etc/passwd: not a capture file")


@pytest.mark.parametrize("command", ["diagnose", "compare", "redact"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty", "the file is empty"),
        ("folder", "is a folder"),
        ("missing", "no such file"),
        ("noise", "not a capture file"),
    ],
)
def test_what_is_no_capture_is_said_in_a_line(tmp_path, command, name, said):
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "noise").write_bytes(b"\x7fELF" * 100)
    words = {"diagnose": [name], "compare": [BEFORE, name], "redact": [name, "out.pcapng"]}[command]
    done = netlab(tmp_path, command, *words)
    assert (done.returncode, done.stdout) == (4, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"netlab: {name}: {said}")
    assert len(rest) <= 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "folder", "noise"]


def test_a_capture_cut_short_is_read_as_far_as_it_goes(tmp_path):
    (tmp_path / "cut.pcapng").write_bytes(BEFORE.read_bytes()[:3000])
    done = netlab(tmp_path, "diagnose", "cut.pcapng")
    assert done.returncode == 0
    assert "cut short" in done.stdout
    assert "14 packets" in done.stdout
    capture = json.loads(netlab(tmp_path, "diagnose", "--json", "cut.pcapng").stdout)["captures"][0]
    assert capture["truncated"] is True


def test_a_capture_without_tcp(tmp_path, no_tcp):
    done = netlab(tmp_path, "diagnose", no_tcp)
    assert done.returncode == 0
    assert "1 packet, 0 TCP segments, 0 connections, 0 exchanges" in done.stdout
    assert "none of the 1 packets is a TCP segment" in done.stdout
    done = netlab(tmp_path, "diagnose", no_tcp, "--output", "out", "--json")
    assert (done.returncode, json.loads(done.stdout)["captures"][0]["exchanges"]) == (0, [])
    assert "No exchange in this capture" in (tmp_path / "out/report.md").read_text()
    done = netlab(tmp_path, "compare", no_tcp, BEFORE, "--output", "out")
    assert done.returncode == 0
    assert "nothing to compare" in done.stdout
    assert json.loads(netlab(tmp_path, "compare", no_tcp, BEFORE, "--json").stdout)["before"]["tail"] is None


def test_the_folder_holds_reports_tables_and_an_annotated_capture(tmp_path):
    done = netlab(tmp_path, "diagnose", BEFORE, "--output", "out", "--json")
    assert (done.returncode, done.stderr) == (0, "report: out/report.html\n")
    folder = tmp_path / "out"
    answer = json.loads(done.stdout)
    assert json.loads((folder / "diagnosis.json").read_text()) == answer
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert (folder / "windows.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(folder.glob("exchange-0-*.png"))) == 6
    rows = list(csv.DictReader((folder / "exchanges.csv").open()))
    exchanges = answer["captures"][0]["exchanges"]
    assert [row["cause"] for row in rows] == [exchange["cause"] for exchange in exchanges]
    assert (folder / "exchanges.parquet").read_bytes().startswith(b"PAR1")
    # The annotated copy is the same capture to us, and Wireshark sees the comments on the frames that count.
    copy, original = found_in(folder / "annotated.pcapng"), found_in(BEFORE)
    assert copy.exchanges == original.exchanges
    fields = ("-T", "fields", "-e", "frame.number", "-e", "frame.comment", "-Y", "frame.comment")
    shown = subprocess.run(
        ["tshark", "-r", str(folder / "annotated.pcapng"), *fields], capture_output=True, text=True, check=True
    ).stdout
    commented = {int(line.partition("\t")[0]): line for line in shown.splitlines()}
    frames = {
        f for e in original.exchanges if e.cause is not Cause.HEALTHY for x in e.findings for f in x.evidence.frames
    }
    assert set(commented) == frames
    assert "netlab: connection 0, exchange 7: idle_window_restart: 8 segments" in commented[117]


def test_without_pyarrow_the_csv_is_there_and_it_is_said(tmp_path):
    (tmp_path / "shadow/pyarrow").mkdir(parents=True)
    (tmp_path / "shadow/pyarrow/__init__.py").write_text("raise ImportError('pyarrow is hidden')")
    # -P only keeps the script's own folder from the path.
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "shadow")}
    done = netlab(tmp_path, "diagnose", BEFORE, "--output", "out", env=env)
    assert done.returncode == 0
    assert "no exchanges.parquet: Parquet needs the package pyarrow" in done.stderr
    assert (tmp_path / "out/exchanges.csv").exists()
    assert not (tmp_path / "out/exchanges.parquet").exists()


def test_several_captures_get_a_folder_each(tmp_path):
    (tmp_path / "again").mkdir()
    twin = tmp_path / "again" / BEFORE.name
    twin.write_bytes(BEFORE.read_bytes())
    done = netlab(tmp_path, "diagnose", BEFORE, twin, "--output", "out")
    assert done.returncode == 0
    stem = BEFORE.name.removesuffix(".pcapng")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [stem, f"{stem}-2"]
    assert (tmp_path / "out" / f"{stem}-2" / "annotated.pcapng").exists()


@pytest.mark.parametrize("flags", [(), ("--output", "out")], ids=["streamed", "spooled"])
def test_standard_input(tmp_path, flags):
    (tmp_path / "packed").write_bytes(gzip.compress(BEFORE.read_bytes()))
    with (tmp_path / "packed").open("rb") as packed:
        done = netlab(tmp_path, "diagnose", "-", "--json", *flags, stdin=packed)
    assert done.returncode == 0
    (capture,) = json.loads(done.stdout)["captures"]
    assert capture["file"] == "-"
    assert [e["cause"] for e in capture["exchanges"]] == [e.cause for e in found_in(BEFORE).exchanges]


def test_standard_input_is_not_read_twice(tmp_path):
    for words in (("diagnose", "-", "-"), ("compare", "-", "-")):
        done = netlab(tmp_path, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "standard input can be read once" in done.stderr


def test_compare_reproduces_the_table(tmp_path):
    done = netlab(tmp_path, "compare", BEFORE, AFTER, "--json", "--output", "out")
    assert (done.returncode, done.stderr) == (0, "report: out/report.html\n")
    answer = json.loads(done.stdout)
    assert json.loads((tmp_path / "out/comparison.json").read_text()) == answer
    old, new = answer["before"], answer["after"]
    # Eight writes an answer became three; the segment that carries MSS bytes stays.
    assert old["psh"]["segments_per_exchange"] == 8
    assert 3 <= new["psh"]["segments_per_exchange"] < 4
    assert {"size": 1, "count": 8} in old["psh"]["sizes"]
    assert not [each for each in new["psh"]["sizes"] if each["size"] < 28]
    for side, path in ((old, BEFORE), (new, AFTER)):
        whole = psh_table(path, 9000)
        assert side["psh_whole_capture"]["segments"] == whole.segments
        assert [(s["size"], s["count"]) for s in side["psh_whole_capture"]["sizes"]] == list(whole.sizes)
    assert "idle_window_restart" in answer["causes_gone"]
    assert old["fill"] < new["fill"]
    for name in ("report.md", "psh.png", "segments.png", "waterfall.png", "tails.png"):
        assert (tmp_path / "out" / name).stat().st_size > 1000
    text = netlab(tmp_path, "compare", BEFORE, AFTER)
    assert (text.returncode, text.stderr) == (0, "")
    assert "  gone: idle_window_restart (3 of 8 exchanges)\n" in text.stdout
    assert not hidden(text.stdout)


def test_compare_of_different_lengths_is_per_exchange(tmp_path):
    raw = BEFORE.read_bytes()
    (tmp_path / "short.pcapng").write_bytes(raw[: len(raw) * 7 // 10])
    answer = json.loads(netlab(tmp_path, "compare", "short.pcapng", BEFORE, "--json").stdout)
    assert answer["before"]["exchanges"] < answer["after"]["exchanges"]
    ratio = answer["before"]["psh"]["segments_per_exchange"] / answer["after"]["psh"]["segments_per_exchange"]
    assert 0.9 < ratio < 1.1
    same = json.loads(netlab(tmp_path, "compare", BEFORE, BEFORE, "--json").stdout)
    assert same["before"] == same["after"]
    assert same["causes_gone"] == same["causes_new"] == []


def test_hostile_sql_is_inert_everywhere(tmp_path, hostile):
    done = netlab(tmp_path, "diagnose", hostile, "--output", "out")
    assert done.returncode == 0
    assert "exchange 0: <script>alert(1)</script>|`\\x1b[31m \\" in done.stdout
    netlab(tmp_path, "compare", hostile, AFTER, "--output", "both")
    for name in ("out/report.html", "out/report.md", "both/report.html", "both/report.md"):
        text = (tmp_path / name).read_text()
        assert not hidden(text), name
        assert "<script" not in text.lower(), name
    page = (tmp_path / "out/report.html").read_text()
    assert html.escape("<script>alert(1)</script>") in page
    assert not hidden(done.stdout + done.stderr)
    assert (
        json.loads(netlab(tmp_path, "diagnose", "--json", hostile).stdout)["captures"][0]["exchanges"][1][
            "query"
        ].encode()
        == EVIL
    )


@pytest.mark.parametrize("words", [("diagnose", BEFORE), ("compare", BEFORE, AFTER)], ids=lambda words: words[0])
def test_needs_no_root(tmp_path, words):
    # Root without its capabilities: no namespace, no raw socket, no file of somebody else's.
    bare = ("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all") if os.getuid() == 0 else ()
    argv = [*bare, *COMMAND, *map(str, words), "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_long_names_are_told_apart_by_what_differs():
    assert labels(str(BEFORE), str(AFTER)) == ("26.7", "26.9")
    assert labels("a/before.pcap.gz", "b/after.pcapng") == ("before", "after")
    assert labels("a/x.pcap", "b/x.pcapng") == ("before: x", "after: x")
    assert labels("-", "monday.pcap") == ("standard-input", "monday")
    assert labels("a-very-long-name-indeed", "a-very-long-name") == ("a-very-long-name-indeed", "a-very-long-name")


@pytest.mark.parametrize(
    ("kind", "words"), [("diagnosis", ("diagnose", BEFORE)), ("comparison", ("compare", BEFORE, AFTER))]
)
def test_what_is_printed_follows_the_published_schema(tmp_path, kind, words):
    schema = json.loads(netlab(tmp_path, "schema", "--of", kind).stdout)
    answer = json.loads(netlab(tmp_path, *words, "--json").stdout)
    name = {"diagnosis": "Published", "comparison": "Comparison"}[kind]
    assert schema["$ref"] == f"#/$defs/{name}"
    follows(answer, schema["$defs"][name], schema["$defs"])


def follows(value, shape, known):
    """Assert that every object has just the fields of its schema."""
    if "$ref" in shape:
        shape = known[shape["$ref"].rpartition("/")[2]]
    if "anyOf" in shape:
        shape = next((s for s in shape["anyOf"] if (s.get("type") == "null") is (value is None)), None)
        assert shape is not None
        return follows(value, shape, known)
    if isinstance(value, dict) and "properties" in shape:
        assert set(value) == set(shape["properties"])
        for key, each in value.items():
            follows(each, shape["properties"][key], known)
    elif isinstance(value, list):
        for each in value:
            follows(each, shape["items"], known)
    else:
        names = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", type(None): "null"}
        assert names[type(value)] == shape["type"] or (type(value) is int and shape["type"] == "number")
    return None

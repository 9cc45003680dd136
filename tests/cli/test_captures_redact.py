"""Redaction of whole captures: every secret gone, and the same diagnosis, labels included."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from native_stream import packets, write

from netlab.captures import diagnose_file, redact_file
from netlab.diagnosis import Protocol

CAPTURES = sorted((Path(__file__).resolve().parents[2] / "captures").glob("*.pcapng"))
COMMAND = (sys.executable, "-P", "-m", "netlab")


def netlab(folder, *arguments, **options):
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.run([*COMMAND, *map(str, arguments)], cwd=folder, text=True, **{**settings, **options})


def told(path):
    """Return all that a redaction must not change."""
    found = diagnose_file(path, "")
    return [
        (
            e.kind,
            e.cause,
            e.also,
            e.confidence,
            e.extra_round_trips,
            e.first_row_at,
            e.eos_at,
            e.findings,
            e.stalls,
            [(s.frame, s.length, s.labels) for s in e.segments],
        )
        for e in found.exchanges
    ], [(c.protocol, c.revision, c.vantage, c.mss) for c in found.connections]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_real_engines_read_the_same_afterwards(tmp_path, path):
    target = tmp_path / "out.pcapng"
    done = redact_file(str(path), target)
    assert (done.changed, done.labels_lost) == (0, 0)
    assert told(target) == told(path)
    for secret in (b"SELECT", b"benchmark_test", b"max(id)", b"default", b"UInt64", b"ClickHouse", b"\x0a\x4d\x00"):
        assert secret in path.read_bytes(), secret
        assert secret not in target.read_bytes(), secret


SHAPES = [(revision, False, False) for revision in (54058, 54429, 54454, 54458, 54464, 54469)]
SHAPES += [
    (revision, packed, chunked)
    for revision in (54470, 54481, 54492)
    for packed in (False, True)
    for chunked in (False, True)
]
SHAPES += [(54464, True, False)]


@pytest.mark.parametrize(("revision", "packed", "chunked"), SHAPES)
@pytest.mark.parametrize("cut", [1448, 7])
def test_no_secret_stays_and_every_label_does(tmp_path, revision, packed, chunked, cut):
    source = write(tmp_path / "in.pcap", packets(revision, compressed=packed, chunked=chunked), cut=cut)
    target = tmp_path / "out.pcapng"
    done = redact_file(str(source), target)
    assert (done.changed, done.labels_lost) == (0, 0)
    assert told(target) == told(source)
    labels = {label for exchange in told(target)[0] for _, _, found in exchange[-1] for label in found}
    assert {"Hello", "Query", "TableColumns", "ProfileEvents", "Exception", "EndOfStream"} <= labels
    streams = [b"".join(s.payload for s in segments(target) if s.source.port == port) for port in (40_000, 9000)]
    assert b"SECRET" not in target.read_bytes()
    assert not any(b"SECRET" in stream or b"SELECT" in stream for stream in streams)
    # The construction holds secrets in both directions, or this test would say nothing.
    assert all(
        b"SECRET" in b"".join(s.payload for s in segments(source) if s.source.port == port) for port in (40_000, 9000)
    )


def segments(path):
    from netlab.capture.read import open_capture

    with open_capture(path) as capture:
        return list(capture.segments())


def record(kind, body):
    return bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body


def test_tls_keeps_its_records_and_nothing_in_them(tmp_path):
    turns = [
        (True, record(0x16, b"SECRETSNI" * 20)),
        (False, record(0x16, b"SECRETCERT" * 300) + record(0x14, b"\1") + record(0x16, b"SECRETDONE")),
        (True, record(0x14, b"\1") + record(0x16, b"SECRETDONE")),
        *[(up, record(0x17, b"SECRETDATA" * 30)) for _ in range(3) for up in (True, False)],
        (True, record(0x15, b"\1\0")),
    ]
    source = write(tmp_path / "in.pcap", turns)
    target = tmp_path / "out.pcapng"
    done = redact_file(str(source), target)
    assert (done.changed, done.labels_lost) == (0, 0)
    assert told(target) == told(source)
    assert told(target)[1][0][0] is Protocol.TLS
    assert b"SECRET" not in target.read_bytes()


def message(kind, body):
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def test_postgres_keeps_its_handshake(tmp_path):
    turns = [
        (True, message(b"", b"\0\3\0\0user\0SECRETUSER\0\0")),
        (False, message(b"R", b"\0\0\0\5SALT")),
        (True, message(b"p", b"SECRETPASSWORD\0")),
        (False, message(b"R", b"\0\0\0\0") + message(b"Z", b"I")),
        (True, message(b"Q", b"SELECT 'SECRETSQL'\0")),
        (False, message(b"D", b"SECRETROW" * 9)),
    ]
    source = write(tmp_path / "in.pcap", turns)
    target = tmp_path / "out.pcapng"
    assert redact_file(str(source), target).changed == 0
    kinds = [exchange[0] for exchange in told(source)[0]]
    assert kinds == ["handshake", "handshake", "query"]
    assert told(target) == told(source)
    assert b"SECRET" not in target.read_bytes()


def test_one_pair_of_ports_used_twice_is_plain_filler(tmp_path):
    from native_stream import frames

    from netlab.capture.craft import write_pcap

    first = frames(packets(54464))
    second = [
        (at + 10**11, frame[:38] + (int.from_bytes(frame[38:42], "big") + 77_777).to_bytes(4, "big") + frame[42:])
        for at, frame in frames(packets(54464))
    ]
    write_pcap(tmp_path / "in.pcap", [*first, *second])
    done = netlab(tmp_path, "redact", "in.pcap", "out.pcapng")
    assert done.returncode in (0, 3)
    assert "2 connections lost the labels" in done.stderr
    assert b"SECRET" not in (tmp_path / "out.pcapng").read_bytes()


def test_a_capture_from_the_middle_says_what_it_lost(tmp_path):
    write(tmp_path / "in.pcap", list(packets(54464))[3:], handshake=False)
    done = netlab(tmp_path, "redact", "in.pcap", "out.pcapng", "--json")
    answer = json.loads(done.stdout)
    assert answer["labels_lost"] == 1
    assert done.returncode == (3 if answer["changed"] else 0)
    assert b"SECRET" not in (tmp_path / "out.pcapng").read_bytes()


def test_garbage_inside_a_stream_ends_the_labels_where_it_did(tmp_path):
    turns = list(packets(54464))
    turns[5:5] = [(False, b"\xffSECRETGARBAGE" * 50)]
    source = write(tmp_path / "in.pcap", turns)
    target = tmp_path / "out.pcapng"
    redact_file(str(source), target)
    assert b"SECRET" not in target.read_bytes()
    assert len(told(target)[0]) == len(told(source)[0])


def test_the_command_says_that_the_diagnosis_is_the_same(tmp_path):
    done = netlab(tmp_path, "redact", CAPTURES[0], "out.pcapng")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("the diagnosis is the same: causes and round trips of every exchange\n")
    with CAPTURES[0].open("rb") as piped:
        done = netlab(tmp_path, "redact", "-", "piped.pcapng", "--json", stdin=piped)
    assert (done.returncode, json.loads(done.stdout)["changed"]) == (0, 0)
    assert (tmp_path / "piped.pcapng").read_bytes() == (tmp_path / "out.pcapng").read_bytes()


def test_what_cannot_be_written_is_said(tmp_path):
    (tmp_path / "in.pcapng").write_bytes(CAPTURES[0].read_bytes())
    for target, code, said in (
        ("in.pcapng", 4, "would overwrite the capture it is made from"),
        ("no/where", 4, "cannot be written"),
        ("-", 2, "OUT is a file"),
    ):
        done = netlab(tmp_path, "redact", "in.pcapng", target)
        assert (done.returncode, done.stdout) == (code, "")
        assert said in done.stderr
    assert (tmp_path / "in.pcapng").read_bytes() == CAPTURES[0].read_bytes()

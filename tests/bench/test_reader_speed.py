"""The reader beside tshark, in one run, on one capture; and memory that does not grow with the file.

NETLAB_BENCH_PACKETS sets the size (default 1,000,000; the second size for memory is ten times that).
"""

import os
import subprocess
import sys
import time
from itertools import islice

import pytest

from netlab.capture.craft import ethernet, pcap, tcp_packet, write_pcap
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.segments import Endpoint

PACKETS = int(os.environ.get("NETLAB_BENCH_PACKETS", "1000000"))
SERVER = Endpoint("10.0.0.2", 9000)
TSHARK = ["tshark", "-n", "-T", "fields"]
FIELDS = ["frame.number", "frame.time_epoch", "tcp.srcport", "tcp.len", "tcp.flags"]
STAMP = b"\x01\x01\x08\x0a\0\0\0\1\0\0\0\2"
SIZES = (28, 36, 8, 11, 1448, 586, 12, 10)


def exchanges():
    """Yield frames of queries and answers, like those of the article, on 500 connections, for ever."""
    rounds = []
    for port in range(40_000, 40_500):
        client = Endpoint("10.0.0.1", port)
        parts = [tcp_packet(client, SERVER, b"q" * 90, flags=0x18, options=STAMP)]
        for size in SIZES:
            parts.append(tcp_packet(SERVER, client, b"r" * size, flags=0x18 if size != 1448 else 0x10, options=STAMP))
        parts += [tcp_packet(client, SERVER, options=STAMP)] * 3
        rounds.append([ethernet(part) for part in parts])
    while True:
        for frames in rounds:
            yield from frames


def timed():
    return islice(((1_700_000_000_000_000_000 + i * 10_000, frame) for i, frame in enumerate(exchanges())), PACKETS)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    path = tmp_path_factory.mktemp("speed") / "big.pcap"
    write_pcap(path, timed())
    return path


def seconds(action):
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def test_psh_histogram_against_one_tshark_pass(capture, capsys):
    arguments = [*TSHARK, "-r", str(capture)]
    for field in FIELDS:
        arguments += ["-e", field]
    began = time.perf_counter()
    printed = subprocess.run(arguments, capture_output=True, check=True).stdout
    tshark = time.perf_counter() - began
    ours = seconds(lambda: psh_table(capture, SERVER.port))
    pushes = sum(1 for line in printed.splitlines() if is_push(line.split(b"\t")))
    with capsys.disabled():
        print(f"\nPSH histogram of {PACKETS:,} packets: ours {ours:.2f} s, one tshark pass {tshark:.1f} s")
    assert psh_table(capture, SERVER.port).segments == pushes
    assert ours <= tshark / 2


def is_push(fields):
    return fields[2] == b"9000" and int(fields[3]) > 0 and int(fields[4], 16) & 8


def test_segments_per_second(capture, capsys):
    def read():
        with open_capture(capture) as opened:
            for _ in opened.segments():
                pass

    rate = PACKETS / min(seconds(read) for _ in range(2))
    with capsys.disabled():
        print(f"\n{rate:,.0f} segments per second")
    assert rate >= 200_000


def test_memory_is_flat(tmp_path, capsys):
    """Peak memory of reading PACKETS and ten times as many, each in a fresh process, from a pipe: no file is needed."""
    peaks = [peak(1), peak(10)]
    with capsys.disabled():
        print(f"\npeak memory: {peaks[0]:,} KB for {PACKETS:,} packets, {peaks[1]:,} KB for ten times as many")
    assert peaks[1] <= peaks[0] * 1.2


READ = (
    "from pathlib import Path; from netlab.capture.read import open_capture\n"
    "with open_capture('-') as capture: count = sum(1 for _ in capture.segments())\n"
    # Not ru_maxrss: a child starts with its parent's.
    "print(count, Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
)


def peak(times):
    one = pcap(islice(timed(), PACKETS // 10))
    header, body = one[:24], one[24:]
    child = subprocess.Popen([sys.executable, "-c", READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdin.write(header)
    for _ in range(10 * times):
        child.stdin.write(body)
    output, _ = child.communicate()
    count, kilobytes = map(int, output.split())
    assert count == PACKETS // 10 * 10 * times
    return kilobytes

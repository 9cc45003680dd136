"""Any bytes give segments, notes or CaptureError; what is written is what is read; a chunk's edge changes nothing."""

import gzip
import io
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from netlab.capture.container import Window, open_container
from netlab.capture.craft import ethernet, pcap, tcp_packet
from netlab.capture.decode import Decoder
from netlab.capture.pcapng import Writer, annotate, interface_block, packet_options, section_header
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.capture.redact import redact
from netlab.errors import CaptureError
from netlab.segments import Endpoint, Flag

CLIENT, SERVER = Endpoint("10.0.0.1", 40_000), Endpoint("10.0.0.2", 9000)
CLIENT6, SERVER6 = Endpoint("fd00::1", 40_000), Endpoint("fd00::2", 9000)
OPTIONS = b"\x02\x04\x05\xb4\x04\x02\x08\x0a\0\0\0\1\0\0\0\2\x01\x03\x03\x07\x05\x0a\0\0\0\1\0\0\0\2"


def frames():
    chain = tcp_packet(CLIENT6, SERVER6, b"behind headers", flags=0x18)
    chain = (
        chain[:4]
        + (len(chain) - 24).to_bytes(2, "big")
        + b"\0"
        + chain[7:40]
        + b"\x2c\0"
        + bytes(6)
        + b"\x06"
        + bytes(7)
        + chain[40:]
    )
    return [
        ethernet(tcp_packet(CLIENT, SERVER, flags=2, options=OPTIONS)),
        ethernet(tcp_packet(SERVER, CLIENT, b"hello", seq=5, flags=0x18)),
        ethernet(tcp_packet(SERVER6, CLIENT6, b"hello six", seq=5, flags=0x18), [(0x8100, 1)]),
        ethernet(chain),
        ethernet(tcp_packet(SERVER, CLIENT, b"r" * 300, seq=10, flags=0x18)),
    ]


def pcapng_bytes():
    stream = io.BytesIO()
    writer = Writer(stream, section_header("a comment"))
    writer.interface(interface_block(1, 1000, name="veth"))
    writer.interface(interface_block(113, 0))
    for at, frame in enumerate(frames()):
        writer.packet(at, frame, len(frame), at % 2, options=packet_options(["c"] * (at % 3)))
    writer.statistics(0, 1, 2, 3)
    return stream.getvalue() + stream.getvalue()


CAPTURES = [
    pcap(enumerate(frames())),
    pcapng_bytes(),
    *(pcap([(1, frame[14:]) for frame in frames()[:2]], kind) for kind in (101, 0, 113, 276)),
    gzip.compress(pcap(enumerate(frames())), mtime=0),
    zstandard.compress(pcapng_bytes()),
]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "cut", "drop", "insert"]), st.integers(0, 2000), st.binary(min_size=1, max_size=8)
    ),
    min_size=1,
    max_size=6,
)


def edited(data, edits):
    data = bytearray(data)
    for kind, place, new in edits:
        at = place % (len(data) + 1)
        if kind == "set":
            data[at : at + len(new)] = new
        elif kind == "cut":
            del data[max(at, 30) :]
        elif kind == "drop":
            del data[at : at + len(new)]
        else:
            data[at:at] = new
    return bytes(data)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(CAPTURES), EDITS)
def test_damage_never_breaks_the_reader(folder, data, edits):
    path, other = folder / "damaged", folder / "rewritten"
    path.write_bytes(edited(data, edits))
    try:
        with open_capture(path) as capture:
            found = list(capture.segments())
            summary = capture.summary()
        table = psh_table(path, 9000)
    except CaptureError as error:
        assert str(path) in str(error)
        return
    assert summary.tcp_segments == len(found) <= summary.packets
    pushes = [s.length for s in found if s.flags & Flag.PSH and s.length and s.source.port == 9000]
    assert (table.segments, table.bytes) == (len(pushes), sum(pushes))
    assert all(len(s.payload) <= s.length for s in found)
    for rewrite in (lambda: annotate(path, other, {1: "x"}), lambda: redact(path, other)):
        try:
            rewrite()
        except CaptureError as error:
            assert "cannot be redacted" in str(error)
            continue
        with open_capture(other) as capture:
            again = list(capture.segments())
            assert capture.summary().packets == summary.packets
        assert [(s.frame, s.seq, s.length) for s in again] == [(s.frame, s.seq, s.length) for s in found]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_noise_never_breaks_the_decoder(noise):
    data = pcap([(1, noise), (2, noise)])
    for link_type in (1, 101, 0, 113, 276):
        path_like = data[:20] + link_type.to_bytes(4, "little") + data[24:]
        container = open_container(Pieces(path_like, 10_000), "noise")
        decoder = Decoder(container.interfaces)
        for frame in container.frames():
            decoder.segment(frame)


class Pieces:
    """A source that hands out at most `size` bytes at a time."""

    note = None

    def __init__(self, data, size):
        self._stream, self._size = io.BytesIO(data), size

    def read(self, size):
        return self._stream.read(min(size, self._size))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CAPTURES[:2]), st.integers(1, 700), st.integers(0, 1000))
def test_pieces_change_nothing(data, size, cut):
    data = data[: max(len(data) - cut, 40)]

    def read(step):
        container = open_container(Pieces(data, step), "pieces")
        decoder = Decoder(container.interfaces)
        found = [decoder.segment(frame) for frame in container.frames()]
        return found, container.notes, container.truncated, container.packets

    assert read(size) == read(1 << 20)


PACKETS = st.lists(
    st.tuples(st.integers(0, (1 << 64) - 1), st.binary(max_size=90), st.lists(st.text(max_size=20), max_size=2))
)


@settings(max_examples=200, deadline=None)
@given(PACKETS, st.text(min_size=1, max_size=30), st.integers(1, 300))
def test_what_is_written_is_read_back(packets, comment, size):
    stream = io.BytesIO()
    writer = Writer(stream, section_header(comment))
    writer.interface(interface_block(1, 0, name="n"))
    for at, data, comments in packets:
        writer.packet(at, data, len(data) + 5, 0, options=packet_options(comments))
    container = open_container(Pieces(stream.getvalue(), size), "w")
    found = [(at, buffer[start:end], wire) for _, buffer, start, end, wire, at, _, _ in container.frames()]
    assert found == [(at, data, len(data) + 5) for at, data, _ in packets]
    assert container.comment == comment
    assert not container.notes


def test_window_keeps_no_more_than_it_must():
    with ExitStack():
        window = Window(Pieces(bytes(10_000), 100), "w")
        window.refill(0, 50)
        window.refill(50, 400)
        assert 400 <= len(window.buffer) <= 500
        assert window.base == 50

"""The reader: every container, byte order, link type and odd packet, against what the bytes say."""

import gzip
import io
import random
import resource
import struct
import sys

import pytest
import zstandard

from netlab.capture import container
from netlab.capture.craft import ethernet, pcap, tcp_packet
from netlab.capture.read import open_capture
from netlab.errors import CaptureError, UsageError
from netlab.segments import Endpoint, Options

CLIENT, SERVER = Endpoint("10.0.0.1", 40_000), Endpoint("10.0.0.2", 9000)
CLIENT6, SERVER6 = Endpoint("fd00::1", 40_000), Endpoint("fd00::2", 9000)
AT = 1_700_000_000_123_456_789


def segments_of(tmp_path, data):
    path = tmp_path / "x.pcap"
    path.write_bytes(data)
    with open_capture(path) as capture:
        found = list(capture.segments())
        return found, capture.summary()


def only(tmp_path, frame, link_type=1):
    found, summary = segments_of(tmp_path, pcap([(AT, frame)], link_type))
    assert len(found) == 1, summary
    return found[0]


def hello(payload=b"hello", **more):
    return tcp_packet(CLIENT, SERVER, payload, seq=7, ack=9, flags=0x18, window=501, **more)


def block(order, kind, body):
    size = 12 + len(body)
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def section(order="<", options=b""):
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options)


def option(order, code, value):
    return struct.pack(order + "HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def idb(order="<", link_type=1, options=b"", snaplen=0):
    return block(order, 1, struct.pack(order + "HHI", link_type, 0, snaplen) + options)


def epb(frame, order="<", stamp=0, interface=0, wire=None):
    head = struct.pack(
        order + "IIIII", interface, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame) if wire is None else wire
    )
    return block(order, 6, head + frame + b"\0" * (-len(frame) % 4))


def test_every_field_of_a_segment(tmp_path):
    stamp = b"\x01\x01\x08\x0a" + struct.pack(">II", 11, 12)
    segment = only(tmp_path, ethernet(hello(options=stamp)))
    assert segment.frame == 1
    assert segment.at == AT
    assert (segment.source, segment.destination) == (CLIENT, SERVER)
    assert (segment.seq, segment.ack, segment.flags, segment.window) == (7, 9, 0x18, 501)
    assert (segment.length, segment.payload) == (5, b"hello")
    assert segment.options == Options(timestamp_value=11, timestamp_echo=12)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "fraction", "at"), [(0xA1B2C3D4, 5, 5000), (0xA1B23C4D, 5, 5)])
def test_pcap_byte_orders_and_resolutions(tmp_path, order, magic, fraction, at):
    frame = ethernet(hello())
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    data += struct.pack(order + "IIII", 3, fraction, len(frame), len(frame)) + frame
    found, summary = segments_of(tmp_path, data)
    assert found[0].at == 3_000_000_000 + at
    assert summary.interfaces[0].snaplen == 65535


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("resolution", "stamp", "at"),
    [
        (None, 1_000_001, 1_000_001_000),
        (9, 17, 17),
        (3, 17, 17_000_000),
        (12, 17_999, 17),
        (0x80 | 10, 1536, 1_500_000_000),
    ],
)
def test_pcapng_clocks(tmp_path, order, resolution, stamp, at):
    options = b"" if resolution is None else option(order, 9, bytes([resolution]))
    found, _ = segments_of(
        tmp_path, section(order) + idb(order, options=options) + epb(ethernet(hello()), order, stamp)
    )
    assert found[0].at == at


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_clock_offset(tmp_path, order):
    options = option(order, 14, struct.pack(order + "q", -2))
    data = section(order) + idb(order, options=options) + epb(ethernet(hello()), order, 5_000_000)
    assert segments_of(tmp_path, data)[0][0].at == 3_000_000_000


def test_several_sections_interfaces_and_rare_blocks(tmp_path):
    frame = ethernet(hello())
    pad = b"\0" * (-len(frame) % 4)
    simple = block("<", 3, struct.pack("<I", len(frame)) + frame + pad)
    old = block("<", 2, struct.pack("<HHIIII", 1, 0, 0, 77, len(frame), len(frame)) + frame + pad)
    drops = block("<", 5, struct.pack("<III", 1, 0, 0) + option("<", 5, struct.pack("<Q", 42)))
    data = (
        section(options=option("<", 1, b"what it is"))
        + idb(options=option("<", 2, b"veth-a"))
        + idb(options=option("<", 2, b"veth-b"))
        + epb(frame, interface=1, stamp=5)
        + block("<", 0x0BAD, b"\0\0\0\0custom..")
        + simple
        + old
        + drops
        + section(">")
        + idb(">", link_type=101)
        + epb(hello(), ">", stamp=6)
    )
    found, summary = segments_of(tmp_path, data)
    assert [(s.frame, s.at, s.interface) for s in found] == [(1, 5000, 1), (2, 0, 0), (3, 77000, 1), (4, 6000, 2)]
    assert [(i.number, i.name, i.link_type, i.drops) for i in summary.interfaces] == [
        (0, "veth-a", 1, None),
        (1, "veth-b", 1, 42),
        (2, None, 101, None),
    ]
    assert summary.comment == "what it is"
    assert not summary.truncated
    assert summary.notes == ("1 packets carry no time stamp; their time is shown as 0",)


@pytest.mark.parametrize(
    "compress", [gzip.compress, zstandard.compress, lambda d: gzip.compress(d) + gzip.compress(b"")]
)
def test_compressed(tmp_path, compress):
    data = pcap((AT + i, ethernet(hello())) for i in range(1000))
    found, summary = segments_of(tmp_path, compress(data))
    assert len(found) == 1000
    assert not summary.truncated


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_compressed_in_two_members(tmp_path, compress):
    data = pcap((AT + i, ethernet(hello())) for i in range(100))
    found, summary = segments_of(tmp_path, compress(data[:1000]) + compress(data[1000:]))
    assert len(found) == 100
    assert not summary.truncated


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_compressed_and_cut(tmp_path, compress):
    noise = random.Random(3)
    data = pcap((AT + i, ethernet(hello(noise.randbytes(900)))) for i in range(1000))
    packed = compress(data)
    found, summary = segments_of(tmp_path, packed[: len(packed) // 2])
    assert 300 < len(found) < 600
    assert summary.truncated
    assert summary.notes


def test_a_small_file_that_unpacks_to_much_takes_no_memory(tmp_path):
    packed = zstandard.compress(pcap([(AT, ethernet(hello()))]) + bytes(1 << 30), 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = tmp_path / "bomb"
    path.write_bytes(packed)
    with open_capture(path) as capture:
        # 16 zero bytes are an empty packet: take some, and look at the memory.
        for _, _ in zip(capture.frames(), range(1_000_000), strict=False):
            pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pcap([(AT, ethernet(hello()))]))))
    with open_capture("-") as capture:
        assert [s.payload for s in capture.segments()] == [b"hello"]
        assert capture.name == "standard input"


def kind(packet):
    return 0x86DD if packet[0] >> 4 == 6 else 0x0800


LINKS = [
    ("ethernet", 1, ethernet),
    ("vlan", 1, lambda p: ethernet(p, [(0x8100, 5)])),
    ("qinq", 1, lambda p: ethernet(p, [(0x88A8, 5), (0x8100, 6)])),
    ("cooked", 113, lambda p: struct.pack(">HHH8sH", 0, 1, 6, b"\2", kind(p)) + p),
    ("cooked vlan", 113, lambda p: struct.pack(">HHH8sHHH", 0, 1, 6, b"\2", 0x8100, 5, kind(p)) + p),
    ("cooked2", 276, lambda p: struct.pack(">HHIHBB8s", kind(p), 0, 2, 1, 0, 6, b"\2") + p),
    ("cooked2 vlan", 276, lambda p: struct.pack(">HHIHBB8sHH", 0x8100, 0, 2, 1, 0, 6, b"\2", 5, kind(p)) + p),
    *[(f"raw {kind}", kind, lambda p: p) for kind in (12, 14, 101, 228, 229)],
    *[(f"null {af}", 0, lambda p, af=af: struct.pack("<I", af) + p) for af in (2, 10, 24, 28, 30)],
    ("null of a big machine", 0, lambda p: struct.pack(">I", 2) + p),
    ("loop", 108, lambda p: struct.pack(">I", 2) + p),
]


@pytest.mark.parametrize(("name", "link_type", "wrap"), LINKS, ids=[link[0] for link in LINKS])
@pytest.mark.parametrize(("source", "destination"), [(CLIENT, SERVER), (CLIENT6, SERVER6)], ids=["v4", "v6"])
def test_link_types(tmp_path, name, link_type, wrap, source, destination):
    packet = tcp_packet(source, destination, b"hello", seq=7, flags=0x18)
    segment = only(tmp_path, wrap(packet), link_type)
    assert (segment.source, segment.destination, segment.payload, segment.length) == (source, destination, b"hello", 5)


def test_padding_is_no_payload(tmp_path):
    frame = ethernet(tcp_packet(CLIENT, SERVER))
    assert len(frame) == 60
    assert only(tmp_path, frame).length == 0
    assert only(tmp_path, frame).payload == b""


def test_ip_options_and_extension_headers(tmp_path):
    plain = tcp_packet(CLIENT, SERVER, b"hello", flags=0x18)
    with_options = b"\x46" + plain[1:2] + struct.pack(">H", len(plain) + 4) + plain[4:20] + b"\1\1\1\0" + plain[20:]
    assert only(tmp_path, ethernet(with_options)).payload == b"hello"
    plain = tcp_packet(CLIENT6, SERVER6, b"hello", flags=0x18)
    chain = b"\x3c\0" + bytes(6) + b"\x2c\0" + bytes(6) + b"\x06\0" + bytes(6)  # hop-by-hop, destination, fragment
    packet = plain[:4] + struct.pack(">HB", len(plain) - 40 + 24, 0) + plain[7:40] + chain + plain[40:]
    assert only(tmp_path, ethernet(packet)).payload == b"hello"


def test_fragments_are_noted(tmp_path):
    first = bytearray(hello())
    first[6] = 0x20
    second = bytearray(hello())
    second[7] = 0x10
    found, summary = segments_of(tmp_path, pcap([(AT, ethernet(bytes(first))), (AT, ethernet(bytes(second)))]))
    assert found == []
    assert "2 IP fragments of TCP are not reassembled" in summary.notes


def test_super_segment_without_a_length(tmp_path):
    segment = only(tmp_path, ethernet(hello(b"y" * 70_000)))
    assert segment.length == 70_000
    assert segment.payload == b"y" * 70_000


@pytest.mark.parametrize(
    ("kept", "length", "payload"), [(60, 100, b"z" * 6), (54, 100, b""), (50, None, None), (20, None, None)]
)
def test_cut_by_the_snap_length(tmp_path, kept, length, payload):
    frame = ethernet(tcp_packet(CLIENT, SERVER, b"z" * 100))
    data = pcap([])[:24] + struct.pack("<IIII", 1, 0, kept, len(frame)) + frame[:kept]
    found, summary = segments_of(tmp_path, data)
    if length is None:
        assert found == []
        assert any("cut before the end" in note for note in summary.notes)
    else:
        assert (found[0].length, found[0].payload) == (length, payload)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"\x02\x04\x05\xb4\x01\x03\x03\x07\x04\x02", Options(mss=1460, window_scale=7, sack_permitted=True)),
        (b"\x01\x01\x05\x0a" + struct.pack(">II", 1, 2), Options(sack=((1, 2),))),
        (b"\x01\x01\x05\x12" + struct.pack(">IIII", 1, 2, 3, 4), Options(sack=((1, 2), (3, 4)))),
        (b"\x1e\x04ab\x02\x04\x05\xb4", Options(mss=1460)),
        (b"\x02\x00\x05\xb4", Options()),
        (b"\x08\x0a\0\0", Options()),
    ],
)
def test_tcp_options(tmp_path, options, expected):
    assert only(tmp_path, ethernet(hello(options=options))).options == expected


def test_every_cut_yields_what_is_whole(tmp_path):
    frames = [(AT + i, ethernet(hello(bytes([i]) * (10 * i)))) for i in range(4)]
    blocks = section() + idb(options=option("<", 9, b"\x09")) + b"".join(epb(f, stamp=at) for at, f in frames)
    for data in (pcap(frames), blocks):
        whole, _ = segments_of(tmp_path, data)
        assert len(whole) == 4
        for cut in range(len(data) - 1, 28, -1):
            found, summary = segments_of(tmp_path, data[:cut])
            assert found == whole[: len(found)]
            assert not summary.truncated or "offset" in summary.notes[0]
        found, summary = segments_of(tmp_path, data[:-1])
        assert len(found) == 3
        assert summary.truncated


def test_blocks_at_every_place_of_the_buffer(tmp_path, monkeypatch):
    frames = [(AT + i, ethernet(hello(bytes([i]) * i))) for i in range(40)]
    data = section() + idb(options=option("<", 9, b"\x09")) + b"".join(epb(f, stamp=at) for at, f in frames)
    path = tmp_path / "x.pcapng"
    path.write_bytes(data)
    for size in range(1, 200):
        monkeypatch.setattr(container, "CHUNK", size)
        with open_capture(path) as capture:
            assert [s.at for s in capture.segments()] == [at for at, _ in frames], size


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"GET / HTTP/1.1\r\n\r\n", "not a capture file"),
        (b"\xd4\xc3\xb2\xa1", "cut short: 4 of 24"),
        (b"\x0a\x0d\x0d\x0a", "section header"),
        (b"\x0a\x0d\x0d\x0a" + b"\x20\0\0\0" + b"oops" + bytes(20), "section header"),
        (b"\x34\xcd\xb2\xa1" + bytes(20), "modified pcap"),
        (b"\x1f\x8bxxxxxxxxxxxx", "gzip data is damaged"),
        (b"\x28\xb5\x2f\xfdxxxxxxxx", "zstd data is damaged"),
    ],
)
def test_what_is_no_capture(tmp_path, data, words):
    path = tmp_path / "no.pcap"
    path.write_bytes(data)
    with pytest.raises(CaptureError, match=words) as caught:
        open_capture(path)
    assert str(path) in str(caught.value)


def test_paths_that_cannot_be_read(tmp_path):
    with pytest.raises(CaptureError, match="no such file"):
        open_capture(tmp_path / "absent")
    with pytest.raises(CaptureError, match="folder"):
        open_capture(tmp_path)


def test_no_packet_and_no_tcp(tmp_path):
    found, summary = segments_of(tmp_path, pcap([]))
    assert (found, summary.packets, summary.truncated) == ([], 0, False)
    assert summary.notes == ("the capture holds no packet",)
    found, summary = segments_of(tmp_path, pcap([(AT, ethernet(b"\x45" + bytes(19)))]))
    assert (found, summary.packets, summary.tcp_segments) == ([], 1, 0)
    assert "none of the 1 packets is a TCP segment" in summary.notes


def test_link_type_that_is_not_understood(tmp_path):
    _, summary = segments_of(tmp_path, pcap([(AT, hello())] * 3, link_type=127))
    assert "3 packets of link type 127 are not understood" in summary.notes


@pytest.mark.parametrize(
    "tail",
    [
        struct.pack("<IIII", 1, 1, 0xFFFFFFFF, 60),
        struct.pack("<IIII", 1, 1, 0x05000000, 60),
    ],
)
def test_hostile_lengths_in_pcap(tmp_path, tail):
    good = pcap([(AT, ethernet(hello()))])
    found, summary = segments_of(tmp_path, good + tail + bytes(1000))
    assert len(found) == 1
    assert summary.truncated
    assert f"offset {len(good)}" in summary.notes[0]


@pytest.mark.parametrize(
    "tail",
    [
        struct.pack("<II", 6, 0xFFFFFFF0),
        struct.pack("<II", 6, 0),
        struct.pack("<II", 6, 33),
        struct.pack("<II", 6, 8),
        epb(b"x" * 20, interface=5),
        epb(b"x" * 20)[:20] + struct.pack("<I", 4000) + epb(b"x" * 20)[24:],
        block("<", 1, b"\0\0"),
        block("<", 3, b""),
        block("<", 2, bytes(8)),
        struct.pack("<III", 0x0A0D0D0A, 28, 0x12345678) + bytes(16),
    ],
)
def test_hostile_blocks_in_pcapng(tmp_path, tail):
    good = section() + idb() + epb(ethernet(hello()))
    found, summary = segments_of(tmp_path, good + tail + bytes(1000))
    assert len(found) == 1
    assert summary.truncated
    assert f"offset {len(good)}" in summary.notes[-1]


def test_a_capture_is_read_once_and_says_when_it_was_left_early(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([(AT, ethernet(hello()))] * 5))
    with open_capture(path) as capture:
        next(capture.segments())
        assert any("only the first" in note for note in capture.summary().notes)
        with pytest.raises(UsageError, match="read once"):
            next(capture.segments())


def test_summary_reads_what_nobody_read(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([(AT, ethernet(hello()))] * 5))
    with open_capture(path) as capture:
        assert capture.summary().tcp_segments == 5


def test_more_connections_than_the_cache_holds(tmp_path, monkeypatch):
    from netlab.capture import decode

    monkeypatch.setattr(decode, "_LARGEST_CACHE", 8)
    frames = [(AT, ethernet(tcp_packet(Endpoint("10.0.0.1", port), SERVER))) for port in range(1000, 1100)]
    found, _ = segments_of(tmp_path, pcap(frames))
    assert [s.source.port for s in found] == list(range(1000, 1100))

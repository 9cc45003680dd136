"""Redaction: nothing secret is left, and everything a diagnosis needs is."""

import struct

import pytest

from netlab.capture.craft import ethernet, tcp_packet, write_pcap
from netlab.capture.pcapng import Writer, interface_block, packet_options, section_header
from netlab.capture.read import open_capture
from netlab.capture.redact import StreamOffsets, checksum, redact
from netlab.errors import CaptureError, UsageError
from netlab.segments import Endpoint, Segment

CLIENT, SERVER = Endpoint("203.0.113.77", 40_000), Endpoint("203.0.113.78", 9000)
CLIENT6, SERVER6 = Endpoint("2001:db8:5ec:3e7::1", 40_000), Endpoint("2001:db8:5ec:3e7::2", 9000)
SECRET = b"SELECT password FROM secret_table"


def read(path):
    with open_capture(path) as capture:
        return list(capture.segments()), capture.summary()


def sums_right(frame):
    """Return whether the IPv4 and TCP checksums of an Ethernet frame are right."""
    total = struct.unpack(">H", frame[16:18])[0]
    packet = frame[14 : 14 + total]
    return checksum(packet[:20]) == 0 and checksum(packet[12:20] + struct.pack(">II", 6, total - 20) + packet[20:]) == 0


@pytest.fixture
def secretive(tmp_path):
    """Return a capture with a secret in every place that can hold one."""
    path = tmp_path / "in.pcapng"
    stamp = b"\x01\x01\x08\x0a" + struct.pack(">II", 5, 6)
    udp = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(SECRET), 1, 0, 64, 17, 0) + bytes(
        [203, 0, 113, 77, 203, 0, 113, 9]
    )
    udp += struct.pack(">HHHH", 53, 53, 8 + len(SECRET), 0) + SECRET
    fragment = bytearray(tcp_packet(SERVER, CLIENT, SECRET))
    fragment[7] = 4
    arp = (
        b"\xff" * 6
        + b"\xaa\xbb\xcc\xdd\xee\xff"
        + b"\x08\x06"
        + b"\0\1\x08\0\6\4\0\1\xaa\xbb\xcc\xdd\xee\xff\xcb\0\x71\x4d"
        + bytes(10)
    )
    frames = [
        ethernet(tcp_packet(CLIENT, SERVER, seq=100, flags=2, options=b"\x02\x04\x05\xb4\xfd\x0cSECRETCOOK")),
        ethernet(tcp_packet(CLIENT, SERVER, SECRET, seq=101, ack=1, flags=0x18, options=stamp)),
        ethernet(tcp_packet(SERVER, CLIENT, SECRET * 3, seq=1, ack=134, flags=0x18)),
        ethernet(tcp_packet(CLIENT6, SERVER6, SECRET, seq=1, flags=0x18), [(0x8100, 7)]),
        ethernet(udp),
        ethernet(bytes(fragment)),
        arp,
        ethernet(tcp_packet(CLIENT, SERVER)) + SECRET,
        ethernet(tcp_packet(SERVER, CLIENT, SECRET * 9, seq=100, flags=0x18))[:90],
    ]
    with path.open("wb") as stream:
        writer = Writer(stream, section_header("taken at SECRETPLACE", "SECRETBOX"))
        writer.interface(interface_block(1, 0, name="SECRETNAME0", capture_filter="host SECRETHOST"))
        for at, frame in enumerate(frames):
            wire = len(frame) + 14 * 20 if at == 8 else len(frame)
            writer.packet(at, frame, wire, 0, options=packet_options(["SECRETCOMMENT"]))
        writer.statistics(0, 9, 9, 4)
    return path


def test_no_secret_is_left(secretive, tmp_path):
    target = tmp_path / "out.pcapng"
    redact(secretive, target)
    data = target.read_bytes()
    before = secretive.read_bytes()
    macs = [b"\xaa\xbb\xcc\xdd\xee\xff", b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01"]
    addresses = [b"\xcb\0\x71\x4d", b"\xcb\0\x71\x4e", b"\x05\xec\x03\xe7"]
    for secret in [b"SELECT", b"secret", b"SECRET", b"password", *macs, *addresses]:
        assert secret in before, secret
        assert secret not in data, secret


def test_what_a_diagnosis_needs_is_left(secretive, tmp_path):
    target = tmp_path / "out.pcapng"
    redact(secretive, target)
    (before, was), (after, now) = read(secretive), read(target)
    assert (was.packets, was.tcp_segments) == (now.packets, now.tcp_segments)
    assert now.interfaces[0].drops == 4
    assert (now.comment, now.interfaces[0].name) == (None, None)
    names = {}
    for old, new in zip(before, after, strict=True):
        for a, b in ((old.source, new.source), (old.destination, new.destination)):
            assert names.setdefault(a.address, b.address) == b.address
            assert a.port == b.port
        assert len(old.payload) == len(new.payload)
        assert old[0:2] + old[4:9] + old[10:] == new[0:2] + new[4:9] + new[10:]
    assert len(set(names.values())) == len(names)


def test_checksums_are_right(secretive, tmp_path):
    target = tmp_path / "out.pcapng"
    redact(secretive, target)
    with open_capture(target) as capture:
        frames = [buffer[start:end] for _, buffer, start, end, *_ in capture.frames()]
    assert [sums_right(frames[i]) for i in (0, 1, 2, 7)] == [True] * 4


def test_the_filler_is_asked_for_stream_offsets(tmp_path):
    source, target = tmp_path / "a.pcap", tmp_path / "b.pcapng"
    near_the_end = 0xFFFFFFF0
    packets = [
        tcp_packet(CLIENT, SERVER, seq=near_the_end - 1, flags=2),
        tcp_packet(CLIENT, SERVER, b"a" * 20, seq=near_the_end, flags=0x18),
        tcp_packet(CLIENT, SERVER, b"b" * 5, seq=4, flags=0x18),
        tcp_packet(CLIENT, SERVER, b"a" * 20, seq=near_the_end, flags=0x18),
        tcp_packet(SERVER, CLIENT, b"c" * 3, seq=1000, flags=0x18),
        tcp_packet(SERVER, CLIENT, b"d" * 3, seq=990, flags=0x18),
    ]
    write_pcap(source, enumerate(map(ethernet, packets)))
    asked = []

    def filler(origin, destination, start, stop):
        asked.append((origin, destination, start, stop))
        return bytes(range(65, 91))[: stop - start]

    redact(source, target, filler=filler)
    assert [(a[0], *a[2:]) for a in asked if a[2] != a[3]] == [
        (CLIENT, 0, 20),
        (CLIENT, 20, 25),
        (CLIENT, 0, 20),
        (SERVER, 0, 3),
        (SERVER, -10, -7),
    ]
    assert read(target)[0][2].payload == b"ABCDE"


def test_a_filler_of_the_wrong_length_is_an_error(tmp_path):
    source, target = tmp_path / "a.pcap", tmp_path / "b.pcapng"
    write_pcap(source, [(1, ethernet(tcp_packet(CLIENT, SERVER, b"abc")))])
    with pytest.raises(UsageError, match="frame 1"):
        redact(source, target, filler=lambda *_: b"")
    assert not target.exists()


def test_a_link_type_that_is_not_understood_is_refused(tmp_path):
    source, target = tmp_path / "a.pcap", tmp_path / "b.pcapng"
    write_pcap(source, [(1, SECRET)], link_type=127)
    with pytest.raises(CaptureError, match="link type 127"):
        redact(source, target)
    assert list(tmp_path.iterdir()) == [source]


def test_offsets_stay_right_over_many_wraps():
    offsets, step = StreamOffsets(), 1 << 30
    for number in range(20):
        segment = Segment(1, 0, CLIENT, SERVER, number * step & 0xFFFFFFFF, 0, 0, 0, 1, b"x")
        assert offsets.offset(segment) == number * step

"""Our reader against Wireshark's dissectors, field by field; and the PSH table both ways."""

import asyncio
import gc
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netlab.capture.craft import ethernet, pcap, tcp_packet, write_pcap
from netlab.capture.pcapng import Writer, annotate, interface_block, section_header
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.capture.redact import redact
from netlab.capture.second import Opinion, pyshark_psh_table, second_opinion
from netlab.errors import CaptureError
from netlab.segments import Endpoint

CLIENT, SERVER = Endpoint("10.0.0.1", 40_000), Endpoint("10.0.0.2", 9000)
CLIENT6, SERVER6 = Endpoint("fd00::1", 40_000), Endpoint("fd00::2", 9000)
AT = 1_700_000_000_123_456_789
STAMP = b"\x01\x01\x08\x0a" + struct.pack(">II", 5, 6)


def ours(path):
    with open_capture(path) as capture:
        return [
            Opinion(
                frame=s.frame,
                at=s.at,
                source_address=s.source.address,
                source_port=s.source.port,
                destination_address=s.destination.address,
                destination_port=s.destination.port,
                seq=s.seq,
                ack=s.ack,
                flags=s.flags,
                window=s.window,
                length=s.length,
            )
            for s in capture.segments()
        ]


def odd_packets():
    v4 = tcp_packet(CLIENT, SERVER, b"with IP options", flags=0x18)
    yield ethernet(b"\x46" + v4[1:2] + struct.pack(">H", len(v4) + 4) + v4[4:20] + b"\1\1\1\0" + v4[20:])
    v6 = tcp_packet(CLIENT6, SERVER6, b"behind headers", flags=0x18)
    chain = b"\x3c\0\1\4\0\0\0\0" + b"\x06\0\1\4\0\0\0\0"
    yield ethernet(v6[:4] + struct.pack(">HB", len(v6) - 40 + 16, 0) + v6[7:40] + chain + v6[40:])
    yield ethernet(tcp_packet(SERVER, CLIENT, b"q" * 9, flags=0x18), [(0x88A8, 5), (0x8100, 6)])
    yield ethernet(tcp_packet(SERVER, CLIENT))
    yield ethernet(tcp_packet(SERVER, CLIENT, b"s" * 65_000, flags=0x18, seq=0xFFFFFF00))
    yield ethernet(b"\x45" + bytes(19))
    yield b"\xff" * 12 + b"\x08\x06" + bytes(46)
    yield ethernet(tcp_packet(SERVER6, CLIENT6, b"six", flags=0x18, options=STAMP), [(0x8100, 6)])


def test_odd_packets(tmp_path):
    path = tmp_path / "odd.pcap"
    write_pcap(path, ((AT + i, frame) for i, frame in enumerate(odd_packets())))
    assert list(second_opinion(path)) == ours(path)
    assert len(ours(path)) == 6


@pytest.mark.parametrize(
    ("link_type", "head"),
    [
        (101, b""),
        (12, b""),
        (228, b""),
        (0, struct.pack("<I", 2)),
        (108, struct.pack(">I", 2)),
        (113, struct.pack(">HHH8sH", 0, 1, 6, b"\2", 0x0800)),
        (276, struct.pack(">HHIHBB8s", 0x0800, 0, 2, 1, 0, 6, b"\2")),
        (276, struct.pack(">HHIHBB8sHH", 0x8100, 0, 2, 1, 0, 6, b"\2", 5, 0x0800)),
    ],
)
def test_link_types(tmp_path, link_type, head):
    path = tmp_path / "link.pcap"
    path.write_bytes(pcap([(AT, head + tcp_packet(CLIENT, SERVER, b"hello", flags=0x18))], link_type))
    assert list(second_opinion(path)) == ours(path)
    assert len(ours(path)) == 1


def test_frame_numbers_with_rare_blocks(tmp_path):
    def block(kind, body):
        return struct.pack("<II", kind, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))

    frame = ethernet(tcp_packet(CLIENT, SERVER, b"12", flags=0x18))
    path = tmp_path / "rare.pcapng"
    with path.open("wb") as stream:
        writer = Writer(stream, section_header("rare"))
        writer.interface(interface_block(1, 0, name="a"))
        writer.packet(AT, frame, len(frame), 0)
        stream.write(block(4, b"\0\0\0\0"))
        stream.write(block(0x12345678, b"unknown."))
        stream.write(block(2, struct.pack("<HHIIII", 0, 0, AT >> 32, AT & 0xFFFFFFFF, 60, 60) + frame))
        writer.packet(AT + 1, frame, len(frame), 0)
    assert list(second_opinion(path)) == ours(path)
    assert [s["frame"] for s in ours(path)] == [1, 2, 3]


SEGMENTS = st.lists(
    st.tuples(
        st.booleans(),
        st.booleans(),
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, 255),
        st.integers(0, 0xFFFF),
        st.integers(0, 2000),
        st.sampled_from([b"", STAMP, b"\x02\x04\x05\xb4\x01\x03\x03\x07"]),
        st.integers(-1, 200),
    ),
    min_size=5,
    max_size=80,
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SEGMENTS)
def test_generated_captures(tmp_path, drawn):
    path = tmp_path / "drawn.pcapng"
    with path.open("wb") as stream:
        writer = Writer(stream, section_header("drawn"))
        writer.interface(interface_block(1, 0))
        for number, (six, back, seq, ack, flags, window, size, options, cut) in enumerate(drawn):
            ends = (CLIENT6, SERVER6) if six else (CLIENT, SERVER)
            source, destination = ends[::-1] if back else ends
            packet = tcp_packet(
                source, destination, b"p" * size, seq=seq, ack=ack, flags=flags, window=window, options=options
            )
            frame = ethernet(packet)
            # Cuts inside the TCP header are another matter: tshark shows some fields of those.
            kept = frame if cut < 0 else frame[: 14 + len(packet) - size + cut]
            writer.packet(AT + number * 1_000_003, kept, len(frame), 0)
    assert list(second_opinion(path)) == ours(path)
    assert pyshark_psh_table(path, 9000) == psh_table(path, 9000)


def conversation(count):
    for i in range(count):
        yield AT + i, ethernet(tcp_packet(SERVER, CLIENT, b"r" * (i % 7), seq=i * 7, flags=0x18))


def test_psh_tables_agree_also_when_the_file_is_cut(tmp_path):
    path = tmp_path / "cut.pcap"
    data = pcap(conversation(200))
    path.write_bytes(data)
    whole = psh_table(path, 9000)
    assert pyshark_psh_table(path, 9000) == whole
    path.write_bytes(data[: len(data) // 2 + 3])
    half = psh_table(path, 9000)
    assert 0 < half.segments < whole.segments
    assert pyshark_psh_table(path, 9000) == half
    assert len(list(second_opinion(path))) == len(ours(path))
    gc.collect()


def test_tshark_reads_what_annotate_and_redact_write(tmp_path):
    path, annotated, redacted = tmp_path / "a.pcap", tmp_path / "b.pcapng", tmp_path / "c.pcapng"
    write_pcap(path, conversation(20))
    annotate(path, annotated, {3: "here"})
    redact(path, redacted)
    assert list(second_opinion(annotated)) == ours(path)
    assert list(second_opinion(redacted)) == ours(redacted)


def test_leaving_early_leaves_no_tshark(tmp_path):
    path = tmp_path / "long.pcap"
    write_pcap(path, conversation(20_000))
    opinions = second_opinion(path)
    assert next(opinions)["frame"] == 1
    opinions.close()
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    assert "tshark" not in {Path(f"/proc/{pid}/comm").read_text().strip() for pid in children}


def test_tshark_missing(tmp_path, monkeypatch):
    path = tmp_path / "a.pcap"
    write_pcap(path, conversation(2))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CaptureError, match="tshark is not installed") as caught:
        pyshark_psh_table(path, 9000)
    assert "apt-get install tshark" in caught.value.hint


def test_tshark_failing(tmp_path, monkeypatch):
    path, fake = tmp_path / "a.pcap", tmp_path / "bin" / "tshark"
    write_pcap(path, conversation(2))
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\nif [ "$1" = -v ]; then echo "TShark (Wireshark) 4.0.17 ok"; exit 0; fi\n'
        "echo 'tshark: it is broken' >&2; exit 3\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/bin:/usr/bin")
    with pytest.raises(CaptureError, match="tshark failed"):
        pyshark_psh_table(path, 9000)
    gc.collect()


def test_works_after_asyncio_run_and_leaves_asyncio_alone(tmp_path):
    path = tmp_path / "a.pcap"
    write_pcap(path, conversation(2))

    async def child():
        process = await asyncio.create_subprocess_exec("true")
        return await process.wait()

    assert asyncio.run(child()) == 0
    assert pyshark_psh_table(path, 9000).segments == 1
    assert asyncio.run(child()) == 0


def test_a_thread_and_a_running_loop_are_refused_in_words(tmp_path):
    path = tmp_path / "a.pcap"
    write_pcap(path, conversation(2))
    told = []

    def ask():
        try:
            pyshark_psh_table(path, 9000)
        except CaptureError as error:
            told.append(str(error))

    async def ask_inside():
        ask()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    asyncio.run(ask_inside())
    assert ["main thread" in told[0], "running event loop" in told[1]] == [True, True]


def test_no_word_of_tshark_reaches_our_output(tmp_path, capfd):
    path = tmp_path / "a.pcap"
    write_pcap(path, conversation(2))
    pyshark_psh_table(path, 9000)
    assert capfd.readouterr() == ("", "")

"""The writer, the annotator and the PSH table."""

import pytest

from netlab.capture.container import read_options
from netlab.capture.craft import ethernet, tcp_packet, write_pcap
from netlab.capture.pcapng import (
    Course,
    Writer,
    annotate,
    interface_block,
    packet_options,
    section_header,
)
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.diagnosis import PshTable
from netlab.errors import CaptureError, UsageError
from netlab.segments import Endpoint

CLIENT, SERVER = Endpoint("10.0.0.1", 40_000), Endpoint("10.0.0.2", 9000)
CLIENT6, SERVER6 = Endpoint("fd00::1", 40_000), Endpoint("fd00::2", 9000)


def options_of(path):
    """Return the option list of every packet, and the file's summary."""
    with open_capture(path) as capture:
        found = [
            list(read_options(buffer, end + (start - end & 3), stop, capture.container.order))
            for _, buffer, start, end, _, _, _, stop in capture.frames()
        ]
        return found, capture.summary()


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "w.pcapng"
    frame = ethernet(tcp_packet(CLIENT, SERVER, b"abc", flags=0x18))
    with path.open("wb") as stream:
        writer = Writer(stream, section_header("what it is", "a machine"))
        first = writer.interface(interface_block(1, 262_144, name="veth-a", capture_filter="tcp port 9000"))
        second = writer.interface(interface_block(1, 0))
        writer.packet(1_700_000_000_000_000_001, frame, len(frame), first)
        writer.packet(-5, frame[:60], 90, second, options=packet_options(["one", "two"], Course.INBOUND))
        writer.statistics(first, 7, 10, 3)
    options, summary = options_of(path)
    assert options == [[], [(1, b"one"), (1, b"two"), (2, b"\1\0\0\0")]]
    assert summary.comment == "what it is"
    assert [(i.name, i.snaplen, i.drops) for i in summary.interfaces] == [("veth-a", 262_144, 3), (None, None, None)]
    with open_capture(path) as capture:
        assert [(s.at, s.interface) for s in capture.segments()] == [(1_700_000_000_000_000_001, 0), (0, 1)]


def test_a_packet_of_an_unknown_interface_is_refused(tmp_path):
    with (tmp_path / "w").open("wb") as stream:
        writer = Writer(stream, section_header())
        with pytest.raises(UsageError, match="interface 0"):
            writer.packet(0, b"", 0, 0)


def test_annotate_keeps_packets_and_adds_comments(tmp_path):
    source, once, twice = tmp_path / "a.pcap", tmp_path / "b.pcapng", tmp_path / "c.pcapng"
    frames = [(10 + i, ethernet(tcp_packet(CLIENT, SERVER, bytes([i]) * i, flags=0x18))) for i in range(5)]
    write_pcap(source, frames)
    annotate(source, once, {2: "the stall begins"})
    annotate(once, twice, {2: "und endet", 5: "ü"})
    options, _ = options_of(twice)
    assert options == [[], [(1, b"the stall begins"), (1, b"und endet")], [], [], [(1, "ü".encode())]]
    with open_capture(source) as before, open_capture(twice) as after:
        assert list(before.segments()) == list(after.segments())
    assert not list(tmp_path.glob("*.partial"))


def test_annotate_keeps_facts_of_an_empty_capture(tmp_path):
    source, target = tmp_path / "a.pcapng", tmp_path / "b.pcapng"
    with source.open("wb") as stream:
        writer = Writer(stream, section_header("nothing came"))
        writer.interface(interface_block(1, 100, name="veth-a"))
        writer.statistics(0, 0, 0, 9)
    annotate(source, target, {})
    _, summary = options_of(target)
    assert (summary.comment, summary.packets) == ("nothing came", 0)
    assert [(i.name, i.snaplen, i.drops) for i in summary.interfaces] == [("veth-a", 100, 9)]


def test_annotate_refuses_to_overwrite_its_source_and_leaves_the_target_when_it_fails(tmp_path):
    source, target = tmp_path / "a.pcap", tmp_path / "b.pcapng"
    write_pcap(source, [(1, ethernet(tcp_packet(CLIENT, SERVER)))])
    with pytest.raises(CaptureError, match="overwrite"):
        annotate(source, source, {})
    target.write_bytes(b"precious")
    with pytest.raises(CaptureError, match="no such file"):
        annotate(tmp_path / "absent", target, {})
    assert target.read_bytes() == b"precious"
    with pytest.raises(CaptureError, match="cannot be written"):
        annotate(source, tmp_path / "no" / "where", {})


def pushes(server, client):
    sizes = [10, 10, 1448, 0, 70_000]
    yield from (ethernet(tcp_packet(server, client, b"x" * size, flags=0x18)) for size in sizes)
    yield ethernet(tcp_packet(server, client, b"no push", flags=0x10))
    yield ethernet(tcp_packet(client, server, b"from the client", flags=0x18))
    yield ethernet(tcp_packet(server, client, b"in a tag", flags=0x18), [(0x8100, 3)])
    yield ethernet(tcp_packet(server, client, b"with options", flags=0x18, options=b"\x01" * 12))
    fragment = bytearray(tcp_packet(server, client, b"a fragment", flags=0x18))
    if fragment[0] == 0x45:
        fragment[7] = 9
        yield ethernet(bytes(fragment))


@pytest.mark.parametrize(("client", "server"), [(CLIENT, SERVER), (CLIENT6, SERVER6)], ids=["v4", "v6"])
def test_psh_table(tmp_path, client, server):
    path = tmp_path / "p.pcap"
    other = Endpoint("10.9.9.9" if server == SERVER else "fd00::9", server.port)
    frames = [*pushes(server, client), ethernet(tcp_packet(other, client, b"another server", flags=0x18))]
    write_pcap(path, enumerate(frames))
    mine = PshTable(segments=6, bytes=71_488, sizes=((8, 1), (10, 2), (12, 1), (1448, 1), (70_000, 1)))
    all_servers = PshTable(segments=7, bytes=71_502, sizes=((8, 1), (10, 2), (12, 1), (14, 1), (1448, 1), (70_000, 1)))
    assert psh_table(path, server) == mine
    assert psh_table(path, server.port) == all_servers
    assert psh_table(path, Endpoint("fd00::77", server.port)).segments == 0
    with pytest.raises(UsageError, match="IP address"):
        psh_table(path, Endpoint("localhost", 1))

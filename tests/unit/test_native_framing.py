"""Compressed frames and chunks: what surrounds a packet or its block."""

import pytest

from netlab.errors import RemoteProtocolError
from netlab.native import compression, server
from netlab.native.blocks import Block, Column, Dialect, Values, encode_block, read_block
from netlab.native.cityhash import checksum
from netlab.native.compression import CompressionError, Method, compress, decompress, read_frame, unlz4
from netlab.native.connection import chunk
from netlab.native.messages import ServerBlock, ServerSignal, TableColumns
from netlab.native.stream import Link, Opaque, ServerDecoder
from netlab.native.wire import Reader
from netlab.wire import ServerPacket

BLOCK = Block(columns=(Column(name="s", type="String", values=["abc" * 40] * 50),), rows=50)
SKIPPED = Block(columns=(Column(name="s", type="String"),), rows=50)


def without(monkeypatch, *names):
    """Make optional packages look not installed."""
    real = compression._package
    monkeypatch.setattr(compression, "_package", lambda name: None if name in names else real(name))


def run(step):
    """Run a step that has all its bytes."""
    with pytest.raises(StopIteration) as stop:
        next(step)
    return stop.value.value


def decoder(*, revision=54485, compressed=False, chunked=False):
    """Return a server decoder past its handshake."""
    link = Link(client_revision=revision, server_revision=revision, server_chunked=chunked)
    link.compression.append(compressed)
    return ServerDecoder(link)


@pytest.mark.parametrize("method", list(Method))
def test_a_block_through_frames(method):
    dialect = Dialect(revision=54464, compression=method, values=Values.READ)
    reader = Reader()
    raw = encode_block(BLOCK, dialect)
    reader.feed(raw)
    assert raw[16] == method
    assert raw[:16] == checksum(raw[16:])
    assert run(read_block(reader, dialect)) == BLOCK
    assert reader.unread == 0


@pytest.mark.parametrize("size", [0, 1, 14, 15, 16, 269, 270, 271, 1000])
def test_lz4_without_the_package(monkeypatch, size):
    without(monkeypatch, "lz4.block")
    body = bytes(range(256)) * 4
    frame = compress(body[:size], Method.LZ4)
    reader = Reader()
    reader.feed(frame)
    assert decompress(run(read_frame(reader))) == body[:size]


def test_lz4_copies_that_overlap():
    # "ab", then 9 bytes from 2 back, then 5 literals.
    raw = bytes([0x25]) + b"ab" + b"\x02\x00" + bytes([0x50]) + b"vwxyz"
    assert unlz4(raw, 16) == b"abababababavwxyz"


@pytest.mark.parametrize(
    "payload",
    [b"\xf0", b"\x20a", b"\x14a\x00\x00", b"\x14a\x05\x00", b"\x1fa\x01\x00\xff\xff\xff\x00", b"\x14a\x01"],
)
def test_broken_lz4(payload):
    with pytest.raises(RemoteProtocolError):
        unlz4(payload, 20)


@pytest.mark.parametrize("method", [Method.LZ4, Method.ZSTD])
@pytest.mark.parametrize("payload", [b"\xff\xff\xff", b""])
def test_broken_frames(method, payload):
    head = bytes([method]) + (len(payload) + 9).to_bytes(4, "little") + (100).to_bytes(4, "little")
    reader = Reader()
    reader.feed(bytes(16) + head + payload)
    with pytest.raises(RemoteProtocolError):
        decompress(run(read_frame(reader)))


@pytest.mark.parametrize(
    "head", ["03" + "0a000000" + "01000000", "02" + "08000000" + "01000000", "02" + "ffffffff" + "01000000"]
)
def test_frame_heads_that_cannot_be(head):
    reader = Reader()
    reader.feed(bytes(16) + bytes.fromhex(head))
    with pytest.raises(RemoteProtocolError):
        next(read_frame(reader))


def test_a_block_in_several_frames():
    plain = encode_block(BLOCK, Dialect(revision=54464))
    frames = b"".join(compress(plain[at : at + 1000], Method.LZ4) for at in range(0, len(plain), 1000))
    reader = Reader()
    reader.feed(frames)
    assert run(read_block(reader, Dialect(revision=54464, compression=Method.LZ4))) == SKIPPED


def test_frames_are_passed_over_where_zstd_cannot_be_read(monkeypatch):
    without(monkeypatch, "zstandard")
    plain = encode_block(BLOCK, Dialect(revision=54464))
    frames = b"".join(_zstd(plain[at : at + 1000]) for at in range(0, len(plain), 1000))
    subject = decoder(revision=54464, compressed=True)
    raw = b"\x01\x00" + frames
    subject.feed(raw + b"\x05")
    assert list(subject.packets()) == []  # one byte more does not show that no further frame comes
    events = list(subject.finish())
    assert [event.packet for event in events] == [
        ServerBlock(block=Block(opaque=True)),
        ServerSignal(kind=ServerPacket.END_OF_STREAM),
    ]
    assert events[0].size == len(raw)


def test_zstd_without_its_package_says_what_to_install(monkeypatch):
    raw = _zstd(b"abc")
    without(monkeypatch, "zstandard")
    reader = Reader()
    reader.feed(raw)
    with pytest.raises(CompressionError, match="zstandard"):
        decompress(run(read_frame(reader)))


def _zstd(body):
    """Compress by ZSTD whatever is made to look missing."""
    import zstandard

    payload = zstandard.ZstdCompressor().compress(body)
    head = bytes([Method.ZSTD]) + (len(payload) + 9).to_bytes(4, "little") + len(body).to_bytes(4, "little")
    return checksum(head + payload) + head + payload


@pytest.mark.parametrize(("revision", "compressed"), [(54480, False), (54481, True)])
@pytest.mark.parametrize("kind", [ServerPacket.LOG, ServerPacket.PROFILE_EVENTS])
def test_side_blocks_are_compressed_from_54481_on(revision, compressed, kind):
    raw = server.encode(ServerBlock(kind=kind, block=BLOCK), Dialect(revision=revision, compression=Method.LZ4))
    assert (raw[2 + 16] == Method.LZ4) is compressed
    subject = decoder(revision=revision, compressed=True)
    subject.feed(raw)
    (event,) = subject.packets()
    assert event.packet == ServerBlock(kind=kind, block=SKIPPED)


@pytest.mark.parametrize("revision", [54480, 54481])
def test_table_columns_are_compressed_whole_from_54481_on(revision):
    message = TableColumns(table="t", description="columns " * 20)
    subject = decoder(revision=revision, compressed=True)
    subject.feed(server.encode(message, Dialect(revision=revision, compression=Method.LZ4)))
    (event,) = subject.packets()
    assert event.packet == message


def test_chunks_count_in_a_packets_size():
    subject = decoder(chunked=True)
    subject.feed(chunk(b"\x05") + b"\x01\0\0\0\x04")
    (event,) = subject.packets()
    assert (event.start, event.end, event.kind) == (0, 9, ServerPacket.END_OF_STREAM)
    assert subject.pending == 9


def test_a_packet_in_several_chunks():
    raw = server.encode(ServerBlock(block=BLOCK), Dialect(revision=54485))
    pieces = b"".join(len(raw[at : at + 7]).to_bytes(4, "little") + raw[at : at + 7] for at in range(0, len(raw), 7))
    subject = decoder(chunked=True)
    subject.feed(pieces + bytes(4))
    (event,) = subject.packets()
    assert event.packet.rows == 50
    assert event.size == len(pieces) + 4


def test_chunks_carry_over_what_cannot_be_read():
    block = b"\x01\x00\x01\x00\x02\xff\xff\xff\xff\x03\x00\x00" + b"\x01\x01\x01j\x04JSON\x00" + b"whatever"
    subject = decoder(chunked=True)
    subject.feed(chunk(block) + chunk(b"\x0f" + bytes(30)) + chunk(b"\x05"))
    kinds = [(event.kind, isinstance(event.packet, Opaque)) for event in subject.packets()]
    assert kinds == [
        (ServerPacket.DATA, True),
        (ServerPacket.MERGE_TREE_ALL_RANGES_ANNOUNCEMENT, True),
        (ServerPacket.END_OF_STREAM, False),
    ]


@pytest.mark.parametrize("raw", [chunk(b"\x05\x05"), chunk(b"\x01\x00"), b"\x01\0\0\0\x05\x01\0\0\0\x05", bytes(4)])
def test_chunks_that_do_not_fit_their_packet(raw):
    subject = decoder(chunked=True)
    subject.feed(raw)
    with pytest.raises(RemoteProtocolError, match="chunk"):
        list(subject.packets())

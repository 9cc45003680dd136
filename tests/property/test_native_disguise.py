"""Stand-ins for packets: of the same size, read as the same type at every revision, and silent on the rest."""

from hypothesis import given, settings
from hypothesis import strategies as st
from native_stream import packets

from netlab.native import client, server
from netlab.native.blocks import Block, Column, Dialect
from netlab.native.client import ClientHello, Query
from netlab.native.client_info import ClientInfo
from netlab.native.compression import Method
from netlab.native.disguise import Disguise, stand_in
from netlab.native.messages import ServerBlock, ServerException, TableColumns
from netlab.native.stream import Link, ServerDecoder
from netlab.native.wire import Reader
from netlab.segments import Direction
from netlab.wire import ServerPacket

revision_numbers = st.sampled_from([54058, 54454, 54464, 54470, 54480, 54492])
lengths = st.integers(0, 300)


def reread(data, revision, compressed):
    """Return the packet from a server that `data` is, all of it."""
    decoder = ServerDecoder(Link(client_revision=revision, server_revision=revision))
    decoder.link.compression.append(compressed)
    decoder.feed(data)
    (event,) = list(decoder.packets())
    assert event.end == len(data)
    return event.packet


@given(revision_numbers, st.booleans(), lengths, lengths, st.integers(0, 20))
def test_a_block_of_any_size(revision, compressed, name, value, rows):
    column = Column(name="n" * name, type="String", values=["v" * value] * rows)
    message = ServerBlock(table="t" * (value % 3), block=Block(columns=(column,), rows=rows))
    dialect = Dialect(revision=revision, compression=Method.NONE if compressed else None)
    data = server.encode(message, dialect)
    made = stand_in(message, len(data), dialect)
    assert made is not None and len(made) == len(data)
    assert b"vvv" not in made
    again = reread(made, revision, compressed)
    assert again.kind is ServerPacket.DATA
    assert bool(again.rows) is bool(rows)


@given(revision_numbers, lengths, lengths, lengths)
def test_texts_of_any_size(revision, one, two, three):
    dialect = Dialect(revision=revision)
    for message in (
        ServerException(code=7, name="n" * one, message="m" * two, stack="s" * three),
        TableColumns(table="t" * one, description="d" * two),
    ):
        size = len(server.encode(message, dialect))
        made = stand_in(message, size, dialect)
        assert made is not None and len(made) == size
        again = reread(made, revision, False)
        assert again.kind is message.kind
        assert getattr(again, "code", 7) == 7
    info = ClientInfo(os_user="u" * one, hostname="h" * two, address="127.0.0.1:1", revision=revision)
    for asked in (
        Query(query_id="q" * (three % 40), info=info, sql="S" * three, compression=bool(one % 2)),
        ClientHello(name="client", major=1, minor=2, revision=revision, user="u" * one, password="p" * two),
    ):
        size = len(client.encode(asked, dialect))
        made = stand_in(asked, size, dialect)
        assert made is not None and len(made) == size
        reader = Reader()
        reader.feed(made[1:])
        step = client.read_body(reader, asked.kind, dialect)
        try:
            next(step)
        except StopIteration as stop:
            again = stop.value
        assert reader.unread == 0
        assert getattr(again, "compression", None) == getattr(asked, "compression", None)


@given(st.data())
@settings(max_examples=60)
def test_stand_ins_do_not_depend_on_how_the_stream_is_cut(data):
    shape = data.draw(st.sampled_from([(54464, False, False), (54470, False, True), (54492, True, True)]))
    turns = list(packets(shape[0], compressed=shape[1], chunked=shape[2]))
    whole, pieces = Disguise(), Disguise()
    expected, found = [], []
    for up, body in turns:
        direction = Direction.TO_SERVER if up else Direction.TO_CLIENT
        expected += whole.feed(direction, body)
        cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=5)))
        for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
            found += pieces.feed(direction, body[start:stop])
    assert found == expected
    for direction in Direction:
        mine = [piece for piece in found if piece.direction is direction]
        total = sum(len(body) for up, body in turns if up == (direction is Direction.TO_SERVER))
        # Packet after packet, without a gap, to the end.
        assert [piece.start for piece in mine] == [0, *(piece.end for piece in mine[:-1])]
        assert mine[-1].end == total
        assert all(len(piece.head) <= piece.end - piece.start for piece in mine)


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=200)), max_size=20))
def test_garbage_is_given_up_on(turns):
    disguise = Disguise()
    for up, body in turns:
        for piece in disguise.feed(Direction.TO_SERVER if up else Direction.TO_CLIENT, body):
            assert 0 <= piece.start < piece.end
            assert len(piece.head) <= piece.end - piece.start

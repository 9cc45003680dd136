"""The Native protocol under any cut, any garbage, any packet at any revision."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netlab.errors import NetlabError
from netlab.native import client, revisions, server
from netlab.native.blocks import Block, Column, Dialect, Values
from netlab.native.cityhash import checksum
from netlab.native.client import (
    Addendum,
    ClientBlock,
    ClientHello,
    ClientSignal,
    ClientText,
    Query,
    TablesStatusRequest,
)
from netlab.native.client_info import ClientInfo
from netlab.native.compression import Method, compress, decompress, read_frame, unlz4
from netlab.native.connection import chunk
from netlab.native.labels import Conversation
from netlab.native.messages import (
    PartUUIDs,
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerHello,
    ServerSignal,
    ServerText,
    Setting,
    TableColumns,
    TablesStatus,
    TableStatus,
)
from netlab.native.stream import ClientDecoder, Link, ServerDecoder
from netlab.native.types import codec
from netlab.native.wire import Reader, varuint
from netlab.segments import Direction
from netlab.wire import ClientPacket, ServerPacket

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
u64 = st.integers(0, (1 << 64) - 1)
small = st.integers(0, 1 << 20)
revision_numbers = st.one_of(
    st.sampled_from(sorted({each + step for each in revisions.PLAUSIBLE for step in (0, -1)})),
    st.integers(revisions.OLDEST, revisions.NEWEST),
).filter(lambda number: revisions.OLDEST <= number <= revisions.NEWEST)

SCALARS = {
    "UInt8": st.integers(0, 255),
    "Int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "UInt256": st.integers(0, (1 << 256) - 1),
    "Float64": st.floats(allow_nan=False),
    "String": texts,
    "FixedString(4)": st.binary(min_size=4, max_size=4),
    "DateTime64(6)": st.integers(-(1 << 40), 1 << 40),
    "Decimal(38, 5)": st.decimals(-(10**9), 10**9, places=5),
    "UUID": st.uuids(),
    "IPv4": st.ip_addresses(v=4),
    "IPv6": st.ip_addresses(v=6),
    "Bool": st.booleans(),
    "Enum8('a' = 1, 'b, c' = -3)": st.sampled_from(["a", "b, c"]),
}


@st.composite
def types(draw, depth=2):
    """Draw a data type and a strategy for its values."""
    name = draw(st.sampled_from(sorted(SCALARS)))
    values = SCALARS[name]
    shape = draw(st.sampled_from(["plain", "Nullable", "LowCardinality", "LowCardinality(Nullable", "nest"]))
    if shape == "Nullable":
        return f"Nullable({name})", st.none() | values
    if shape == "LowCardinality" and name != "Float64":
        return f"LowCardinality({name})", values
    if shape == "LowCardinality(Nullable" and name != "Float64":
        return f"LowCardinality(Nullable({name}))", st.none() | values
    if shape != "nest" or depth == 0:
        return name, values
    inner, inside = draw(types(depth=depth - 1))
    if draw(st.booleans()):
        return f"Array({inner})", st.lists(inside, max_size=3)
    if draw(st.booleans()):
        return f"Map(String, {inner})", st.dictionaries(texts, inside, max_size=3)
    other, others = draw(types(depth=depth - 1))
    return f"Tuple(x {inner}, `y z` {other})", st.tuples(inside, others)


@st.composite
def blocks(draw):
    rows = draw(st.integers(0, 4))
    columns = []
    for _ in range(draw(st.integers(0, 3))):
        name, values = draw(types())
        drawn = draw(st.lists(values, min_size=rows, max_size=rows)) if rows else ()
        columns.append(Column(name=draw(texts), type=name, values=drawn))
    return Block(columns=tuple(columns), rows=rows, bucket=draw(st.integers(-1, 99)), overflows=draw(st.booleans()))


triples = st.builds(Setting, name=names, value=texts, flags=st.integers(0, 3))
server_messages = st.one_of(
    st.builds(
        ServerBlock,
        kind=st.sampled_from([each for each in ServerPacket if "Hello" not in each.label and each in server._BLOCKS]),
        table=texts,
        block=blocks(),
    ),
    st.builds(ServerException, code=st.integers(-99, 999), name=texts, message=texts, stack=texts),
    st.builds(Progress, **dict.fromkeys(("rows", "bytes", "total_rows", "total_bytes", "written_rows"), u64)),
    st.builds(ProfileInfo, rows=u64, blocks=u64, bytes=u64, applied_limit=st.booleans(), rows_before_limit=u64),
    st.builds(TableColumns, table=texts, description=texts),
    st.builds(
        ServerText,
        kind=st.sampled_from([ServerPacket.TIMEZONE_UPDATE, ServerPacket.SSH_CHALLENGE]),
        text=texts,
    ),
    st.builds(PartUUIDs, parts=st.lists(st.binary(min_size=16, max_size=16), max_size=3).map(tuple)),
    st.builds(
        TablesStatus,
        tables=st.lists(st.builds(TableStatus, database=texts, table=texts, replicated=st.booleans()), max_size=3).map(
            tuple
        ),
    ),
    st.builds(
        ServerSignal,
        kind=st.sampled_from([ServerPacket.PONG, ServerPacket.END_OF_STREAM, ServerPacket.READ_TASK_REQUEST]),
    ),
)
infos = st.builds(
    ClientInfo,
    initial_user=texts,
    client_name=texts,
    start_time=st.integers(-9, 1 << 50),
    quota_key=texts,
    distributed_depth=small,
    patch=small,
    agent=texts,
    trace=st.sampled_from([b"", bytes(range(24))]),
    revision=small,
)
client_messages = st.one_of(
    st.builds(
        Query,
        query_id=texts,
        info=infos,
        settings=st.lists(triples, max_size=3).map(tuple),
        sql=texts,
        parameters=st.lists(triples, max_size=2).map(tuple),
        roles=texts,
        secret=texts,
        compression=st.booleans(),
    ),
    st.builds(ClientBlock, kind=st.sampled_from([ClientPacket.DATA, ClientPacket.SCALAR]), table=texts, block=blocks()),
    st.builds(ClientText, kind=st.just(ClientPacket.SSH_CHALLENGE_RESPONSE), text=texts),
    st.builds(TablesStatusRequest, tables=st.lists(st.tuples(texts, texts), max_size=3).map(tuple)),
    st.builds(
        ClientSignal,
        kind=st.sampled_from([ClientPacket.CANCEL, ClientPacket.PING, ClientPacket.KEEP_ALIVE]),
    ),
)


def link_at(revision, *, chunked=False, compressed=False):
    """Return a link past its handshake, with a query in hand that lasts."""
    link = Link(client_revision=revision, server_revision=revision, client_chunked=chunked, server_chunked=chunked)
    link.compression.extend([compressed] * 50)
    return link


def as_numbers(message):
    """Return a Query with settings that a peer before 54429 can carry: numbers, no flags."""
    plain = tuple(Setting(name=f"s{at}", value=str(at)) for at, _ in enumerate(message.settings))
    return replace(message, settings=plain)


@given(server_messages, revision_numbers, st.sampled_from([None, *Method]), st.booleans())
def test_server_packets_come_back(message, revision, method, chunked):
    dialect = Dialect(revision=revision, compression=method)
    raw = server.encode(message, dialect)
    decoder = ServerDecoder(link_at(revision, chunked=chunked, compressed=method is not None), Values.READ)
    decoder.feed(chunk(raw) if chunked else raw)
    (event,) = decoder.packets()
    # What the revision does not carry keeps its default, so encoding again gives the same bytes and nothing else.
    assert server.encode(event.packet, dialect) == raw
    if revision == revisions.NEWEST:
        assert event.packet == message
    assert decoder.pending is None


@given(client_messages, revision_numbers, st.booleans())
def test_client_packets_come_back(message, revision, chunked):
    if isinstance(message, Query) and revision < revisions.SETTINGS_AS_STRINGS:
        message = as_numbers(message)
    dialect = Dialect(revision=revision)
    raw = client.encode(message, dialect)
    decoder = ClientDecoder(link_at(revision, chunked=chunked), Values.READ, addendum_due=False)
    decoder.feed(chunk(raw) if chunked else raw)
    (event,) = decoder.packets()
    assert client.encode(event.packet, dialect) == raw
    if revision == revisions.NEWEST:
        assert event.packet == message


@given(
    st.builds(
        ServerHello,
        name=texts,
        major=small,
        minor=small,
        revision=revision_numbers,
        timezone=texts,
        display_name=texts,
        patch=small,
        password_rules=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
        nonce=u64,
        settings=st.lists(triples, max_size=2).map(tuple),
        query_plan=small,
    ),
    st.builds(ClientHello, name=texts, major=small, minor=small, revision=revision_numbers, password=texts),
    st.builds(Addendum, quota_key=texts),
)
def test_handshakes_come_back(answer, hello, addendum):
    link = Link()
    up, down = ClientDecoder(link), ServerDecoder(link)
    up.feed(client.encode(hello, Dialect(revision=0)))
    assert [event.packet for event in up.packets()] == [hello]
    raw = server.encode(answer, Dialect(revision=hello.revision))
    down.feed(raw)
    (event,) = down.packets()
    assert server.encode(event.packet, Dialect(revision=hello.revision)) == raw
    more = client.encode(addendum, Dialect(revision=link.revision))
    up.feed(more + b"\x04")
    kinds = [event.kind for event in up.packets()]
    assert kinds == ([None] if more else []) + [ClientPacket.PING]


@given(st.lists(server_messages, max_size=5), revision_numbers, st.booleans(), st.data())
def test_a_cut_changes_no_event(messages, revision, chunked, data):
    parts = [server.encode(message, Dialect(revision=revision)) for message in messages]
    raw = b"".join(chunk(part) if chunked else part for part in parts)
    whole = ServerDecoder(link_at(revision, chunked=chunked), Values.READ)
    whole.feed(raw)
    expected = list(whole.packets())
    assert [event.end - event.start for event in expected] == [len(part) + 8 * chunked for part in parts]
    pieces = ServerDecoder(link_at(revision, chunked=chunked), Values.READ)
    got, at = [], 0
    while at < len(raw):
        size = data.draw(st.integers(1, 9))
        pieces.feed(raw[at : at + size])
        got += pieces.packets()
        at += size
    assert got == expected


@given(st.lists(server_messages, max_size=4), revision_numbers)
def test_skipping_gives_the_same_sizes_and_rows(messages, revision):
    raw = b"".join(server.encode(message, Dialect(revision=revision)) for message in messages)
    seen = []
    for values in Values:
        decoder = ServerDecoder(link_at(revision), values)
        decoder.feed(raw)
        seen.append([(event.start, event.end, getattr(event.packet, "rows", None)) for event in decoder.packets()])
    assert seen[0] == seen[1]


def events_or_error(decoder, pieces):
    """Return what a decoder gives for `pieces`, and the error that ended it."""
    out = []
    try:
        for piece in pieces:
            decoder.feed(piece)
            out += decoder.packets()
        out += decoder.finish()
        decoder.end()
    except NetlabError as error:
        out.append(type(error))
    return out


@given(st.binary(max_size=300), revision_numbers, st.booleans(), st.booleans(), st.sampled_from(list(Values)))
@settings(max_examples=400)
def test_garbage_raises_only_our_errors(raw, revision, chunked, compressed, values):
    for make in (ServerDecoder, lambda link, values: ClientDecoder(link, values, addendum_due=False)):
        pieces = [raw[at : at + 1] for at in range(len(raw))]
        first = events_or_error(make(link_at(revision, chunked=chunked, compressed=compressed), values), [raw])
        again = events_or_error(make(link_at(revision, chunked=chunked, compressed=compressed), values), pieces)
        assert len(first) == len(again)
        assert [getattr(each, "end", each) for each in first] == [getattr(each, "end", each) for each in again]


@given(server_messages, revision_numbers, st.data())
@settings(max_examples=300)
def test_a_changed_byte_raises_only_our_errors(message, revision, data):
    raw = bytearray(server.encode(message, Dialect(revision=revision, compression=Method.LZ4)))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for values in Values:
        events_or_error(ServerDecoder(link_at(revision, compressed=True), values), [bytes(raw)])


@given(
    st.text(max_size=40) | st.from_regex(r"(Array|Tuple|Map|Enum8|Decimal|LowCardinality)\([A-Za-z0-9, '=()]{0,20}\)")
)
def test_any_type_name_is_a_codec_or_our_error(name):
    try:
        codec(name)
    except NetlabError as error:
        assert error.what


@given(st.binary(max_size=2000), st.sampled_from(list(Method)))
def test_frames_come_back(body, method):
    reader = Reader()
    frame = compress(body, method)
    assert frame[:16] == checksum(frame[16:])
    reader.feed(frame)
    with pytest.raises(StopIteration) as stop:
        next(read_frame(reader))
    assert decompress(stop.value.value) == body
    assert method is not Method.LZ4 or unlz4(stop.value.value.payload, len(body)) == body


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_lz4_payload_is_bytes_or_our_error(payload, raw_size):
    try:
        assert len(unlz4(payload, raw_size)) <= raw_size + len(payload)
    except NetlabError as error:
        assert error.what


@given(u64)
def test_numbers_come_back(value):
    reader = Reader()
    reader.feed(varuint(value))
    with pytest.raises(StopIteration) as stop:
        next(reader.varuint())
    assert stop.value.value == value


feeds = st.lists(st.tuples(st.sampled_from(list(Direction)), st.binary(min_size=1, max_size=60)), max_size=8)


@given(feeds, st.booleans())
@settings(max_examples=200)
def test_labels_of_garbage_cover_each_stream_once(pieces, middle):
    conversation = Conversation(middle=middle)
    spans = [span for direction, data in pieces for span in conversation.feed(direction, data)]
    spans += conversation.finish()
    for direction in Direction:
        total = sum(len(data) for way, data in pieces if way is direction)
        mine = sorted((span.start, span.end) for span in spans if span.direction is direction)
        assert [start for start, _ in mine] == [0, *[end for _, end in mine]][: len(mine)]
        assert (mine[-1][1] if mine else 0) == total

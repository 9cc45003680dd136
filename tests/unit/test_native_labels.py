"""Labels of both directions: with the handshake, without it, cut short, broken, and of other protocols."""

import pytest

from netlab.native import client, server
from netlab.native.blocks import Block, Column, Dialect
from netlab.native.client import Addendum, ClientBlock, ClientHello, ClientSignal, Query
from netlab.native.client_info import ClientInfo
from netlab.native.compression import Method
from netlab.native.connection import chunk
from netlab.native.labels import Conversation, Mark
from netlab.native.messages import (
    CHUNKED,
    NOT_CHUNKED,
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerHello,
    ServerSignal,
)
from netlab.segments import Direction
from netlab.wire import ClientPacket, ServerPacket

UP, DOWN = Direction.TO_SERVER, Direction.TO_CLIENT
ROWS = Block(columns=(Column(name="n", type="UInt64", values=[7] * 300),), rows=300)
HEAD = Block(columns=(Column(name="n", type="UInt64", values=[]),))
ANSWER = [
    ServerBlock(block=HEAD),
    ServerBlock(block=ROWS),
    ProfileInfo(rows=300, blocks=1, bytes=2400),
    Progress(rows=300, bytes=2400, total_rows=300, elapsed=5000),
    ServerBlock(kind=ServerPacket.PROFILE_EVENTS, block=ROWS),
    ServerBlock(),
    ServerSignal(kind=ServerPacket.END_OF_STREAM),
]
ANSWER_KINDS = [message.kind for message in ANSWER]
REVISIONS = [54058, 54401, 54412, 54428, 54441, 54453, 54455, 54460, 54464, 54468, 54470, 54476, 54482, 54488, 54492]


class Talk:
    """Writes both directions of a conversation."""

    def __init__(self, revision=54464, *, chunked=False, method=None):
        self.revision = revision
        self.chunked = chunked
        self.method = method
        self.plain = Dialect(revision=revision)
        self.feeds = []

    def handshake(self, client_revision=None, server_revision=None):
        up, down = client_revision or self.revision, server_revision or self.revision
        mode = CHUNKED if self.chunked else NOT_CHUNKED
        hello = ClientHello(name="tester", major=1, minor=2, revision=up, user="u", password="hunter2")
        self.feeds.append((UP, client.encode(hello, self.plain)))
        answer = ServerHello(
            name="ClickHouse", major=26, minor=7, revision=down, timezone="UTC", send_mode=mode, receive_mode=mode
        )
        self.feeds.append((DOWN, server.encode(answer, Dialect(revision=up))))
        addendum = Addendum(send_mode=mode, receive_mode=mode)
        if raw := client.encode(addendum, self.plain):
            self.feeds.append((UP, raw))
        return self

    def ask(self, sql="SELECT 1", answer=ANSWER):
        dialect = Dialect(revision=self.revision, compression=self.method)
        info = ClientInfo(client_name="tester", revision=self.revision)
        query = Query(sql=sql, info=info, query_id="id", compression=self.method is not None)
        up = [client.encode(query, dialect), client.encode(ClientBlock(), dialect)]
        self.feeds.append((UP, self._join(up)))
        self.feeds.append((DOWN, self._join([server.encode(message, dialect) for message in answer])))
        return self

    def _join(self, packets):
        return b"".join(chunk(packet) if self.chunked else packet for packet in packets)

    def size(self, direction):
        return sum(len(data) for way, data in self.feeds if way is direction)


def label(feeds, *, middle=False, step=None):
    """Feed everything; return the conversation and its spans."""
    conversation = Conversation(middle=middle)
    spans = []
    for direction, data in feeds:
        for at in range(0, len(data), step or len(data) or 1):
            spans += conversation.feed(direction, data[at : at + (step or len(data))])
    return conversation, spans + conversation.finish()


def of(spans, direction):
    """Return one direction's spans, after checking that they cover it without a gap."""
    mine = [span for span in spans if span.direction is direction]
    assert [span.start for span in mine[1:]] == [span.end for span in mine[:-1]]
    return mine


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("step", [None, 1, 13])
def test_a_whole_connection(revision, step):
    talk = Talk(revision).handshake().ask().ask("SELECT 2")
    conversation, spans = label(talk.feeds, step=step)
    assert [span.kind for span in of(spans, DOWN)] == [ServerPacket.HELLO, *ANSWER_KINDS, *ANSWER_KINDS]
    addendum = [Mark.ADDENDUM] if revision >= 54458 else []
    query = [ClientPacket.QUERY, ClientPacket.DATA]
    assert [span.kind for span in of(spans, UP)] == [ClientPacket.HELLO, *addendum, *query, *query]
    assert all(span.whole for span in spans)
    assert conversation.recognised
    assert conversation.revision == revision
    assert of(spans, DOWN)[-1].end == talk.size(DOWN)
    assert [span.text for span in spans if span.kind is ClientPacket.QUERY] == ["SELECT 1", "SELECT 2"]
    assert [span.rows for span in of(spans, DOWN)][1:8] == [0, 300, None, None, 300, 0, None]


def test_the_lower_revision_counts():
    conversation, spans = label(Talk(54412).handshake(client_revision=54468, server_revision=54412).ask().feeds)
    assert conversation.revision == 54412
    assert [span.kind for span in of(spans, DOWN)][1:] == ANSWER_KINDS


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("revision", [54412, 54464, 54485])
def test_compressed_blocks(method, revision):
    _, spans = label(Talk(revision, method=method).handshake().ask().feeds)
    assert [span.kind for span in of(spans, DOWN)][1:] == ANSWER_KINDS
    (query,) = [span for span in spans if span.kind is ClientPacket.QUERY]
    assert query.compressed


def test_compression_is_each_querys_own():
    talk = Talk(method=Method.LZ4).handshake().ask()
    talk.method = None
    _, spans = label(talk.ask().feeds)
    assert [span.kind for span in of(spans, DOWN)][1:] == ANSWER_KINDS * 2


def test_chunks():
    talk = Talk(54485, chunked=True).handshake().ask()
    _, spans = label(talk.feeds, step=5)
    assert [span.kind for span in of(spans, DOWN)][1:] == ANSWER_KINDS
    assert of(spans, DOWN)[-1].end == talk.size(DOWN)
    assert of(spans, DOWN)[-1].start == talk.size(DOWN) - 9


def test_the_password_is_in_no_label():
    _, spans = label(Talk().handshake().ask().feeds)
    assert "hunter2" not in repr(spans)
    assert spans[0].text == "tester 1.2 revision 54464"


def test_an_exception_carries_code_and_message():
    refused = ServerException(code=60, name="DB::Exception", message="no table t")
    talk = Talk(method=Method.LZ4).handshake().ask(answer=[refused])
    talk.method = None
    _, spans = label(talk.ask().feeds)
    failed = [span for span in spans if span.kind is ServerPacket.EXCEPTION]
    assert [(span.code, span.text) for span in failed] == [(60, "DB::Exception: no table t")]
    assert of(spans, DOWN)[-1].kind is ServerPacket.END_OF_STREAM


def test_a_packet_cut_short_is_partial():
    talk = Talk().handshake().ask()
    talk.feeds[-1] = (DOWN, talk.feeds[-1][1][:100])
    _, spans = label(talk.feeds)
    last = of(spans, DOWN)[-1]
    assert (last.kind, last.whole, last.end) == (ServerPacket.DATA, False, talk.size(DOWN))


def test_after_garbage_nothing_is_guessed():
    talk = Talk().handshake().ask()
    talk.feeds[-1] = (DOWN, talk.feeds[-1][1] + b"\x63garbage")
    talk.ask()
    _, spans = label(talk.feeds)
    last = of(spans, DOWN)[-1]
    assert last.kind is Mark.UNLABELLED
    assert "no packet has type 99" in last.text
    assert last.end == talk.size(DOWN)
    assert [span.kind for span in of(spans, UP)].count(ClientPacket.QUERY) == 2


def test_answers_end_where_queries_cannot_be_read():
    talk = Talk().handshake().ask()
    talk.feeds.append((UP, b"\x63garbage"))
    talk.ask()
    _, spans = label(talk.feeds)
    assert [span.kind for span in of(spans, DOWN)][1:8] == ANSWER_KINDS
    assert of(spans, DOWN)[-1].kind is Mark.UNLABELLED
    assert "the client's direction" in of(spans, DOWN)[-1].text


def test_the_servers_bytes_may_come_first():
    talk = Talk().handshake().ask()
    feeds = [feed for feed in talk.feeds if feed[0] is DOWN][:1] + [feed for feed in talk.feeds if feed[0] is UP]
    _, spans = label(feeds)
    assert [span.kind for span in of(spans, DOWN)] == [ServerPacket.HELLO]
    assert [span.kind for span in of(spans, UP)][-1] is ClientPacket.DATA


def test_one_direction_alone_has_no_labels():
    conversation, spans = label([(DOWN, bytes(1 << 16))] * 40)
    assert [(span.kind, span.end) for span in spans] == [(Mark.UNLABELLED, 40 << 16)]
    assert "other direction" in spans[0].text
    assert not conversation.recognised


@pytest.mark.parametrize(
    "feeds",
    [
        [(UP, b"GET / HTTP/1.1\r\n\r\n"), (DOWN, b"HTTP/1.1 200 OK\r\n\r\n")],
        [(UP, b"*1\r\n$4\r\nPING\r\n"), (DOWN, b"+PONG\r\n")],
        [(UP, b"\x16\x03\x01\x02\x00\x01\x00"), (DOWN, b"\x16\x03\x03\x00\x7a\x02")],
        [(UP, b"\x00\x00\x00\x08\x04\xd2\x16\x2f"), (DOWN, b"N")],
        [(UP, b"\x00" * 40), (DOWN, b"\x00" * 40)],
    ],
)
@pytest.mark.parametrize("middle", [False, True])
def test_other_protocols_have_no_labels(feeds, middle):
    conversation, spans = label(feeds, middle=middle)
    assert not conversation.recognised
    assert all(span.kind in (Mark.UNLABELLED, ClientPacket.HELLO) for span in spans)


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("step", [None, 11])
def test_from_the_middle(revision, step):
    talk = Talk(revision).ask().ask("SELECT 2")
    conversation, spans = label(talk.feeds, middle=True, step=step)
    assert [span.kind for span in of(spans, DOWN)] == ANSWER_KINDS * 2
    assert [span.text for span in of(spans, UP)] == ["SELECT 1", "", "SELECT 2", ""]
    assert conversation.recognised
    assert conversation.revision <= revision


@pytest.mark.parametrize(("chunked", "method"), [(True, None), (False, Method.LZ4), (True, Method.ZSTD)])
def test_from_the_middle_with_framing(chunked, method):
    _, spans = label(Talk(54480, chunked=chunked, method=method).ask().feeds, middle=True)
    assert [span.kind for span in of(spans, DOWN)] == ANSWER_KINDS


def test_from_the_middle_of_an_answer():
    talk = Talk().ask()
    talk.feeds = [(DOWN, b"\x37\x37rest of a block"), *talk.feeds]
    _, spans = label(talk.feeds, middle=True)
    down = of(spans, DOWN)
    assert [span.kind for span in down] == [Mark.UNLABELLED, *ANSWER_KINDS]
    assert (down[0].start, down[0].end) == (0, 17)
    assert down[-1].end == talk.size(DOWN)


def test_garbage_after_a_certain_start_ends_the_labels():
    talk = Talk().ask()
    talk.feeds.append((DOWN, b"\x63" * 50))
    _, spans = label(talk.feeds, middle=True)
    down = of(spans, DOWN)
    assert [span.kind for span in down] == [*ANSWER_KINDS, Mark.UNLABELLED]
    assert down[-1].end == talk.size(DOWN)


def test_cut_short_in_the_middle():
    talk = Talk().ask()
    talk.feeds.append((UP, client.encode(ClientSignal(kind=ClientPacket.PING), talk.plain)))
    talk.feeds[1] = (DOWN, talk.feeds[1][1][:-1])
    _, spans = label(talk.feeds, middle=True)
    assert [span.kind for span in of(spans, DOWN)] == ANSWER_KINDS[:-1]
    assert of(spans, UP)[-1].kind is ClientPacket.PING


def test_a_revision_beyond_what_is_read_says_so():
    talk = Talk(54485).handshake(client_revision=54999, server_revision=54999).ask()
    _, spans = label(talk.feeds)
    assert of(spans, UP)[-1].kind is Mark.UNLABELLED
    assert "54999" in of(spans, UP)[-1].text
    assert of(spans, DOWN)[-1].end == talk.size(DOWN)


def test_what_is_no_query_is_not_tried_for_long():
    columns = b"\x02\x00\x01\x00\x02\xff\xff\xff\xff\x00\xff\xff\x03\x00" + bytes(1 << 20)
    conversation, spans = label([(UP, columns)], middle=True, step=1448)
    assert [(span.kind, span.start, span.end) for span in spans] == [(Mark.UNLABELLED, 0, len(columns))]
    assert conversation._reading.trials == []


def test_more_settings_than_any_server_has_are_an_error():
    talk = Talk().handshake()
    talk.feeds.append((UP, b"\x01\x00\x00" + b"\x01a\x00\x00" * 5000))
    _, spans = label(talk.feeds)
    assert "more than 4096 settings" in of(spans, UP)[-1].text

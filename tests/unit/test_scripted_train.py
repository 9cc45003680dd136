"""Write trains: their TOML, their packets' sizes, and how deliveries group them into writes."""

from pathlib import Path

import pytest

from netlab.errors import ScenarioError
from netlab.native.blocks import Dialect, Values
from netlab.native.client import ClientHello
from netlab.native.messages import ServerBlock, ServerException, ServerHello
from netlab.native.stream import Link, ServerDecoder
from netlab.scenario import Delivery
from netlab.servers.scripted import check
from netlab.servers.scripted_native import choose, refuse
from netlab.servers.scripted_packets import Packets, opaque
from netlab.servers.scripted_player import Cork, Pause, Write, actions, ahead, writes
from netlab.servers.scripted_train import BUILT_IN, Answer, Group, Part, Repeat, Send, load_train, parse_train
from netlab.units import ms
from netlab.wire import ServerPacket

TRAINS = sorted(Path(__file__).parents[2].joinpath("scenarios", "trains").glob("*.toml"))
PROBE = Dialect(revision=54464)


def plan(train, delivery, *, revision=54464, number=0):
    answer = train.answers[number]
    packets = Packets(answer.columns, Dialect(revision=revision))
    return list(writes(actions(answer.steps, packets.encode), delivery))


def sizes(done):
    return [len(action.data) for action in done if isinstance(action, Write)]


def decode(data, revision=54464):
    link = Link(client_revision=revision, server_revision=revision)
    decoder = ServerDecoder(link, Values.READ)
    decoder.feed(data)
    events = list(decoder.packets())
    decoder.end()
    return [event.packet for event in events]


def test_built_in_train_is_what_26_7_writes():
    assert sizes(plan(load_train(None)[0], Delivery.NODELAY)) == [28, 36, 8, 11, 2016, 12, 10, 1]


def test_built_in_train_stands_in_a_file_too():
    path = next(path for path in TRAINS if path.stem == "max-id")
    assert load_train(str(path))[0].answers == load_train(None)[0].answers


def test_batched_is_what_26_9_writes():
    assert sizes(plan(load_train(None)[0], Delivery.BATCHED)) == [28, 36, 2058]


def test_delivery_changes_no_byte():
    train = load_train(None)[0]
    streams = {
        b"".join(action.data for action in plan(train, delivery) if isinstance(action, Write)) for delivery in Delivery
    }
    assert len(streams) == 1


def test_cork_goes_round_the_answer():
    done = plan(load_train(None)[0], Delivery.CORK)
    assert (done[0], done[-1]) == (Cork(on=True), Cork(on=False))
    assert len(sizes(done)) == 8


def test_batched_progress_does_not_wait_for_the_next_tick():
    train = parse_train(TRAINS_LONG, "t.toml")
    done = plan(train, Delivery.BATCHED)
    kinds = [action.parts if isinstance(action, Write) else "pause" for action in done]
    tick = ("progress", "profile_events")
    assert kinds == [("header",), "pause", tick, "pause", tick, ("data",), ("profile_info", "end_of_stream")]


TRAINS_LONG = """
[[answer]]
train = [
  "header",
  { repeat = 2, train = [{ pause = "100ms" }, "progress", "profile_events"] },
  "data", "profile_info", "end_of_stream",
]
"""


def test_log_before_the_header_does_not_wait_for_it_and_table_columns_does():
    text = '[[answer]]\ntrain = ["log", "header", "log", "data", "end_of_stream"]'
    assert len(sizes(plan(parse_train(text, "t"), Delivery.BATCHED))) == 4
    text = '[[answer]]\ntrain = ["table_columns", "header", "profile_events", "end_of_stream"]'
    parts = [action.parts for action in plan(parse_train(text, "t"), Delivery.BATCHED)]
    assert parts == [("table_columns", "header"), ("profile_events", "end_of_stream")]


def test_nested_array_is_one_write():
    text = '[[answer]]\ntrain = ["header", ["data", "progress", { send = "profile_events", bytes = 500 }]]'
    assert sizes(plan(parse_train(text, "t"), Delivery.NODELAY)) == [28, 36 + 8 + 500] or sizes(
        plan(parse_train(text, "t"), Delivery.NODELAY)
    ) == [28, 36 + 7 + 500 + 1]


def test_repeats_nest_and_pauses_are_kept():
    text = '[[answer]]\ntrain = [{ repeat = 3, train = [{ repeat = 2, train = ["progress"] }, { pause = "5ms" }] }]'
    train = parse_train(text, "t")
    done = plan(train, Delivery.NODELAY)
    assert len(sizes(done)) == 6
    assert [action for action in done if isinstance(action, Pause)] == [Pause(duration=ms(5))] * 3
    assert isinstance(train.answers[0].steps[0], Repeat)


def test_making_ahead_changes_nothing():
    train = load_train(str(next(path for path in TRAINS if path.stem == "large-result")))[0]
    done = plan(train, Delivery.NODELAY)
    assert list(ahead(done)) == done
    assert sizes(done).count(256 << 10) == 16


@pytest.mark.parametrize("revision", [54412, 54448, 54460, 54464, 54469, 54480, 54485])
@pytest.mark.parametrize("path", [path for path in TRAINS if path.stem != "twelve-writes"], ids=lambda path: path.stem)
def test_trains_are_valid_packets_at_every_revision(path, revision):
    answer = load_train(str(path))[0].answers[0]
    packets = Packets(answer.columns, Dialect(revision=revision))
    done = actions(answer.steps, lambda send: packets.encode(send) if packets.knows(send.part) else None)
    stream = b"".join(action.data for action in done if isinstance(action, Write))
    kinds = [packet.kind for packet in decode(stream, revision)]
    assert kinds[0] is ServerPacket.DATA
    assert kinds[-1] is ServerPacket.END_OF_STREAM
    assert (ServerPacket.PROFILE_EVENTS in kinds) is (revision >= 54451)


@pytest.mark.parametrize("part", [Part.PROFILE_EVENTS, Part.LOG])
@pytest.mark.parametrize("size", [260, 300, 1448, 2016, 2900, 10_000, 70_001])
def test_blocks_are_padded_to_the_byte(part, size):
    data = Packets((("x", "UInt64"),), PROBE).encode(Send(part=part, size=size))
    assert len(data) == size
    (packet,) = decode(data)
    assert isinstance(packet, ServerBlock)
    assert packet.rows >= 1


@pytest.mark.parametrize("size", [100, 165, 166, 167, 168, 1448, 16_440, 100_000])
@pytest.mark.parametrize("rows", [1, 3])
def test_rows_of_text_are_padded_nearly_to_the_byte(rows, size):
    columns = (("id", "UInt32"), ("name", "String"), ("more", "String"))
    data = Packets(columns, PROBE).encode(Send(part=Part.DATA, rows=rows, size=size))
    assert size - 4 * rows <= len(data) <= size  # a length field may skip a byte in each text
    assert decode(data)[0].rows == rows


def test_rows_of_numbers_fill_the_size_they_can():
    data = Packets((("n", "UInt64"),), PROBE).encode(Send(part=Part.DATA, size=8100))
    assert 8092 <= len(data) <= 8100


def test_rows_are_numbered_on():
    packets = Packets((("n", "UInt8"), ("s", "String"), ("f", "Float64")), PROBE)
    stream = packets.encode(Send(part=Part.DATA, rows=200)) + packets.encode(Send(part=Part.DATA, rows=100))
    first, second = decode(stream)
    assert list(first.block.columns[0].values) == list(range(200))
    assert list(second.block.columns[0].values)[:2] == [200, 201]
    assert list(second.block.columns[0].values)[-1] == 299 % 256
    assert second.block.columns[1].values[0] == "row 200"


def test_too_small_a_size_gives_the_smallest_packet():
    assert decode(Packets((("n", "UInt64"),), PROBE).encode(Send(part=Part.PROFILE_EVENTS, size=5)))[0].rows == 1


def test_opaque_bytes():
    assert opaque(Send(part=Part.OPAQUE, text="+OK\r\n")) == b"+OK\r\n"
    assert opaque(Send(part=Part.OPAQUE, text="+OK", size=5)) == b"+OK.."
    assert opaque(Send(part=Part.OPAQUE, text="+OK", size=2)) == b"+O"


FAULTS = [
    ("", "answer: expected at least one [[answer]]"),
    ("[[answer]]", "answer[1].train: expected an array"),
    ("[[answer]]\ntrain = []", "answer[1].train: expected an array"),
    ('[[answer]]\ntrain = ["hedaer"]', "answer[1].train[1].send: expected one of header, data"),
    ("[[answer]]\ntrain = [3]", "answer[1].train[1]: expected a packet"),
    ("[[answer]]\ntrain = [{ pause = 100 }]", 'answer[1].train[1].pause: expected a duration like "32ms", got 100'),
    ("[[answer]]\ntrain = [{ repeat = 0, train = [] }]", "repeat: expected 1 to"),
    ('[[answer]]\ntrain = [{ repeat = 2000000, train = ["data"] }]', "repeat: expected 1 to"),
    (
        '[[answer]]\ntrain = [{repeat=1000, train=[{repeat=1000, train=[{repeat=1000, train=["data"]}]}]}]',
        "more than 1000000 steps",
    ),
    ('[[answer]]\ntrain = [{ send = "data", row = 1 }]', 'answer[1].train[1].row: no such key; did you mean "rows"?'),
    ('[[answer]]\ntrain = [{ send = "data", bytes = 0 }]', "bytes: expected 1 to"),
    ('[[answer]]\ntrain = [{ send = "data", bytes = "1TB" }]', "bytes: expected"),
    ('[[answer]]\ncolumns = [["a"]]\ntrain = ["data"]', "answer[1].columns: expected pairs"),
    ('[[answer]]\ncolumns = [["a", "UInt63"]]\ntrain = ["data"]', 'answer[1].columns: no type "UInt63" here'),
    ('[[answer]]\nquery = "("\ntrain = ["data"]', "answer[1].query: expected a regular expression"),
    ('revision = 99999\n[[answer]]\ntrain = ["data"]', "revision: expected 54032 to"),
    ('version = "26"\n[[answer]]\ntrain = ["data"]', 'version: expected a version like "26.7.2"'),
    ('protocol = "raw"\n[[answer]]\ntrain = [{ bytes = 5 }]', "request: expected [request]"),
    ('protocol = "raw"\n[request]\nbytes = 5\n[[answer]]\ntrain = ["header"]', 'send: the protocol is "raw"'),
    (
        'protocol = "raw"\n[request]\nbytes = 5\nuntil = "x"\n[[answer]]\ntrain = [{ bytes = 5 }]',
        "either bytes or until",
    ),
    ('protocl = "raw"\n[[answer]]\ntrain = ["data"]', 'protocl: no such key; did you mean "protocol"?'),
    ("[[answer]\n", "not TOML"),
]


@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_faults_say_where_and_what(text, said):
    with pytest.raises(ScenarioError) as caught:
        parse_train(text, "trains/x.toml")
    assert str(caught.value).startswith("trains/x.toml: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "step",
    [
        '{ send = "data", values = [["text"]] }',
        '{ send = "data", values = [[1, 2]] }',
        '{ send = "data", values = [[-1]] }',
    ],
)
def test_values_that_do_not_fit_are_found_before_the_server_starts(step):
    train = parse_train(f"[[answer]]\ntrain = [{{ repeat = 2, train = [{step}] }}]", "t.toml")
    with pytest.raises(ScenarioError, match=r"t\.toml: answer\[1\]\.train"):
        check(train, "t.toml")


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(ScenarioError, match="No such file"):
        load_train(str(tmp_path / "none.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match="not text in UTF-8"):
        load_train(str(tmp_path / "binary.toml"))
    (tmp_path / "large.toml").write_bytes(b"#" * 200_000)
    with pytest.raises(ScenarioError, match="larger than"):
        load_train(str(tmp_path / "large.toml"))


TWO = parse_train(
    '[[answer]]\nquery = "(?i)sleep"\ntrain = ["end_of_stream"]\n[[answer]]\ntrain = ["header", "end_of_stream"]', "t"
)


@pytest.mark.parametrize(
    ("sql", "answer"),
    [
        ("SELECT sleep(1)", 0),
        ("select 1", 1),
        ("-- a comment\n /* another */ (SELECT 1)", 1),
        ("WITH 1 AS x SELECT x", 1),
        ("SHOW TABLES", 1),
    ],
)
def test_queries_find_their_answer(sql, answer):
    assert choose(sql, TWO) is TWO.answers[answer]


@pytest.mark.parametrize(("sql", "code"), [("INSERT INTO t VALUES", 48), ("SELEKT 1", 62), ("", 62), ("\0", 62)])
def test_what_cannot_be_played_is_an_exception(sql, code):
    refusal = choose(sql, TWO)
    assert isinstance(refusal, ServerException)
    assert refusal.code == code


def test_statements_without_rows_end_at_once():
    assert choose("SET max_threads = 1", TWO) is None
    assert choose("CREATE TABLE t (x Int8) ENGINE = Memory", TWO) is None


def test_suggestions_get_one_column_of_text():
    answer = choose("SELECT DISTINCT arrayJoin(extractAll(name, '[\\\\w_]{2,}')) AS res FROM (SELECT name ...)", TWO)
    assert isinstance(answer, Answer)
    assert answer.columns == (("name", "String"),)
    assert all(isinstance(step, Group) for step in answer.steps)


def hello(**changes):
    return ClientHello(**{"name": "x", "major": 1, "minor": 0, "revision": 54464, "user": "default"} | changes)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"user": ""}, None),
        ({"database": "default"}, None),
        ({"database": "nope"}, 81),
        ({"password": "wrong"}, 516),
        ({"user": "alice"}, 516),
        ({"revision": 50000}, 48),
    ],
)
def test_logins(changes, code):
    refusal = refuse(hello(**changes), load_train(None)[0])
    assert (None if refusal is None else refusal.code) == code


def test_refusals_never_repeat_the_password():
    train = parse_train(BUILT_IN + '\n[login]\nuser = "bob"\npassword = "s3cret"\ndatabases = ["d"]', "t")
    assert refuse(hello(user="bob", password="s3cret", database="d"), train) is None
    refusal = refuse(hello(user="bob", password="other-s3cret"), train)
    assert refusal is not None
    assert "s3cret" not in refusal.message


def test_old_versions_refuse_with_their_own_code():
    train = parse_train('version = "18.16.1"\n' + BUILT_IN, "t")
    refusal = refuse(hello(password="x"), train)
    assert refusal is not None
    assert refusal.code == 193


def test_hello_at_every_revision_can_be_read():
    from netlab.native import server

    for revision in (54032, 54412, 54458, 54464, 54471, 54485):
        message = ServerHello(name="ClickHouse", major=26, minor=7, patch=2, revision=54485, timezone="UTC")
        decoder = ServerDecoder(Link(client_revision=revision))
        decoder.feed(server.encode(message, Dialect(revision=revision)))
        assert [event.packet.revision for event in decoder.packets()] == [54485]

"""Scenarios survive being written and read; files of any content give a scenario or one clear error."""

from dataclasses import replace
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from netlab.diagnosis import Cause
from netlab.errors import ScenarioError, UsageError
from netlab.native.blocks import Dialect
from netlab.scenario import (
    Backend,
    Congestion,
    Delivery,
    Emulation,
    Expectation,
    Link,
    Scenario,
    Server,
    ServerKind,
    Tcp,
    Workload,
)
from netlab.scenario_file import dump_scenario, parse_scenario
from netlab.servers.scripted_packets import Packets, spread
from netlab.servers.scripted_train import Part, Send, parse_train
from netlab.units import NS_PER_S
from netlab.validate import check_scenario, parse_server

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAME = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=40)
EMULATIONS = st.builds(
    Emulation,
    delay=st.integers(1, 60 * NS_PER_S),
    jitter=st.just(0),
    loss=st.floats(0, 0.99),
    rate=st.none() | st.integers(1000, 10**12),
    limit=st.integers(1, 10**6),
)
TCPS = st.builds(
    Tcp,
    initcwnd=st.none() | st.integers(1, 1000),
    congestion=st.sampled_from(Congestion),
    slow_start_after_idle=st.booleans(),
    no_metrics_save=st.booleans(),
    autocorking=st.booleans(),
)
LABELS = TEXT.filter(str.strip)
SERVERS = st.one_of(
    st.builds(lambda v: Server(kind=ServerKind.ENGINE, label="e", version=v), st.sampled_from(["26.7", "26.9"])),
    st.builds(
        lambda d, p: Server(kind=ServerKind.SCRIPTED, label="s", delivery=d, path=p),
        st.sampled_from(Delivery),
        st.none() | st.just("/trains/x.toml"),
    ),
    st.builds(
        lambda p: Server(kind=ServerKind.BINARY, label="b", path="/usr/bin/clickhouse", port=p), st.integers(1, 65535)
    ),
    st.builds(
        lambda h, p: Server(kind=ServerKind.REMOTE, label="r", host=h, port=p),
        st.sampled_from(["db", "10.0.0.1", "2001:db8::1"]),
        st.integers(1, 65535),
    ),
)


@st.composite
def scenarios(draw):
    labels = draw(st.lists(LABELS, min_size=1, max_size=3, unique=True))
    servers = tuple(replace(draw(SERVERS), label=label) for label in labels)
    expectation = st.builds(
        Expectation,
        cause=st.none() | st.sampled_from(Cause).map(lambda cause: cause.value),
        extra_round_trips=st.none() | st.integers(0, 9),
    )
    settings_ = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True), TEXT, max_size=3)
    workload = Workload(
        query=draw(TEXT.map(str.strip).filter(bool)),
        count=draw(st.integers(1, 100_000)),
        idle=draw(st.integers(0, 3600 * NS_PER_S)),
        timeout=draw(st.integers(NS_PER_S // 1000, 3600 * NS_PER_S)),
        warmup=draw(st.integers(0, 100)),
        user=draw(NAME),
        database=draw(NAME),
        settings=tuple((k, v) for k, v in draw(settings_).items() if "password" not in k),
    )
    return Scenario(
        name=draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)),
        story=draw(TEXT).strip(),
        link=Link(
            to_client=draw(EMULATIONS),
            to_server=draw(EMULATIONS),
            backend=draw(st.sampled_from(Backend)),
            mtu=draw(st.integers(576, 9000)),
            offloads=draw(st.booleans()),
            seed=draw(st.integers(0, 2**63 - 1)),
        ),
        server_tcp=draw(TCPS),
        client_tcp=draw(TCPS),
        servers=servers,
        workload=workload,
        expectations=tuple((label, draw(expectation)) for label in labels[: draw(st.integers(0, 3))]),
    )


@given(scenarios())
def test_a_dump_reads_back(scenario):
    assume(not any("password" in label.lower() for label, _ in scenario.expectations))
    check_scenario(scenario)
    assert parse_scenario(dump_scenario(scenario), Path("x.toml")) == scenario


# fmt: off
KEYS = [
    "link", "rtt", "delay", "to_client", "server", "use", "train", "workload", "settings", "idle", "expect",
    "loss", "server_tcp", "initcwnd", "name", "story", "answer", "query", "columns", "send", "repeat",
    "pause", "login", "password",
]
# fmt: on
VALUES = st.recursive(
    st.one_of(
        st.integers(-5, 10**20).map(str),
        st.booleans().map(lambda b: str(b).lower()),
        st.sampled_from(
            ['"32ms"', '"scripted"', '"1%"', '"header"', "nan", "inf", "1e400", '""', '"\\u0000"', "1979-05-27"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=3).map(
            lambda items: "{ " + ", ".join(f"{k} = {v}" for k, v in items.items()) + " }"
        ),
    ),
    max_leaves=6,
)
FILES = (
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5).map(
        lambda items: "\n".join(f"{k} = {v}" for k, v in items.items())
    )
    | TEXT
)


@given(FILES)
def test_any_file_gives_a_scenario_or_one_clear_error(text):
    try:
        check_scenario(parse_scenario(text, Path("x.toml")), "x.toml")
    except ScenarioError as error:
        assert str(error).startswith("x.toml: ")


@given(FILES)
def test_any_train_gives_a_train_or_one_clear_error(text):
    try:
        assert parse_train(text, "x.toml").answers
    except ScenarioError as error:
        assert str(error).startswith("x.toml: ")


@given(st.text(max_size=60))
def test_any_spelling_gives_a_server_or_an_error_with_the_next_step(text):
    try:
        assert parse_server(text).label == text
    except UsageError as error:
        assert error.hint


@given(st.integers(0, 200_000), st.integers(1, 50))
def test_texts_fill_their_size_or_miss_it_by_less_than_a_byte_each(size, count):
    texts = spread(size, count)
    taken = sum(len(text) + (1 if len(text) < 128 else 2 if len(text) < 1 << 14 else 3) for text in texts)
    assert len(texts) == count
    if size >= count:
        assert size - count <= taken <= size


@given(st.integers(250, 20_000), st.sampled_from([54451, 54464, 54485]))
def test_profile_events_take_the_size_they_are_given(size, revision):
    packets = Packets((("x", "UInt64"),), Dialect(revision=revision))
    assert len(packets.encode(Send(part=Part.PROFILE_EVENTS, size=size))) == size

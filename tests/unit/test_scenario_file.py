"""Scenario files: what is read, and what every fault says."""

from dataclasses import replace
from pathlib import Path

import pytest

from netlab.errors import ScenarioError, UsageError
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
)
from netlab.scenario_file import dump_scenario, exact_duration, load_scenario, parse_scenario
from netlab.units import ms, seconds, us
from netlab.validate import check_scenario, parse_server, scripted_label

SHIPPED = sorted(Path(__file__).parents[2].joinpath("scenarios").glob("*.toml"))


def read(text, path="scenarios/idle.toml"):
    return parse_scenario(text, Path(path))


def test_an_empty_file_is_the_default_scenario():
    assert read("") == replace(Scenario(), name="idle")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios(path):
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.story
    assert path.read_text().startswith("# ")
    assert {label for label, _ in scenario.expectations} == {server.label for server in scenario.servers}
    assert scenario.link.to_client.delay == ms(32)


def test_the_article_is_shipped_with_the_defaults_of_the_code():
    article = load_scenario(next(path for path in SHIPPED if path.stem == "idle-window-restart"))
    assert (article.link, article.server_tcp, article.servers, article.workload) == (
        Scenario().link,
        Scenario().server_tcp,
        Scenario().servers,
        Scenario().workload,
    )
    assert dict(article.expectations)["clickhouse:26.7"] == Expectation(
        cause="idle_window_restart", extra_round_trips=1
    )


def test_every_key():
    scenario = read(
        """
        name = "all"
        story = " A story. "
        [link]
        backend = "relay"
        mtu = 1400
        offloads = true
        seed = 7
        [link.to_client]
        delay = "10ms"
        jitter = "150us"
        loss = "1%"
        rate = "100mbit"
        limit = 9
        [link.to_server]
        delay = "5ms"
        loss = 0.25
        [server_tcp]
        initcwnd = 4
        congestion = "bbr"
        slow_start_after_idle = false
        no_metrics_save = false
        autocorking = true
        [client_tcp]
        initcwnd = 3
        [[server]]
        use = "clickhouse:26.9"
        port = 9100
        [[server]]
        use = "scripted"
        train = "trains/x.toml"
        delivery = "cork"
        [[server]]
        use = "../bin/clickhouse"
        label = "mine"
        [workload]
        query = " SELECT 1 "
        count = 2
        idle = "0"
        timeout = "1.5s"
        warmup = 0
        user = "u"
        database = "d"
        settings = { max_threads = 2, send_profile_events = false, network_compression_method = "lz4", x = 0.5 }
        [expect.mine]
        extra_round_trips = 0
        """
    )
    assert scenario == Scenario(
        name="all",
        story="A story.",
        link=Link(
            to_client=Emulation(delay=ms(10), jitter=us(150), loss=0.01, rate=100_000_000, limit=9),
            to_server=Emulation(delay=ms(5), loss=0.25),
            backend=Backend.RELAY,
            mtu=1400,
            offloads=True,
            seed=7,
        ),
        server_tcp=Tcp(
            initcwnd=4,
            congestion=Congestion.BBR,
            slow_start_after_idle=False,
            no_metrics_save=False,
            autocorking=True,
        ),
        client_tcp=Tcp(initcwnd=3),
        servers=(
            Server(kind=ServerKind.ENGINE, label="clickhouse:26.9", version="26.9", port=9100),
            Server(
                kind=ServerKind.SCRIPTED,
                label="scripted:trains/x.toml:cork",
                path="scenarios/trains/x.toml",
                delivery=Delivery.CORK,
            ),
            Server(kind=ServerKind.BINARY, label="mine", path="scenarios/../bin/clickhouse"),
        ),
        workload=replace(
            Scenario().workload,
            query="SELECT 1",
            count=2,
            idle=0,
            timeout=ms(1500),
            warmup=0,
            user="u",
            database="d",
            settings=(
                ("max_threads", "2"),
                ("send_profile_events", "0"),
                ("network_compression_method", "lz4"),
                ("x", "0.5"),
            ),
        ),
        expectations=(("mine", Expectation(extra_round_trips=0)),),
    )


def test_the_links_own_keys_speak_of_the_servers_egress():
    link = read('[link]\nrtt = "80ms"\njitter = "1ms"\nlimit = 99').link
    assert link.to_client == Emulation(delay=ms(80), jitter=ms(1), limit=99)
    assert link.to_server == Emulation(limit=99)
    assert read('[link]\ndelay = "80ms"').link.to_client.delay == ms(80)


@pytest.mark.parametrize(("text", "delays"), [('rtt = "31ms"\n', (us(15_500), us(15_500))), ("", (ms(16), ms(16)))])
def test_split_halves_the_round_trip(text, delays):
    link = read(f"[link]\n{text}split = true").link
    assert (link.to_client.delay, link.to_server.delay) == delays
    odd = read('[link]\nrtt = "3ns"\nsplit = true').link
    assert odd.rtt == 3


def test_initcwnd_can_be_the_kernels_own():
    assert read('[server_tcp]\ninitcwnd = "kernel"').server_tcp.initcwnd is None


FAULTS = [
    ("[link]\ndelay = 32", 'link.delay: expected a duration like "32ms", got 32'),
    ('[link]\nrtt = "32"', 'link.rtt: expected a duration like "32ms", got "32"'),
    ('[link]\nrtt = "0"', "link.rtt: expected a duration longer than zero"),
    ('[link]\nrtt = "61s"', "link.to_client.delay: expected 0s to 60s, got 61s"),
    ('[link]\nrtt = "-5ms"', "link.rtt: expected a duration"),
    ("[link]\nrtt = true", 'link.rtt: expected a duration like "32ms", got true'),
    ('[link]\nrrt = "5ms"', 'link.rrt: no such key; did you mean "rtt"?'),
    ("link = 3", "link: expected a table, got 3"),
    ('[link]\nbackend = "tun"', 'link.backend: expected one of auto, netem, relay, got "tun"'),
    ("[link]\nmtu = 575", "link.mtu: expected 576 to 9000 bytes, got 575"),
    ("[link]\nmtu = 9001", "link.mtu: expected 576 to 9000"),
    ("[link]\nmtu = 1500.5", "link.mtu: expected a whole number, got 1500.5"),
    ("[link]\nseed = true", "link.seed: expected a whole number, got true"),
    ("[link]\noffloads = 1", "link.offloads: expected true or false, got 1"),
    ('[link]\nloss = "101%"', "link.loss: expected a fraction"),
    ("[link]\nloss = 1.5", "link.loss: expected a fraction"),
    ("[link]\nloss = nan", "link.loss: expected a fraction"),
    ('[link]\nloss = "100%"', "link.to_client.loss: expected 0 to less than 100%"),
    ('[link]\njitter = "33ms"', "link.to_client.jitter: expected at most the delay"),
    ('[link]\nrate = "1bit"', "link.to_client.rate: expected at least 1kbit"),
    ("[link]\nrate = 5", 'link.rate: expected a rate like "100mbit", got 5'),
    ("[link]\nlimit = 0", "link.to_client.limit: expected 1 to 1000000, got 0"),
    ('[link]\nrtt = "5ms"\ndelay = "5ms"', "link.delay: given twice: link.rtt says it too"),
    ('[link]\nrtt = "5ms"\n[link.to_client]\ndelay = "5ms"', "link.to_client.delay: given twice: link.rtt says it too"),
    ('[link]\nloss = "5%"\n[link.to_client]\nloss = "5%"', "link.to_client.loss: given twice: link.loss says it too"),
    ('[link]\nsplit = true\n[link.to_server]\ndelay = "5ms"', "link.split: expected no delay beside it"),
    ('[link.to_server]\nrtt = "5ms"', "link.to_server.rtt: no such key"),
    ("[server_tcp]\ninitcwnd = 0", "server_tcp.initcwnd: expected 1 to 1000, got 0"),
    ("[server_tcp]\ninitcwnd = 1001", "server_tcp.initcwnd: expected 1 to 1000, got 1001"),
    ('[server_tcp]\ninitcwnd = "8"', 'server_tcp.initcwnd: expected a whole number, got "8"'),
    ('[server_tcp]\ncongestion = "vegas"', 'server_tcp.congestion: expected one of cubic, reno, bbr, got "vegas"'),
    ("[server_tcp]\nslow_start = true", 'server_tcp.slow_start: no such key; did you mean "slow_start_after_idle"?'),
    ('[[server]]\nuse = "clickhouse:25.1"', 'server[1].use: no engine "25.1" (pinned engines: 26.7, 26.9)'),
    ('[[server]]\nuse = "nonsense"', 'server[1].use: no server "nonsense"'),
    ("[[server]]\nport = 9000", 'server[1].use: expected a server like "clickhouse:26.7"'),
    (
        '[[server]]\nuse = "scripted"\n[[server]]\nuse = "scripted"',
        'server: expected different servers, got "scripted" twice',
    ),
    (
        '[[server]]\nuse = "scripted"\ndelivery = "slow"',
        "server[1].delivery: expected one of nodelay, batched, cork, nagle",
    ),
    ('[[server]]\nuse = "clickhouse:26.7"\ntrain = "x.toml"', "server[1].train: no such key"),
    ('[[server]]\nuse = "scripted:a.toml"\ntrain = "b.toml"', "server[1].train: given twice"),
    ('[[server]]\nuse = "h:9000"\nport = 9001', 'server[1].port: the port stands in use = "h:9000"'),
    ('[[server]]\nuse = "scripted"\nport = 0', "server.port: expected 1 to 65535, got 0"),
    ('[server]\nuse = "scripted"', "server: expected tables, each under [[server]], got a table"),
    ("server = [1]", "server: expected tables, each under [[server]]"),
    ("[workload]\ncount = 0", "workload.count: expected 1 to 100000, got 0"),
    ("[workload]\nwarmup = -1", "workload.warmup: expected 0 to 100000, got -1"),
    ('[workload]\nidle = "-2s"', 'workload.idle: expected a duration like "32ms", got "-2s"'),
    ('[workload]\nidle = "2h"', "workload.idle: expected a duration"),
    ('[workload]\nidle = "61m"', "workload.idle: expected 0s to 3600s"),
    ('[workload]\ntimeout = "0"', "workload.timeout: expected 1ms to 3600s, got 0s"),
    ('[workload]\nquery = " "', "workload.query: expected SQL, got nothing"),
    ("[workload]\nquery = 5", "workload.query: expected text in quotes, got 5"),
    ("[workload]\nquery = 2026-01-01", "workload.query: expected text in quotes, got 2026-01-01"),
    ('[workload]\nuser = "a\\nb"', "workload.user: expected a name of at most 255 printable characters"),
    ("[workload]\nsettings = [1]", "workload.settings: expected a table, got an array"),
    ("[workload.settings]\nx = []", "workload.settings.x: expected a number, a text, true or false"),
    ('[workload.settings]\n"a b" = 1', "workload.settings.a b: expected a setting's name"),
    ("[workload]\nidel = 1", 'workload.idel: no such key; did you mean "idle"?'),
    ("[workloda]\nidle = 1", 'workloda: no such key; did you mean "workload"?'),
    (
        '[expect."clickhouse:26.8"]\ncause = "pacing"',
        "expect.clickhouse:26.8: no such server here; servers: clickhouse:26.7",
    ),
    ('[expect."clickhouse:26.7"]\ncause = "idle"', "expect.clickhouse:26.7.cause: expected one of idle_window_restart"),
    ('[expect."clickhouse:26.7"]\nextra_round_trips = -1', "extra_round_trips: expected 0 or more, got -1"),
    ('name = "../x"', 'name: expected a short name like "idle-window-restart", got "../x"'),
    ("name = 5", "name: expected text in quotes, got 5"),
    ("x = ", "not TOML: Invalid value (at end of document)"),
    ("[link]\n[link]", "not TOML:"),
    ("a = " + "[" * 5000, "nested too deeply"),
]


@pytest.mark.parametrize(("text", "said"), FAULTS, ids=[text.replace("\n", " ")[:60] for text, _ in FAULTS])
def test_faults_say_file_key_and_form(text, said):
    with pytest.raises(ScenarioError) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith("scenarios/idle.toml: ")
    assert said in message
    assert "\n" not in message.replace(text, "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        '[workload]\npassword = "hunter2"',
        '[[server]]\nuse = "scripted"\npassword = "hunter2"',
        'password = "hunter2"',
        '[workload.settings]\nPassword = "hunter2"',
    ],
)
def test_passwords_are_refused_and_not_repeated(text):
    with pytest.raises(ScenarioError, match="a password does not belong in a scenario file") as caught:
        read(text)
    assert "NETLAB_PASSWORD" in str(caught.value)
    assert "--password-file" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    cases = [(tmp_path / "none.toml", "No such file"), (tmp_path, "Is a directory")]
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    (tmp_path / "large.toml").write_bytes(b"#" * 200_000)
    cases += [(tmp_path / "bytes.toml", "not text in UTF-8"), (tmp_path / "large.toml", "larger than")]
    cases += [(Path("a\0b"), "null")]
    for path, said in cases:
        with pytest.raises(ScenarioError) as caught:
            load_scenario(path)
        assert said in str(caught.value)


def test_flags_get_the_same_sentences():
    with pytest.raises(ScenarioError, match=r"^server_tcp\.initcwnd: expected 1 to 1000, got 0"):
        check_scenario(replace(Scenario(), server_tcp=Tcp(initcwnd=0)))


SPELLINGS = [
    ("clickhouse:26.7", Server(kind=ServerKind.ENGINE, label="clickhouse:26.7", version="26.7")),
    ("scripted", Server(kind=ServerKind.SCRIPTED, label="scripted")),
    ("scripted:nagle", Server(kind=ServerKind.SCRIPTED, label="scripted:nagle", delivery=Delivery.NAGLE)),
    ("scripted:a/b.toml", Server(kind=ServerKind.SCRIPTED, label="scripted:a/b.toml", path="a/b.toml")),
    (
        "scripted:b.toml:batched",
        Server(kind=ServerKind.SCRIPTED, label="scripted:b.toml:batched", path="b.toml", delivery=Delivery.BATCHED),
    ),
    ("/usr/bin/clickhouse", Server(kind=ServerKind.BINARY, label="/usr/bin/clickhouse", path="/usr/bin/clickhouse")),
    ("./a:9000", Server(kind=ServerKind.BINARY, label="./a:9000", path="./a:9000")),
    ("db.example:9000", Server(kind=ServerKind.REMOTE, label="db.example:9000", host="db.example", port=9000)),
    ("[2001:db8::1]:1", Server(kind=ServerKind.REMOTE, label="[2001:db8::1]:1", host="2001:db8::1", port=1)),
]


@pytest.mark.parametrize(("text", "server"), SPELLINGS, ids=[text for text, _ in SPELLINGS])
def test_servers_are_spelt(text, server):
    assert parse_server(text) == server
    if server.kind is ServerKind.SCRIPTED:
        assert scripted_label(server.path, server.delivery) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "clickhouse",
        "clickhouse:",
        "clickhouse:1",
        "scripted:fast",
        "scripted:x",
        "host",
        "host:0",
        "host:65536",
        ":9000",
        "2001:db8::1:9000",
        "a b:1",
        "host:９",
    ],
)
def test_what_is_no_server_lists_the_spellings(text):
    with pytest.raises(UsageError) as caught:
        parse_server(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("duration", "text"),
    [(0, "0s"), (ms(32), "32ms"), (seconds(120), "120s"), (1_234_567, "1234567ns"), (us(15), "15us")],
)
def test_durations_are_dumped_exactly(duration, text):
    assert exact_duration(duration) == text


def test_dumps_name_every_default():
    text = dump_scenario(Scenario())
    for key in ("rtt", "password"):
        assert key not in text
    for key in ("jitter", "autocorking", "warmup", "no_metrics_save", "seed"):
        assert f"{key} = " in text

"""Real servers in a real lab: both engines and the distribution's 18.16, and every way in which they fail to serve."""

import os
import re
import shutil
import signal
import socket

import pytest

from netlab.errors import RemoteProtocolError, ServerError
from netlab.lab import Lab
from netlab.native.blocks import Values
from netlab.native.connection import Connection, Login
from netlab.native.messages import ServerBlock, ServerException, ServerHello
from netlab.scenario import Emulation, Link, Server, ServerKind
from netlab.servers import child, engine
from netlab.servers.interface import start
from netlab.units import ms, seconds
from netlab.wire import ServerPacket

pytestmark = [pytest.mark.lab, pytest.mark.engine]

USERS = """<clickhouse><profiles><default/></profiles><users>
<default><password/><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota></default>
<ali><password>sesame</password><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota></ali>
</users>
<quotas><default/></quotas></clickhouse>"""
BOTH = pytest.mark.parametrize("version", ["26.7", "26.9"])
DEBIANS = "/usr/sbin/clickhouse-server"


@pytest.fixture(scope="module")
def lab():
    with Lab(Link(to_client=Emulation(delay=ms(1)))) as built:
        yield built


@pytest.fixture
def run(lab, tmp_path):
    """Start servers that end with the test."""
    started = []

    def begin(server, **options):
        log = str(tmp_path / f"{len(started)}.log")
        running = engine.start(server, lab.server, log, **options) if options else start(server, lab.server, log)
        started.append(running)
        return running

    yield begin
    for running in started:
        running.close()


def an_engine(version, port=9000):
    return Server(kind=ServerKind.ENGINE, label=f"clickhouse:{version}", version=version, port=port)


def a_binary(path=DEBIANS):
    return Server(kind=ServerKind.BINARY, label=str(path), path=str(path))


class Answer(Exception):
    """A server's Exception packet."""


def login(lab, running, **who):
    """Log in from the client's end; return the socket and the connection."""
    line = lab.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    line.settimeout(20)
    line.connect((running.address, running.port))
    connection = Connection(Login(**who), Values.READ)
    line.sendall(connection.hello_bytes())
    for packet in packets(line, connection):
        if isinstance(packet, ServerHello):
            line.sendall(connection.addendum_bytes())
            return line, connection
    raise AssertionError("no Hello")


def packets(line, connection):
    while True:
        data = line.recv(65536)
        for event in connection.receive(data):
            if isinstance(event.packet, ServerException):
                line.close()
                raise Answer(event.packet.message)
            yield event.packet
            if event.kind is ServerPacket.END_OF_STREAM:
                return
        if not data:
            line.close()
            raise RemoteProtocolError("closed")


def ask(lab, running, sql, **who):
    """Return the first row of the answer to `sql`."""
    line, connection = login(lab, running, **who)
    with line:
        line.sendall(connection.query_bytes(sql))
        rows = [
            tuple(column.values[0] for column in packet.block.columns)
            for packet in packets(line, connection)
            if isinstance(packet, ServerBlock) and packet.kind is ServerPacket.DATA and packet.rows
        ]
    return rows[0]


def ended(running):
    """Wait until the server's process is gone; return why it says it is."""
    assert running._child.wait(seconds(20)) is not None
    return running.failure()


@BOTH
def test_an_engine_answers_with_the_articles_table(lab, run, version):
    running = run(an_engine(version))
    assert running.version == engine.PINNED[version].clickhouse
    assert (running.address, running.port) == (lab.server.address, 9000)
    assert running.alive()
    assert running.failure() is None
    assert ask(lab, running, "SELECT version()")[0] == running.version
    table = "SELECT count(), min(id), max(id), sum(cityHash64(name, value, created)) FROM benchmark_test"
    assert ask(lab, running, table)[:3] == (939, 0, 938)
    parts = "SELECT toUInt64(sum(rows)), min(disk_name) FROM system.parts WHERE active AND table = 'benchmark_test'"
    assert ask(lab, running, parts) == (939, "default")
    logs = "SELECT toUInt8(count()) FROM system.tables WHERE name LIKE '%\\_log' AND engine LIKE '%MergeTree'"
    assert ask(lab, running, logs) == (0,)
    running.close()
    assert not running.alive()
    running.close()


def test_the_table_is_the_same_on_every_server(lab, run):
    what = "count(), sum(id), toInt64(sum(value) * 1000), max(name), toUInt64(max(toUInt32(created)))"
    query = f"SELECT {what} FROM benchmark_test"
    answers = []
    for server in (an_engine("26.7"), an_engine("26.9"), a_binary()):
        running = run(server)
        answers.append(ask(lab, running, query))
        running.close()
    assert answers[0] == answers[1] == answers[2]


def test_two_engines_serve_side_by_side(lab, run):
    one, other = run(an_engine("26.7")), run(an_engine("26.9", port=9001))
    assert [ask(lab, s, "SELECT max(id) FROM benchmark_test") for s in (one, other)] == [(938,), (938,)]


@BOTH
def test_a_killed_engine_says_so(run, version):
    running = run(an_engine(version))
    running._child.kill()
    assert ended(running).startswith("killed by signal 9")
    assert not running.alive()


@BOTH
def test_an_engine_ends_on_sigterm_and_when_its_owner_is_gone(run, version):
    running = run(an_engine(version))
    running._child.terminate()
    assert ended(running).startswith("exit status 0")
    running = run(an_engine(version))
    running._owned.close()  # what happens to the lifeline when the owner dies
    assert ended(running).startswith("exit status 0")


def test_a_failed_login_aborts_26_7_and_the_reason_is_told(lab, run):
    running = run(an_engine("26.7"))
    with pytest.raises((Answer, RemoteProtocolError, OSError)):
        ask(lab, running, "SELECT 1", user="nobody")
    assert "killed by signal 6 (this engine aborts when a login fails" in ended(running)


def test_a_failed_login_does_not_hurt_26_9(lab, run):
    running = run(an_engine("26.9"))
    with pytest.raises(Answer, match="Authentication failed"):
        ask(lab, running, "SELECT 1", password="wrong")
    assert ask(lab, running, "SELECT 1") == (1,)


@BOTH
def test_users_of_our_own(lab, run, version):
    running = run(an_engine(version), users=USERS)
    assert ask(lab, running, "SELECT max(id) FROM benchmark_test", user="ali", password="sesame") == (938,)


@BOTH
def test_an_engine_serves_http_where_asked(lab, run, version):
    running = run(an_engine(version), http_port=8123)
    with lab.client.socket(socket.AF_INET, socket.SOCK_STREAM) as line:
        line.settimeout(20)
        line.connect((running.address, 8123))
        line.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
        assert line.makefile("rb").read().endswith(b"Ok.\n")


def test_a_taken_port_is_found_before_anything_starts(lab, run, tmp_path):
    with lab.server.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((lab.server.address, 9000))
        holder.listen()
        for server in (an_engine("26.7"), an_engine("26.9"), a_binary()):
            with pytest.raises(ServerError, match=rf"{re.escape(lab.server.address)}:9000 is in use"):
                run(server)
    assert not any(tmp_path.iterdir())


class Elsewhere:
    """A host whose scratch is another folder."""

    def __init__(self, host, scratch):
        self._host, self.scratch = host, scratch

    def __getattr__(self, name):
        return getattr(self._host, name)


@pytest.mark.parametrize("server", [an_engine("26.7"), a_binary()], ids=["engine", "binary"])
def test_a_folder_that_cannot_be_written_is_named(lab, server, tmp_path):
    with pytest.raises(
        ServerError, match=r"exit status 73; its log ends: .*no folder for the data below /proc/1"
    ) as told:
        start(server, Elsewhere(lab.server, "/proc/1"), str(tmp_path / "log"))
    assert str(tmp_path / "log") in told.value.hint


def test_an_engine_that_cannot_be_imported_gives_its_last_words(lab, tmp_path, monkeypatch):
    folder = engine.folder_of("26.7")
    broken = tmp_path / "engines" / "26.7"
    (broken / "chdb").mkdir(parents=True)
    (broken / "chdb/__init__.py").write_text("raise ImportError('libfoo.so.1: no such file')\n")
    shutil.copy(folder / "netlab-manifest.json", broken)
    monkeypatch.setenv("NETLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(engine, "is_touched", lambda _version: False)
    with pytest.raises(ServerError, match=r"did not start: exit status 70; its log ends: .*libfoo.so.1: no such file"):
        start(an_engine("26.7"), lab.server, str(tmp_path / "log"))


def test_an_engine_that_never_gets_ready_is_ended(lab, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_READY", ms(1))
    with pytest.raises(ServerError, match=r"clickhouse:26\.7 was not ready after 1ms"):
        start(an_engine("26.7"), lab.server, str(tmp_path / "log"))
    assert not any(b"engine_child" in line for line in lab.server.run(["ps", "-eo", "args"]).stdout.splitlines())


def test_debians_server_serves(lab, run):
    running = run(a_binary())
    assert running.version == "18.16.1"
    assert ask(lab, running, "SELECT count(), max(id) FROM benchmark_test") == (939, 938)
    with pytest.raises(Answer, match="Wrong password"):
        ask(lab, running, "SELECT 1", password="wrong")
    assert running.alive()
    running._child.kill()
    assert ended(running).startswith("killed by signal 9")


def pretender(folder, body):
    path = folder / "clickhouse-server"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo ClickHouse && exit\n{body}\n')
    path.chmod(0o755)
    return path


def test_a_binary_that_ends_at_once_gives_its_last_words(lab, tmp_path):
    path = pretender(tmp_path, "echo DB::Exception: no luck today >&2; exit 42")
    with pytest.raises(ServerError, match="did not start: exit status 42; its log ends: DB::Exception: no luck today"):
        start(a_binary(path), lab.server, str(tmp_path / "log"))


def test_a_server_that_ignores_sigterm_is_killed(lab, tmp_path, monkeypatch):
    monkeypatch.setattr(child, "_GRACE", ms(200))
    log = str(tmp_path / "log")
    body = "trap '' TERM; echo ready >&3; while :; do read -r _ < /dev/zero; done"
    stubborn = child.ChildServer(lab.server, "stubborn", 9009, log)
    stubborn.launch(["/bin/sh", "-c", body], env=dict(os.environ), patience=seconds(20))
    stubborn.close()
    assert stubborn.failure().startswith(f"killed by signal {int(signal.SIGKILL)}")


def test_starting_and_ending_leaves_no_descriptor_and_no_process(lab, run):
    def left():
        return lab.server.run(["ps", "-eo", "args"]).stdout.count(b"clickhouse-")

    run(an_engine("26.9")).close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run(an_engine("26.9")).close()
    assert left() == 0
    # The lab keeps a descriptor per process until it ends; nothing else may stay.
    assert len(os.listdir("/proc/self/fd")) - before <= 3 + 1


def test_the_ready_check_is_not_answered_by_another_server(lab, run):
    first = run(an_engine("26.9"))
    with pytest.raises(ServerError, match="is in use"):
        run(an_engine("26.7"))
    assert ask(lab, first, "SELECT 1") == (1,)

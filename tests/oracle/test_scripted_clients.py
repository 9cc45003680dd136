"""Real clients against the scripted server: clickhouse-driver, Debian's clickhouse-client; and hostile ones."""

import os
import select
import shutil
import socket as sockets
import struct
import subprocess
from contextlib import ExitStack, contextmanager
from itertools import pairwise

import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import ServerException
from loopback import LoopbackHost, free_port

from netlab.errors import ScenarioError, ServerError
from netlab.native import client, wire
from netlab.native.blocks import Dialect
from netlab.native.compression import Method
from netlab.native.connection import Connection, Login
from netlab.native.messages import Setting
from netlab.scenario import Delivery, Server, ServerKind
from netlab.servers import scripted
from netlab.wire import ServerPacket

WAIT = 60
ROWS_TRAIN = """
[[answer]]
columns = [["id", "UInt64"], ["name", "String"], ["share", "Float64"]]
train = [
  "header",
  { send = "log", text = "a line" },
  { send = "data", rows = 3 },
  { send = "data", values = [[7, "seven", 0.7]] },
  "profile_info", "progress", "profile_events", "empty_data", "end_of_stream",
]
"""


class Bench:
    """Starts servers on loopback and ends them."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.stack = stack
        self.log = str(folder / "server.log")

    def start(self, train=None, delivery=Delivery.NODELAY, **more):
        path = None
        if train is not None:
            path = str(self.folder / "train.toml")
            (self.folder / "train.toml").write_text(train)
        server = Server(kind=ServerKind.SCRIPTED, label="scripted", path=path, delivery=delivery, port=free_port())
        running = scripted.start(server, LoopbackHost(self.folder), self.log, **more)
        self.stack.callback(running.close)
        return running

    def sends(self, query=1, connection=1):
        return [s for s in scripted.read_log(self.log) if (s.query, s.connection) == (query, connection)]


@pytest.fixture
def bench(tmp_path):
    with ExitStack() as stack:
        yield Bench(tmp_path, stack)


@contextmanager
def driver(running, **more):
    made = Client(running.address, port=running.port, send_receive_timeout=WAIT, **more)
    try:
        yield made
    finally:
        made.disconnect()


def command_line(running, *more):
    tool = shutil.which("clickhouse-client")
    assert tool, "clickhouse-client is missing: apt-get install clickhouse-client"
    argv = [tool, "--host", running.address, "--port", str(running.port), *more]
    return subprocess.run(argv, capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL)


def connect(running):
    return sockets.create_connection((running.address, running.port), timeout=WAIT)


def read_to_end(connection):
    """Return what came until the server closed; a reset counts as that."""
    got = b""
    try:
        while data := connection.recv(65536):
            got += data
    except ConnectionResetError:
        pass
    return got


class Asker:
    """A Native client over a plain socket."""

    def __init__(self, running, revision=54464):
        self.socket = connect(running)
        self.machine = Connection(Login(revision=revision))
        self.socket.sendall(self.machine.hello_bytes())
        self.until(ServerPacket.HELLO)
        self.socket.sendall(self.machine.addendum_bytes())

    def until(self, *kinds):
        seen = []
        while True:
            data = self.socket.recv(65536)
            for event in self.machine.receive(data):
                seen.append(event)
                if event.kind in kinds:
                    return seen
            assert data, f"the server closed after {[event.kind for event in seen]}"

    def ask(self, sql="SELECT 1", **more):
        self.socket.sendall(self.machine.query_bytes(sql, **more))
        return self.until(ServerPacket.END_OF_STREAM, ServerPacket.EXCEPTION)


@pytest.mark.parametrize("delivery", list(Delivery))
def test_clickhouse_driver_gets_the_rows(bench, delivery):
    with driver(bench.start(delivery=delivery)) as asker:
        for _ in range(3):
            assert asker.execute("SELECT max(id) FROM benchmark_test", settings={"max_threads": 2}) == [(938,)]
        assert asker.last_query.progress.rows >= 1


@pytest.mark.parametrize("compression", [False, True])
def test_clickhouse_driver_reads_every_type(bench, compression):
    with driver(bench.start(ROWS_TRAIN), compression=compression) as asker:
        rows = asker.execute("SELECT * FROM t", settings={"send_logs_level": "trace"})
    assert rows == [(0, "row 0", 0.0), (1, "row 1", 1.0), (2, "row 2", 2.0), (7, "seven", 0.7)]


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("compression", ["0", "1"])
def test_debians_client_prints_the_rows(bench, delivery, compression):
    done = command_line(bench.start(ROWS_TRAIN, delivery), "--compression", compression, "--query", "SELECT * FROM t")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["0\trow 0\t0", "1\trow 1\t1", "2\trow 2\t2", "7\tseven\t0.7"]


def test_debians_client_with_settings_and_several_queries(bench):
    done = command_line(
        bench.start(), "--multiquery", "--max_threads", "3", "--query", "SET max_threads = 1; SELECT 1; SELECT 2"
    )
    assert (done.returncode, done.stdout) == (0, "938\n938\n")


@pytest.mark.parametrize(
    ("delivery", "writes"),
    [
        (Delivery.NODELAY, [28, 36, 8, 11, 2016, 12, 10, 1]),
        (Delivery.NAGLE, [28, 36, 8, 11, 2016, 12, 10, 1]),
        (Delivery.CORK, [28, 36, 8, 11, 2016, 12, 10, 1]),
        (Delivery.BATCHED, [28, 36, 2058]),
    ],
)
def test_the_log_tells_every_send(bench, delivery, writes):
    running = bench.start(delivery=delivery)
    Asker(running).ask()
    running.close()
    sent = bench.sends()
    assert [each.size for each in sent] == writes
    assert all(a.at <= b.at for a, b in pairwise(sent))


def test_settings_leave_packets_out(bench):
    asker = Asker(bench.start(ROWS_TRAIN))
    kinds = {event.kind for event in asker.ask(settings={"send_profile_events": "0"})}
    assert not kinds & {ServerPacket.PROFILE_EVENTS, ServerPacket.LOG}
    kinds = {event.kind for event in asker.ask(settings={"send_logs_level": "trace"})}
    assert kinds >= {ServerPacket.PROFILE_EVENTS, ServerPacket.LOG}


@pytest.mark.parametrize("revision", [54412, 54429, 54448, 54464, 54472, 54485])
def test_our_own_client_at_any_revision(bench, revision):
    asker = Asker(bench.start(ROWS_TRAIN), revision)
    for compression in (None, Method.LZ4, Method.NONE):
        last = asker.ask(compression=compression)[-1]
        assert last.kind is ServerPacket.END_OF_STREAM


def test_chunked_framing(bench):
    asker = Asker(bench.start('framing = "chunked"\n' + ROWS_TRAIN), 54485)
    for _ in range(2):
        assert asker.ask()[-1].kind is ServerPacket.END_OF_STREAM


def test_wrong_logins_are_refused_and_the_right_one_goes_on(bench):
    running = bench.start(password="right")
    for more in ({"password": "wrong"}, {"user": "alice", "password": "right"}):
        with driver(running, **more) as asker, pytest.raises(ServerException) as caught:
            asker.execute("SELECT 1")
        assert caught.value.code == 516
    with driver(running, password="right", database="nope") as asker, pytest.raises(ServerException) as caught:
        asker.execute("SELECT 1")
    assert caught.value.code == 81
    with driver(running, password="right") as asker:
        assert asker.execute("SELECT 1") == [(938,)]
    with open(f"/proc/{running.pid}/cmdline", "rb") as file:
        assert b"right" not in file.read()
    with open(bench.log) as file:
        assert "right" not in file.read()


def test_exceptions_leave_the_connection_usable(bench):
    with driver(bench.start()) as asker:
        for sql, code in (("SELEKT 1", 62), ("INSERT INTO t VALUES", 48)):
            with pytest.raises(ServerException) as caught:
                asker.execute(sql, [(1,)] if sql.startswith("INSERT") else None)
            assert caught.value.code == code
        assert asker.execute("SELECT 1") == [(938,)]


def test_a_train_can_end_in_an_exception(bench):
    text = '[[answer]]\ntrain = ["header", { send = "exception", code = 241, text = "Memory limit exceeded" }]'
    with driver(bench.start(text)) as asker, pytest.raises(ServerException, match="Memory limit") as caught:
        asker.execute("SELECT 1")
    assert caught.value.code == 241


def test_a_cancel_ends_a_long_answer(bench):
    text = (
        '[[answer]]\ntrain = ["header", { repeat = 100000, train = [{ pause = "20ms" }, "progress"] }, "end_of_stream"]'
    )
    asker = Asker(bench.start(text))
    asker.socket.sendall(asker.machine.query_bytes("SELECT 1"))
    asker.until(ServerPacket.PROGRESS)
    asker.socket.sendall(asker.machine.cancel_bytes())
    asker.until(ServerPacket.END_OF_STREAM)
    asker.socket.sendall(asker.machine.ping_bytes())
    asker.until(ServerPacket.PONG)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_train_can_leave_in_the_middle(bench, how):
    text = f'[[answer]]\ntrain = ["header", {{ disconnect = "{how}" }}]'
    running = bench.start(text)
    asker = Asker(running)
    asker.socket.sendall(asker.machine.query_bytes("SELECT 1"))
    assert len(read_to_end(asker.socket)) <= 28
    assert running.alive()


def test_a_train_can_end_the_server(bench):
    running = bench.start('[[answer]]\ntrain = ["header", { disconnect = "exit" }]')
    asker = Asker(running)
    asker.socket.sendall(asker.machine.query_bytes("SELECT 1"))
    read_to_end(asker.socket)
    assert running._child.wait(WAIT * 10**9) == 3
    assert "its train ends it" in (running.failure() or "")


def test_raw_requests_of_a_size_and_of_a_line(bench):
    text = 'protocol = "raw"\n[request]\nbytes = 10\n[[answer]]\ntrain = [{ repeat = 3, train = [{ bytes = 50 }] }]'
    with connect(bench.start(text)) as asker:
        asker.sendall(b"0123456789" * 2)  # two requests at once
        asker.shutdown(sockets.SHUT_WR)
        assert len(read_to_end(asker)) == 300
    text = (
        'protocol = "raw"\n[request]\nuntil = "\\r\\n"\n'
        '[[answer]]\nquery = "^GET"\ntrain = [{ text = "$1\\r\\nx\\r\\n" }]\n'
        '[[answer]]\ntrain = [{ text = "+OK\\r\\n" }]'
    )
    with connect(bench.start(text)) as asker:
        for request, reply in ((b"PING\r\n", b"+OK\r\n"), (b"GET a\r\n", b"$1\r\nx\r\n"), (b"PING\r\n", b"+OK\r\n")):
            for byte in request:
                asker.send(bytes([byte]))
            got = b""
            while len(got) < len(reply):
                got += asker.recv(100)
            assert got == reply


def hello_bytes(revision=54464):
    return Connection(Login(revision=revision)).hello_bytes()


def query_head():
    """A Query up to its settings."""
    query = client.encode(client.Query(settings=(Setting(name="zz", value=""),)), Dialect(revision=54464))
    return query[: query.index(b"\x02zz")]


def nested():
    """A block of one row whose column's type is nested without sense."""
    kind = b"Array(" * 50_000 + b"Int8" + b")" * 50_000
    block = b"\x01\x00\x02\xff\xff\xff\xff\x00\x01\x01" + wire.string("x") + wire.string(kind) + b"\x00" + b"\x01" * 99
    return hello_bytes() + b"\x00" + client.encode(client.Query(), Dialect(revision=54464)) + b"\x02\x00" + block


HOSTILE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "garbage": bytes(range(255, 0, -1)) * 20,
    "huge string": b"\x00" + wire.varuint((1 << 63) - 1),
    "long varuint": b"\x00" + b"\xff" * 11,
    "large name": b"\x00" + wire.varuint(1 << 19) + b"x" * 1000,
    "query first": b"\x01\x00",
    "hello cut": hello_bytes()[:7],
    "second hello": hello_bytes() + b"\x00" + hello_bytes(),
    "unknown packet": hello_bytes() + b"\x00" + b"\x63",
    "rows beyond sense": hello_bytes()
    + b"\x00"
    + b"\x02\x00\x01\x00\x02\xff\xff\xff\xff\x00\x01"
    + b"\xff" * 8
    + b"\x7f",
    "nested type": nested(),
    "endless columns": hello_bytes()
    + b"\x00"
    + b"\x02\x00\x01\x00\x02\xff\xff\xff\xff\x00"
    + wire.varuint(900_000)
    + b"\x00",
}


@pytest.mark.parametrize("attack", list(HOSTILE))
def test_hostile_bytes_cost_only_their_connection(bench, attack):
    running = bench.start()
    good = Asker(running)
    with connect(running) as bad:
        bad.sendall(HOSTILE[attack])
        bad.shutdown(sockets.SHUT_WR)
        read_to_end(bad)
    assert good.ask()[-1].kind is ServerPacket.END_OF_STREAM
    assert Asker(running).ask()[-1].kind is ServerPacket.END_OF_STREAM
    assert running.alive()


def peak_memory(running):
    with open(f"/proc/{running.pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def flood(connection, piece, total):
    """Send until the server has had enough; return whether it had."""
    connection.settimeout(WAIT)
    try:
        for _ in range(total // len(piece)):
            connection.sendall(piece)
    except (ConnectionResetError, BrokenPipeError):
        return True
    return read_to_end(connection) is not None


def test_floods_are_cut_off_and_memory_stays_bounded(bench):
    running = bench.start()
    good = Asker(running)
    settings = hello_bytes() + b"\x00" + query_head()
    pieces = (
        (b"\x00" + wire.varuint(1 << 20), b"x" * 65536),  # a name of a megabyte in the Hello
        (settings, b"\x01a\x00\x00" * 16384),  # settings without end
        (hello_bytes() + b"\x00", b"\x04" * 65536),  # Pings without end
        (hello_bytes() + b"\x00" + b"\x02" + wire.varuint(1 << 20), b"x" * 65536),
    )
    for head, piece in pieces:
        connections = [connect(running) for _ in range(8)]
        with ExitStack() as stack:
            for each in connections:
                stack.enter_context(each)
                each.sendall(head)
            for each in connections:
                flood(each, piece, 4 << 20) if piece[:1] != b"\x04" else pings(each)
    bomb = compressed_bomb()
    for _ in range(3):
        with connect(running) as bad:
            bad.sendall(bomb)
            bad.shutdown(sockets.SHUT_WR)
            read_to_end(bad)
    assert good.ask()[-1].kind is ServerPacket.END_OF_STREAM
    assert peak_memory(running) < 200 << 20


def pings(connection):
    """Send Pings and read no Pong: either side may stop first."""
    connection.setblocking(False)
    for _ in range(64):
        try:
            connection.send(b"\x04" * 65536)
        except (BlockingIOError, ConnectionResetError, BrokenPipeError):
            return


def compressed_bomb():
    """A query whose first block says that it unpacks to 256 MiB, and does."""
    import zstandard

    from netlab.native.cityhash import checksum

    machine = Connection(Login())
    head = machine.hello_bytes() + b"\x00"
    query = client.encode(client.Query(sql="SELECT 1", compression=True), Dialect(revision=54464))
    size = 255 << 20
    payload = zstandard.ZstdCompressor().compress(bytes(size))
    frame = bytes([Method.ZSTD]) + struct.pack("<II", len(payload) + 9, size) + payload
    return head + query + b"\x02\x00" + checksum(frame) + frame


def test_resets_and_slow_readers_hold_up_nobody(bench):
    large = '[[answer]]\ncolumns = [["s", "String"]]\ntrain = ["header", '
    large += '{ repeat = 64, train = [{ send = "data", bytes = "1MiB" }] }, "end_of_stream"]'
    running = bench.start(large)
    slow = Asker(running)
    slow.socket.sendall(slow.machine.query_bytes("SELECT 1"))  # and never reads
    for _ in range(20):
        with connect(running) as bad:
            bad.sendall(hello_bytes())
            bad.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
    events = Asker(running).ask()
    assert sum(event.size for event in events if event.kind is ServerPacket.DATA) > 64 << 20
    assert peak_memory(running) < 200 << 20
    slow.socket.close()


def test_many_clients_at_once(bench):
    running = bench.start()
    askers = [Asker(running) for _ in range(100)]
    for asker in askers:
        asker.socket.sendall(asker.machine.query_bytes("SELECT 1"))
    for asker in askers:
        assert asker.until(ServerPacket.END_OF_STREAM)[-1].kind is ServerPacket.END_OF_STREAM
        asker.socket.close()


def test_the_owners_end_ends_the_server(bench):
    running = bench.start()
    child = running._child
    running._owned.close()  # what happens when the owner is killed: its end of the lifeline closes
    assert child.wait(WAIT * 10**9) == 0


def test_a_taken_port_and_a_bad_train_are_said_at_once(bench, tmp_path):
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        server = Server(kind=ServerKind.SCRIPTED, label="scripted", port=taken.getsockname()[1])
        with pytest.raises(ServerError, match="in use"):
            scripted.start(server, LoopbackHost(tmp_path), bench.log)
    with pytest.raises(ScenarioError, match="answer"):
        bench.start("# nothing")


def test_it_answers_with_the_version_of_its_train(bench):
    running = bench.start('version = "18.16.1"\nrevision = 54412\n' + ROWS_TRAIN)
    assert running.version == "18.16.1"
    asker = Asker(running)
    assert asker.machine.revision == 54412
    assert select.select([asker.socket], (), (), 0)[0] == []
    assert os.path.exists(bench.log)

"""The probe's socket: stamps, sizes of reads, and words for connections that fail. Loopback only."""

import socket
import threading
import time

import pytest

from netlab.errors import ProbeError
from netlab.native import server
from netlab.native.blocks import Block, Column, Dialect
from netlab.native.client import ClientBlock, ClientHello
from netlab.native.connection import Login
from netlab.native.messages import ServerBlock, ServerHello, ServerSignal
from netlab.native.stream import ClientDecoder, Link
from netlab.probe.clock import Reading, SystemClock, read, step_between
from netlab.probe.query import Session
from netlab.probe.transport import SocketTransport, connect
from netlab.samples import StampSource
from netlab.units import ms, seconds
from netlab.wire import ServerPacket


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def pair(listener):
    """Return a connected transport and the other end's socket."""
    transport = connect(socket.socket(), listener.getsockname(), seconds(5))
    other, _ = listener.accept()
    with other:
        yield transport, other
    transport.close()


def test_the_kernel_stamps_what_arrives(pair):
    transport, other = pair
    before = time.time_ns()
    other.sendall(b"abc")
    chunk = transport.receive(seconds(5))
    assert chunk.data == b"abc"
    assert chunk.stamp is StampSource.KERNEL
    assert before <= chunk.at <= time.time_ns()


def test_two_pieces_read_apart_have_stamps_apart(pair):
    transport, other = pair
    other.sendall(b"a")
    first = transport.receive(seconds(5))
    other.sendall(b"b")
    second = transport.receive(seconds(5))
    assert first.at < second.at


def test_without_kernel_stamps_the_process_stamps():
    near, far = socket.socketpair()
    transport = SocketTransport(near, "pair")
    before = time.time_ns()
    far.sendall(b"abc")
    chunk = transport.receive(seconds(5))
    assert chunk.stamp is StampSource.PROCESS
    assert before <= chunk.at <= time.time_ns()
    far.close()
    assert transport.receive(seconds(5)).data == b""
    transport.close()


def test_reads_grow_while_data_is_there(pair):
    transport, other = pair
    writer = threading.Thread(target=other.sendall, args=(bytes(1 << 20),))
    writer.start()
    sizes = []
    while sum(sizes) < 1 << 20:
        sizes.append(len(transport.receive(seconds(5)).data))
    writer.join()
    assert sizes[0] <= 1 << 11
    assert max(sizes) <= 1 << 16


def test_nothing_within_the_timeout(pair):
    transport, _ = pair
    before = time.monotonic_ns()
    assert transport.receive(ms(3)) is None
    assert time.monotonic_ns() - before >= ms(3)


def test_a_reset_is_our_error(pair):
    transport, other = pair
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other.close()
    with pytest.raises(ProbeError, match="receive from 127"):
        transport.receive(seconds(5))
    with pytest.raises(ProbeError, match="send to 127"):
        transport.send(b"x", seconds(1))


def test_a_peer_that_takes_nothing_more(pair):
    transport, _ = pair
    with pytest.raises(ProbeError, match="took no more data"):
        transport.send(bytes(1 << 26), ms(20))


def test_nagle_is_off(pair):
    transport, _ = pair
    assert transport._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_refused_connection_closes_the_socket(listener):
    address = listener.getsockname()
    listener.close()
    made = socket.socket()
    with pytest.raises(ProbeError, match="refused the connection") as error:
        connect(made, address, seconds(1))
    assert "does the server run" in error.value.hint
    assert made.fileno() == -1


def test_a_connection_that_nobody_answers():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        queued = [socket.socket() for _ in range(3)]
        for each in queued:  # the accept queue is full after the first two: a further SYN is dropped
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        with pytest.raises(ProbeError, match="did not answer within 50ms"):
            connect(socket.socket(), full.getsockname(), ms(50))
        for each in queued:
            each.close()


def test_a_query_over_a_real_socket(listener):
    """The whole way: handshake, one query, kernel stamps in order, after the request."""

    def serve():
        other, _ = listener.accept()
        link = Link()
        decoder = ClientDecoder(link)
        with other:
            while data := other.recv(1 << 16):
                decoder.feed(data)
                for event in decoder.packets():
                    if isinstance(event.packet, ClientHello):
                        hello = ServerHello(name="ClickHouse", major=1, minor=1, revision=54464)
                        other.sendall(server.encode(hello, Dialect(revision=event.packet.revision)))
                        link.server_sent(hello)
                    elif isinstance(event.packet, ClientBlock):
                        for message in answer:
                            other.sendall(server.encode(message, Dialect(revision=54464)))

    column = Column(name="n", type="UInt8", values=[1] * 9)
    answer = [ServerBlock(block=Block(columns=(column,), rows=9)), ServerSignal(kind=ServerPacket.END_OF_STREAM)]
    thread = threading.Thread(target=serve)
    thread.start()
    session = Session(connect(socket.socket(), listener.getsockname(), seconds(5)), Login())
    assert session.handshake().revision == 54464
    sample = session.run("SELECT 1", settings={}, index=1, timeout=seconds(5))
    session.close()
    thread.join()
    assert sample.stamps is StampSource.KERNEL
    assert 0 <= sample.first_row <= sample.eos
    assert sample.rows == 9


def test_clocks_that_run_on_show_no_step():
    before = read(SystemClock())
    assert step_between(before, read(SystemClock())) is None


@pytest.mark.parametrize(
    ("realtime", "elapsed", "expected"),
    [
        (seconds(10), seconds(10), None),
        (seconds(10) + ms(5), seconds(10), None),  # NTP slews by 500 ppm
        (seconds(10) + ms(50), seconds(10), ms(50)),
        (-seconds(1), 0, -seconds(1)),
        (ms(1), 0, None),
    ],
)
def test_steps_of_the_wall_clock(realtime, elapsed, expected):
    before = Reading(realtime=seconds(100), monotonic=seconds(1))
    after = Reading(realtime=seconds(100) + realtime, monotonic=seconds(1) + elapsed)
    assert step_between(before, after) == expected

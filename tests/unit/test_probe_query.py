"""The probe on a fake transport and a fake clock: what a Sample says of what came when."""

import pytest

from netlab.errors import ProbeError, RemoteProtocolError, ServerExceptionError
from netlab.native import server
from netlab.native.blocks import Block, Column, Dialect
from netlab.native.connection import Login
from netlab.native.messages import ProfileInfo, Progress, ServerBlock, ServerException, ServerHello, ServerSignal
from netlab.probe.clock import FakeClock
from netlab.probe.query import BrokenAnswerError, Session, Watch
from netlab.probe.transport import Delivery, FakeTransport
from netlab.samples import StampSource, TcpInfo
from netlab.units import ms, seconds
from netlab.wire import ServerPacket

DIALECT = Dialect(revision=54464)
COLUMN = Column(name="n", type="UInt8", values=[])


def rows(count, kind=ServerPacket.DATA):
    column = Column(name="n", type="UInt8", values=[1] * count)
    return ServerBlock(kind=kind, block=Block(columns=(column,), rows=count))


HEADER = ServerBlock(block=Block(columns=(COLUMN,)))
LAST = ServerBlock()
END = ServerSignal(kind=ServerPacket.END_OF_STREAM)
TAIL = [ProfileInfo(rows=1, blocks=1), Progress(rows=1), rows(2, ServerPacket.PROFILE_EVENTS), LAST, Progress(), END]


def raw(*messages):
    return b"".join(server.encode(message, DIALECT) for message in messages)


HELLO = [Delivery(ms(32), raw(ServerHello(name="ClickHouse", major=26, minor=7, patch=2, revision=54488)))]
NOTHING = []  # what answers the addendum


def session(*replies, password="", watch=None):
    """Return a session whose server plays `replies`, one to each query, with its transport."""
    clock = FakeClock()
    transport = FakeTransport(clock, [HELLO, NOTHING, *replies])
    made = Session(transport, Login(password=password), clock=clock, watch=watch)
    made.handshake()
    return made, transport


def run(made, *, index=1, timeout=10_000_000_000, settings=None):
    return made.run("SELECT 1", settings=settings or {}, index=index, timeout=timeout)


def test_a_stalled_tail():
    made, transport = session(
        [Delivery(ms(32), raw(HEADER)), Delivery(ms(33), raw(rows(1))), Delivery(ms(65), raw(*TAIL))]
    )
    sample = run(made)
    assert (sample.first_row, sample.eos, sample.tail) == (ms(33), ms(65), ms(32))
    assert (sample.rows, sample.void, sample.exception) == (1, None, None)
    assert sample.bytes == len(raw(HEADER, rows(1), *TAIL))
    kinds = [arrival.kind for arrival in sample.arrivals]
    assert kinds == [message.kind for message in (HEADER, rows(1), *TAIL)]
    assert sum(arrival.size for arrival in sample.arrivals) == sample.bytes
    assert [arrival.rows for arrival in sample.arrivals][:2] == [0, 1]
    assert sample.stamps is StampSource.KERNEL
    assert len(transport.sent) == 3  # Hello, addendum, and the query in one piece


def test_a_packets_instant_is_that_of_the_piece_that_made_it_whole():
    answer = raw(HEADER, rows(5))
    made, _ = session(
        [
            Delivery(ms(1), answer[:-1]),
            Delivery(ms(9), answer[-1:] + raw(LAST)[:3]),
            Delivery(ms(12), raw(LAST, END)[3:]),
        ]
    )
    sample = run(made)
    assert [arrival.at - sample.sent_at for arrival in sample.arrivals] == [ms(1), ms(9), ms(12), ms(12)]
    assert sample.first_row == ms(9)


@pytest.mark.parametrize("extra", [[], [rows(1, ServerPacket.TOTALS)], [rows(2, ServerPacket.EXTREMES)]])
def test_without_a_row_there_is_no_first_row(extra):
    made, _ = session([Delivery(ms(1), raw(HEADER, *extra, LAST, END))])
    sample = run(made)
    assert sample.first_row_at is None
    assert sample.tail is None
    assert sample.eos == ms(1)
    assert sample.rows == 0


def test_rows_add_up_over_blocks():
    made, _ = session([Delivery(ms(1), raw(HEADER, rows(3))), Delivery(ms(2), raw(rows(4), LAST, END))])
    sample = run(made)
    assert (sample.rows, sample.first_row) == (7, ms(1))


def test_an_exception_ends_the_query_not_the_session():
    refused = ServerException(code=60, name="DB::Exception", message="DB::Exception: no such table")
    made, _ = session([Delivery(ms(1), raw(HEADER, refused))], [Delivery(ms(1), raw(HEADER, rows(1), LAST, END))])
    sample = run(made)
    assert (sample.exception.code, sample.exception.message) == (60, "no such table")
    assert sample.eos is None
    assert run(made, index=2).eos == ms(1)


def test_a_server_that_dies_leaves_what_had_come():
    made, _ = session([Delivery(ms(1), raw(HEADER, rows(1))), Delivery(ms(4), b"")])
    with pytest.raises(BrokenAnswerError, match="closed the connection during query 1") as error:
        run(made)
    sample = error.value.sample
    assert [arrival.kind for arrival in sample.arrivals] == [ServerPacket.DATA] * 2
    assert (sample.first_row, sample.eos) == (ms(1), None)
    assert sample.void
    with pytest.raises(ProbeError, match="no longer usable"):
        run(made)


def test_a_server_that_dies_inside_a_packet():
    made, _ = session([Delivery(ms(1), raw(HEADER, rows(200))[:-50]), Delivery(ms(4), b"")])
    with pytest.raises(BrokenAnswerError, match="inside a Data packet") as error:
        run(made)
    assert len(error.value.sample.arrivals) == 1


def test_a_timeout_says_what_had_come():
    made, _ = session([Delivery(ms(1), raw(HEADER)), Delivery(seconds(60), raw(END))])
    with pytest.raises(BrokenAnswerError, match=r"no end of the answer within 10s \(1 packets, 0 rows.* Data last"):
        run(made)


def test_garbage_in_an_answer():
    made, _ = session([Delivery(ms(1), raw(HEADER) + b"\x63")])
    with pytest.raises(BrokenAnswerError, match="type 99") as error:
        run(made)
    assert len(error.value.sample.arrivals) == 1


def test_idle_is_what_really_passed():
    answer = [Delivery(ms(1), raw(HEADER, LAST, END))]
    made, transport = session(answer, answer)
    run(made)
    ticks = []
    made.wait_idle(seconds(2), tick=ticks.append)
    assert len(ticks) == 20
    transport.clock.advance(ms(5))
    assert run(made, index=2).idle == seconds(2) + ms(5)


def test_waiting_counts_from_the_last_byte():
    made, transport = session()
    transport.clock.advance(seconds(1))
    before = transport.clock.now
    made.wait_idle(seconds(3))
    assert transport.clock.now - before == seconds(2)


def test_a_server_that_closes_while_idle():
    made, transport = session()
    transport.deliver([Delivery(ms(700), b"")])
    with pytest.raises(ProbeError, match="while it was idle"):
        made.wait_idle(seconds(2))
    with pytest.raises(ProbeError, match="no longer usable"):
        run(made)


def test_bytes_while_idle_start_the_silence_anew():
    made, transport = session()
    transport.deliver([Delivery(ms(700), raw(Progress()))])
    before = transport.clock.now
    made.wait_idle(seconds(2))
    assert transport.clock.now - before == seconds(2) + ms(700)


def test_a_clock_that_is_set_voids_the_sample():
    made, transport = session([Delivery(ms(1), raw(HEADER, rows(1))), Delivery(ms(9), raw(LAST, END))])
    receive = transport.receive

    def stepped(timeout):
        chunk = receive(timeout)
        transport.clock.step(seconds(-3))
        transport.receive = receive
        return chunk

    transport.receive = stepped
    assert "set by -3s" in run(made).void


def test_one_stamp_of_the_process_makes_the_sample_so():
    made, transport = session([Delivery(ms(1), raw(HEADER, LAST, END))])
    transport.stamp = StampSource.PROCESS
    assert run(made).stamps is StampSource.PROCESS


def test_tcp_info_before_and_after():
    counts = iter(range(9))

    def info():
        return TcpInfo(**{name: next(counts) if name == "snd_cwnd" else 0 for name in FIELDS})

    made, _ = session([Delivery(ms(1), raw(HEADER, LAST, END))], watch=Watch(client=info))
    sample = run(made)
    assert (sample.client_before.snd_cwnd, sample.client_after.snd_cwnd) == (0, 1)
    assert (sample.server_before, sample.server_after) == (None, None)


FIELDS = (
    "state", "ca_state", "snd_cwnd", "snd_ssthresh", "snd_mss", "rcv_mss", "advmss", "pmtu", "rto", "rtt", "rttvar",
)  # fmt: skip


def test_settings_go_with_the_query():
    made, transport = session([Delivery(ms(1), raw(HEADER, LAST, END))])
    run(made, settings={"max_threads": "1"})
    assert b"\x0bmax_threads\x01\x011" in transport.sent[-1]


def greeting(*pieces, password="", timeout=3_000_000_000):
    clock = FakeClock()
    made = Session(FakeTransport(clock, [pieces]), Login(password=password), clock=clock)
    return made.handshake(timeout)


def test_the_servers_version():
    assert greeting(*HELLO).version == "26.7.2"


@pytest.mark.parametrize(
    ("code", "hint"), [(516, "password"), (193, "password"), (192, "user"), (81, "database"), (999, "")]
)
def test_a_refused_login(code, hint):
    refused = ServerException(code=code, name="DB::Exception", message="DB::Exception: no entry for hunter2\n\nAdvice")
    with pytest.raises(ServerExceptionError) as error:
        greeting(Delivery(ms(1), raw(refused)), password="hunter2")
    assert (error.value.code, error.value.message) == (code, "no entry for ***")
    assert hint in error.value.hint
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("banner", "named"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            'an HTTP server, no ClickHouse: it sent "HTTP/1.1 400',
        ),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "an SSH server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "a TLS server"),
        (b"-ERR unknown command\r\n", "a Redis server"),
        (b"\x4a\x00\x00\x00\x0a8.0.36\x00", "a MySQL server"),
        (b"E\x00\x00\x00\x0bSFATAL\x00", "does not speak the ClickHouse Native protocol"),
        (b"\xff" * 20, "hex ffffffff"),
    ],
)
@pytest.mark.parametrize("step", [1, 100])
def test_a_peer_that_is_no_clickhouse_is_named(banner, named, step):
    pieces = [Delivery(ms(1), banner[at : at + step]) for at in range(0, len(banner), step)]
    with pytest.raises(RemoteProtocolError) as error:
        greeting(*pieces)
    assert named in str(error.value)
    assert "9000" in error.value.hint


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([], "sent nothing within 3s"),
        ([Delivery(ms(1), b"")], "sent nothing and closed the connection"),
        ([Delivery(ms(1), b"\x00\x0a"), Delivery(ms(2), b"")], "does not speak"),
        ([Delivery(ms(1), b"\x00\x0a")], "does not speak"),
    ],
)
def test_silence_and_half_a_greeting(pieces, message):
    with pytest.raises(RemoteProtocolError, match=message):
        greeting(*pieces)


def test_no_repr_shows_the_password():
    clock = FakeClock()
    made = Session(FakeTransport(clock, []), Login(password="hunter2"), clock=clock)
    assert "hunter2" not in repr(made) + repr(vars(made))

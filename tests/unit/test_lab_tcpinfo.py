"""tcp_info: from our own sockets, by exact request, and from kernels that fill less of it. Loopback only."""

import socket
from collections.abc import Iterator

import pytest

from netlab.errors import LabError
from netlab.lab import tcpinfo
from netlab.segments import Endpoint
from netlab.units import ms, us

LOOPBACK = "127.0.0.1"


@pytest.fixture
def diag() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, tcpinfo.NETLINK_SOCK_DIAG) as made:
        made.settimeout(10)
        yield made


@pytest.fixture(params=[(socket.AF_INET, LOOPBACK), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"])
def pair(request) -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """A listening socket, a client and the server's end of its connection."""
    family, address = request.param
    with (
        socket.create_server((address, 0), family=family) as listening,
        socket.create_connection(listening.getsockname()[:2]) as client,
        listening.accept()[0] as server,
    ):
        yield listening, client, server


def ends(connected: socket.socket) -> tuple[Endpoint, Endpoint]:
    return Endpoint(*connected.getsockname()[:2]), Endpoint(*connected.getpeername()[:2])


def test_an_exact_request_says_what_the_socket_itself_says(diag, pair):
    _, client, server = pair
    client.sendall(b"x" * 1000)
    server.recv(1000)
    asked, own = tcpinfo.of_connection(diag, *ends(server)), tcpinfo.of_socket(server)
    assert asked is not None
    for name in ("state", "snd_cwnd", "rto", "rtt", "rcv_mss", "bytes_received", "data_segs_in", "snd_wnd"):
        assert getattr(asked, name) == getattr(own, name), name
    assert own.bytes_received == 1000 and own.data_segs_in == 1
    assert own.rto >= ms(200) and 0 < own.rtt < ms(200)


def test_the_socket_that_listens_is_not_taken_for_a_connection(diag, pair):
    listening, client, _ = pair
    address, port = listening.getsockname()[:2]
    stranger = Endpoint(address, 1)
    assert stranger.port != client.getsockname()[1]
    assert tcpinfo.of_connection(diag, Endpoint(address, port), stranger) is None


def test_a_connection_that_is_not_there_is_none(diag):
    assert tcpinfo.of_connection(diag, Endpoint(LOOPBACK, 1), Endpoint(LOOPBACK, 2)) is None


def raw_info(pair) -> bytes:
    return pair[2].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)


@pytest.mark.parametrize(
    ("size", "last", "first_missing"),
    [(104, "total_retrans", "pacing_rate"), (152, "min_rtt", "data_segs_in"), (192, "sndbuf_limited", "snd_wnd")],
)
def test_what_an_older_kernel_does_not_fill_is_none(pair, size: int, last: str, first_missing: str):
    info = tcpinfo.parse(raw_info(pair)[:size])
    assert getattr(info, last) is not None
    assert getattr(info, first_missing) is None


def test_a_newer_kernels_longer_struct_is_read_all_the_same(pair):
    raw = raw_info(pair)
    assert tcpinfo.parse(raw + bytes(64)) == tcpinfo.parse(raw)


def test_times_are_in_nanoseconds():
    words = [0] * 24
    words[0], words[15], words[9] = 204_000, 32_100, 7  # rto and rtt in us, last_data_sent in ms
    info = tcpinfo.parse(bytes(8) + b"".join(word.to_bytes(4, "little") for word in words))
    assert (info.rto, info.rtt, info.last_data_sent) == (us(204_000), us(32_100), ms(7))


def test_no_sample_of_the_smallest_rtt_is_none(pair):
    raw = bytearray(raw_info(pair))
    raw[148:152] = b"\xff" * 4
    assert tcpinfo.parse(bytes(raw)).min_rtt is None


@pytest.mark.parametrize("size", [0, 8, 103])
def test_too_few_bytes_are_a_lab_error(size: int):
    with pytest.raises(LabError, match="too few"):
        tcpinfo.parse(bytes(size))

"""The password leaves a capture, whatever it is; everything else stays as it was."""

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap, wrpcapng

from netlab.capture.mask import mask
from netlab.errors import CaptureError
from netlab.native.connection import Connection, Login


def hello(password):
    return Connection(Login(password=password)).hello_bytes()


def masked(password):
    whole, secret = hello(password), len(password.encode())
    return whole[:-secret] + b"*" * secret


def capture(path, *payloads, options=()):
    packets = [
        Ether() / IP(src="10.77.0.1", dst="10.77.0.2") / TCP(sport=4, dport=9000, seq=7, options=options) / payload
        for payload in payloads
    ]
    wrpcapng(str(path), packets)


@pytest.mark.parametrize("password", ["correct horse", "x", "*", "9", "é" * 100])
@pytest.mark.parametrize("options", [(), (("Timestamp", (1, 2)),)], ids=["bare", "timestamps"])
def test_the_login_is_masked_and_its_checksum_is_right(tmp_path, password, options):
    path = tmp_path / "a.pcapng"
    query = b"SELECT 'correct horse x9*'"  # not the login: it stays
    capture(path, hello(password), query, hello(password) + b"more", options=options)
    size = path.stat().st_size
    assert mask(path, hello(password), masked(password)) == 2
    assert path.stat().st_size == size
    read = [packet[TCP] for packet in rdpcap(str(path))]
    assert [bytes(segment.payload) for segment in read] == [masked(password), query, masked(password) + b"more"]
    for packet in rdpcap(str(path)):
        said = packet[TCP].chksum
        del packet[TCP].chksum
        assert Ether(bytes(packet))[TCP].chksum == said


def test_a_capture_without_the_login_is_left_alone(tmp_path):
    path = tmp_path / "a.pcapng"
    capture(path, b"hello", hello("other"))
    before = path.read_bytes()
    assert mask(path, hello("correct horse"), masked("correct horse")) == 0
    assert path.read_bytes() == before
    (tmp_path / "empty").touch()
    assert mask(tmp_path / "empty", hello("x"), masked("x")) == 0


def test_a_login_in_no_packet_is_masked_too(tmp_path):
    path = tmp_path / "odd"
    path.write_bytes(hello("secret") + b"tail")
    assert mask(path, hello("secret"), masked("secret")) == 1
    assert path.read_bytes() == masked("secret") + b"tail"


def test_a_file_that_cannot_be_opened_is_said(tmp_path):
    with pytest.raises(CaptureError, match="the password could not be masked: No such file"):
        mask(tmp_path / "none", hello("x"), masked("x"))

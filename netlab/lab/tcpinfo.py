"""The kernel's own word on a socket: tcp_info by getsockopt, or by sock_diag for a socket of another process.

Layouts: Linux include/uapi/linux/tcp.h (struct tcp_info), inet_diag.h (inet_diag_req_v2, inet_diag_msg).
"""

import ipaddress
import socket
import struct

from netlab.errors import LabError
from netlab.samples import TcpInfo
from netlab.segments import Endpoint
from netlab.units import NS_PER_MS, NS_PER_US

_BYTES = struct.Struct("=8B")
_WORDS = struct.Struct("=24I")
_SIZE = 256
_SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _NLMSG_ERROR = 20, 1, 2
_INET_DIAG_INFO = 2
_NLMSG = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_REPLY_SIZE, _OTHER_PORT = 72, 6  # struct inet_diag_msg, and idiag_dport in it
NETLINK_SOCK_DIAG = 4
# name -> (offset, format, scale) of the fields that newer kernels added after the first 104 bytes
_LATER = {
    "pacing_rate": (104, "=Q", 1),
    "bytes_acked": (120, "=Q", 1),
    "bytes_received": (128, "=Q", 1),
    "segs_out": (136, "=I", 1),
    "segs_in": (140, "=I", 1),
    "notsent_bytes": (144, "=I", 1),
    "min_rtt": (148, "=I", NS_PER_US),
    "data_segs_in": (152, "=I", 1),
    "data_segs_out": (156, "=I", 1),
    "delivery_rate": (160, "=Q", 1),
    "busy_time": (168, "=Q", NS_PER_US),
    "rwnd_limited": (176, "=Q", NS_PER_US),
    "sndbuf_limited": (184, "=Q", NS_PER_US),
    "snd_wnd": (228, "=I", 1),
}


def of_socket(connected: socket.socket) -> TcpInfo:
    """Return the tcp_info of our own `connected` socket. Raises OSError."""
    return parse(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE))


def parse(raw: bytes) -> TcpInfo:
    """Return the tcp_info in `raw` (as long as the running kernel makes it). Raises LabError when too short."""
    if len(raw) < _BYTES.size + _WORDS.size:
        raise LabError(f"read tcp_info: {len(raw)} bytes are too few", hint="Linux 4.9 or newer is needed")
    small = _BYTES.unpack_from(raw)
    words = _WORDS.unpack_from(raw, _BYTES.size)
    later = {
        name: struct.unpack_from(form, raw, offset)[0] * scale
        for name, (offset, form, scale) in _LATER.items()
        if len(raw) >= offset + struct.calcsize(form)
    }
    if later.get("min_rtt") == 0xFFFFFFFF * NS_PER_US:  # no sample yet
        later["min_rtt"] = None
    return TcpInfo(
        state=small[0],
        ca_state=small[1],
        rto=words[0] * NS_PER_US,
        snd_mss=words[2],
        rcv_mss=words[3],
        unacked=words[4],
        sacked=words[5],
        lost=words[6],
        retrans=words[7],
        last_data_sent=words[9] * NS_PER_MS,
        last_data_recv=words[11] * NS_PER_MS,
        last_ack_recv=words[12] * NS_PER_MS,
        pmtu=words[13],
        rtt=words[15] * NS_PER_US,
        rttvar=words[16] * NS_PER_US,
        snd_ssthresh=words[17],
        snd_cwnd=words[18],
        advmss=words[19],
        reordering=words[20],
        rcv_space=words[22],
        total_retrans=words[23],
        **later,
    )


def of_connection(diag: socket.socket, local: Endpoint, remote: Endpoint) -> TcpInfo | None:
    """Return the tcp_info of the socket with exactly these ends, seen from `diag` (NETLINK_SOCK_DIAG, in its
    namespace); None when there is no such socket. One exact request takes some 7 us. Raises OSError."""
    diag.send(_request(local, remote))
    reply = diag.recv(8192)
    length, kind, *_ = _NLMSG.unpack_from(reply)
    if kind == _NLMSG_ERROR:
        return None
    # Where no connection matches, the kernel answers with the socket that listens there: its other port is 0.
    if struct.unpack_from("!H", reply, _NLMSG.size + _OTHER_PORT)[0] != remote.port:
        return None
    return _find_info(reply[_NLMSG.size + _REPLY_SIZE : length])


def _request(local: Endpoint, remote: Endpoint) -> bytes:
    ends = [ipaddress.ip_address(end.address) for end in (local, remote)]
    family = socket.AF_INET if ends[0].version == 4 else socket.AF_INET6
    addresses = b"".join(end.packed.ljust(16, b"\0") for end in ends)
    ports = struct.pack("!HH", local.port, remote.port)
    any_cookie = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # interface 0, INET_DIAG_NOCOOKIE
    wanted = 1 << (_INET_DIAG_INFO - 1)
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, wanted, 0xFFFFFFFF) + ports + addresses + any_cookie
    return _NLMSG.pack(_NLMSG.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body


def _find_info(attributes: bytes) -> TcpInfo | None:
    position = 0
    while position + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, position)
        if length < 4:
            return None
        if kind == _INET_DIAG_INFO:
            return parse(attributes[position + 4 : position + length])
        position += (length + 3) & ~3
    return None

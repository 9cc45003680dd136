"""A Native connection as a capture: packets of both sides, each segment a direction and bytes, with what it must not
tell marked SECRET."""

from netlab.capture.craft import ethernet, tcp_packet, write_pcap
from netlab.native import client, server
from netlab.native.blocks import Block, Column, Dialect
from netlab.native.client import Addendum, ClientBlock, ClientHello, Query
from netlab.native.client_info import ClientInfo
from netlab.native.compression import Method
from netlab.native.connection import chunk
from netlab.native.messages import (
    CHUNKED,
    NOT_CHUNKED,
    ProfileInfo,
    Progress,
    ServerBlock,
    ServerException,
    ServerHello,
    ServerSignal,
    ServerText,
    Setting,
    TableColumns,
)
from netlab.segments import Endpoint
from netlab.units import ms
from netlab.wire import ServerPacket as P

CLIENT, SERVER = Endpoint("203.0.113.77", 40_000), Endpoint("203.0.113.78", 9000)
INFO = ClientInfo(
    initial_user="SECRETUSER",
    os_user="SECRETOS",
    hostname="SECRETHOST",
    client_name="SECRETCLIENT",
    major=26,
    minor=7,
    revision=54492,
)
TABLE = Block(
    columns=(
        Column(name="SECRETCOLUMN", type="String", values=["SECRETVALUE", "SECRETOTHER" * 300]),
        Column(name="n", type="UInt64", values=[1, 0x544552434553]),
    ),
    rows=2,
)
HEADER = Block(columns=(Column(name="SECRETCOLUMN", type="String", values=()),), rows=0)
EVENTS = Block(columns=(Column(name="name", type="String", values=["SECRETEVENT"] * 9),), rows=9)


def packets(revision: int, *, compressed: bool = False, chunked: bool = False):
    """Yield (from the client, bytes) of a connection with a query that has rows, and one that fails."""
    mode = CHUNKED if chunked else NOT_CHUNKED
    plain = Dialect(revision=revision)
    dialect = Dialect(revision=revision, compression=Method.LZ4 if compressed else None)
    frame = chunk if chunked else bytes
    hello = ClientHello(
        name="ClickHouse SECRETNAME", major=26, minor=7, revision=revision, user="SECRETUSER", password="SECRETPASS"
    )
    yield True, client.encode(hello, plain)
    greeting = ServerHello(
        name="ClickHouse",
        major=26,
        minor=7,
        revision=revision,
        timezone="SECRETZONE",
        display_name="SECRETDISPLAY",
        send_mode=mode,
        receive_mode=mode,
        password_rules=(("SECRETRULE", "SECRETSAYING"),),
        settings=(Setting(name="SECRETSETTING", value="1"),) if revision >= 54474 else (),
    )
    yield False, server.encode(greeting, plain)
    yield True, client.encode(Addendum(quota_key="SECRETQUOTA", send_mode=mode, receive_mode=mode), plain)
    for number in range(2):
        settings = (Setting(name="SECRETKNOB", value="SECRETSET"),) if revision >= 54429 else ()
        asked = Query(
            query_id="SECRETID", info=INFO, settings=settings, sql="SELECT 'SECRETSQL'" * 9, compression=compressed
        )
        yield True, frame(client.encode(asked, plain)) + frame(client.encode(ClientBlock(), dialect))
        if number:
            failure = ServerException(code=62, name="SECRETERROR", message="SECRETMESSAGE", stack="SECRETSTACK")
            yield False, frame(server.encode(failure, dialect))
            return
        for message in (
            TableColumns(table="SECRETTABLE", description="SECRETDESCRIPTION" * 9),
            ServerText(kind=P.TIMEZONE_UPDATE, text="SECRETZONE"),
            ServerBlock(block=HEADER),
            Progress(rows=1000, bytes=8000, total_rows=1000, elapsed=5_000_000),
            ServerBlock(block=TABLE),
            ServerBlock(kind=P.PROFILE_EVENTS, block=EVENTS),
            ServerBlock(),
            ProfileInfo(rows=2, blocks=1, bytes=100),
            ServerSignal(kind=P.END_OF_STREAM),
        ):
            yield False, frame(server.encode(message, dialect))


def frames(turns, *, handshake: bool = True, cut: int = 1448):
    """Return (at, Ethernet frame) pairs of a connection whose segments carry `turns`, acknowledged one by one."""
    at, seq = 10**18, {True: 1000, False: 5000}
    out = []

    def send(up, data=b"", flags=0x10):
        ends = (CLIENT, SERVER) if up else (SERVER, CLIENT)
        ack = seq[not up] if flags != 2 else 0
        out.append((at, ethernet(tcp_packet(*ends, data, seq=seq[up], ack=ack, flags=flags))))
        seq[up] = seq[up] + len(data) + (flags & 2) // 2 & 0xFFFFFFFF

    for up, flags in ((True, 2), (False, 0x12), (True, 0x10)):
        send(up, flags=flags)
        at += ms(10)
    if not handshake:
        out.clear()
    for up, data in turns:
        at += ms(10)
        for start in range(0, len(data), cut):
            send(up, data[start : start + cut], 0x18)
        at += ms(1)
        send(not up)
    return out


def write(path, turns, **options):
    """Write `frames(turns)` as a capture; return `path`."""
    write_pcap(path, frames(turns, **options))
    return path

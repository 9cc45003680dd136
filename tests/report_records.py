"""A run as it comes out on real engines, in round figures: five queries each on 26.7 (one silence) and 26.9 (none)."""

from dataclasses import replace

from netlab.diagnosis import (
    CaptureDiagnosis,
    Cause,
    Connection,
    Evidence,
    Exchange,
    ExchangeKind,
    Finding,
    Flight,
    LabelledSegment,
    Protocol,
    PshTable,
    Stall,
    Vantage,
)  # fmt: skip
from netlab.record import (
    CaptureFile,
    EndFacts,
    Environment,
    LabFacts,
    LatenessReport,
    RttReport,
    RunRecord,
    ServerRun,
)  # fmt: skip
from netlab.samples import Arrival, Sample, StampSource
from netlab.scenario import DEFAULT_QUERY, Backend, Scenario, Server, ServerKind
from netlab.segments import CaptureSummary, Direction, Endpoint, Interface
from netlab.units import ms, seconds, us
from netlab.wire import ServerPacket as P

CLIENT, SERVER = Endpoint("10.77.0.1", 40_000), Endpoint("10.77.0.2", 9000)
START = 1_800_000_000 * 10**9
RTT = ms(32)
# What the server writes: (bytes, packets). 26.9 writes what follows the rows in one go; at an MSS of 1,448 bytes.
BEFORE = (
    (28, (P.DATA,)), (36, (P.DATA,)), (8, (P.PROFILE_INFO,)), (11, (P.PROGRESS,)), (1448, (P.PROFILE_EVENTS,)),
    (586, (P.PROFILE_EVENTS,)), (12, (P.DATA,)), (10, (P.PROGRESS,)), (1, (P.END_OF_STREAM,)),
)  # fmt: skip
AFTER = (
    (28, (P.DATA,)), (36, (P.DATA,)), (1448, (P.PROFILE_INFO, P.PROGRESS, P.PROFILE_EVENTS)),
    (628, (P.PROFILE_EVENTS, P.DATA, P.PROGRESS, P.END_OF_STREAM)),
)  # fmt: skip


def an_exchange(index: int, train=BEFORE, *, stalled: bool = True) -> Exchange:
    """The server's view of one query: the train 2 ms after the request, its last segment an RTT later if `stalled`."""
    sent_at, base = START + index * seconds(2), 10 + index * 30
    request = LabelledSegment(
        frame=base, at=sent_at, direction=Direction.TO_SERVER, length=97, push=True, labels=("Query", "Data")
    )
    segments = [request]
    for place, (size, packets) in enumerate(train, 1):
        late = stalled and place == len(train)
        at = sent_at + ms(2) + us(60) * place + (RTT - us(400) if late else 0)
        segments.append(LabelledSegment(
            frame=base + place + late, at=at, direction=Direction.TO_CLIENT, length=size, push=size != 1448,
            labels=tuple(p.label for p in packets), flight=int(late), acked_at=at + RTT,
        ))  # fmt: skip
    if stalled:
        ack_at = segments[-1].at - us(40)
        ack = LabelledSegment(frame=base + len(train), at=ack_at, direction=Direction.TO_SERVER, length=0, push=False)
        segments.insert(-1, ack)
    return _exchange(index, sent_at, segments, stalled)


def _exchange(index: int, sent_at: int, segments: list[LabelledSegment], stalled: bool) -> Exchange:
    answer = [s for s in segments if s.direction is Direction.TO_CLIENT]
    first = answer[:-1] if stalled else answer
    flights = [_flight(first)] + ([_flight(answer[-1:])] if stalled else [])
    stall = Stall(
        after_frame=first[-1].frame, resume_frame=answer[-1].frame, ack_frame=answer[-1].frame - 1,
        started_at=first[-1].at, ended_at=answer[-1].at, outstanding_segments=len(first), outstanding_bytes=2139,
    )  # fmt: skip
    cause = Cause.IDLE_WINDOW_RESTART if stalled else Cause.HEALTHY
    finding = Finding(
        cause=cause, cost=stall.duration, round_trips=stall.duration / RTT, confidence=0.98,
        evidence=Evidence(
            frames=(stall.after_frame, answer[-1].frame - 1, stall.resume_frame), text="8 segments, then an ACK"
        ),
    )  # fmt: skip
    return Exchange(
        connection=0, index=index, kind=ExchangeKind.QUERY, sent_at=sent_at, request_end_at=sent_at,
        first_byte_at=answer[0].at, first_row_at=answer[1].at, last_byte_at=answer[-1].at, eos_at=answer[-1].at,
        idle_before=seconds(2), request_bytes=97, response_bytes=sum(s.length for s in answer), rtt=RTT,
        query=DEFAULT_QUERY, exception=None, segments=tuple(segments), flights=tuple(flights),
        stalls=(stall,) if stalled else (), extra_round_trips=int(stalled), cause=cause, also=(), confidence=0.98,
        findings=(finding,) if stalled else (),
    )  # fmt: skip


def _flight(segments: list[LabelledSegment]) -> Flight:
    return Flight(
        first_frame=segments[0].frame, last_frame=segments[-1].frame, segments=len(segments),
        bytes=sum(s.length for s in segments), started_at=segments[0].at, ended_at=segments[-1].at,
    )  # fmt: skip


def a_diagnosis(*exchanges: Exchange, file: str = "server.pcapng") -> CaptureDiagnosis:
    """The capture that holds `exchanges`, taken at the server."""
    connection = Connection(
        index=0, client=CLIENT, server=SERVER, protocol=Protocol.CLICKHOUSE_NATIVE, vantage=Vantage.SERVER,
        vantage_reason="the answer comes 2 ms after the request", handshake_rtt=RTT, min_rtt=RTT, mss=1448,
        complete=True, revision=54464,
    )  # fmt: skip
    summary = CaptureSummary(
        packets=100, tcp_segments=100, truncated=False, comment=None,
        interfaces=(Interface(number=0, name="veth", link_type=1, snaplen=None, drops=0),),
    )  # fmt: skip
    return CaptureDiagnosis(
        file=file, summary=summary, vantage=Vantage.SERVER, connections=(connection,), exchanges=exchanges
    )


def a_sample(exchange: Exchange, index: int) -> Sample:
    """The same query as the client saw it: half an RTT either way does not change its tail."""
    sent_at = exchange.sent_at - us(50)
    arrivals = tuple(
        Arrival(kind=next(p for p in P if p.label == s.labels[-1]), at=s.at + RTT, size=s.length)
        for s in exchange.segments if s.direction is Direction.TO_CLIENT
    )  # fmt: skip
    return Sample(
        index=index, sent_at=sent_at, idle=seconds(2), first_row_at=exchange.first_row_at + RTT,
        eos_at=exchange.eos_at + RTT, rows=1, bytes=exchange.response_bytes, arrivals=arrivals,
        stamps=StampSource.KERNEL, lateness=us(120),
    )  # fmt: skip


def a_run(version: str, *, stalled: bool, queries: int = 5) -> ServerRun:
    """One server's run."""
    train = BEFORE if stalled else AFTER
    exchanges = [an_exchange(index, train, stalled=stalled) for index in range(queries)]
    sizes: dict[int, int] = {}
    for size, _ in train:
        if size != 1448:
            sizes[size] = sizes.get(size, 0) + queries
    end = EndFacts(
        name="server", address=SERVER.address, interface="veth", mtu=1500, route={"initcwnd": "8", "cc_algo": "cubic"},
        sysctls={"net.ipv4.tcp_slow_start_after_idle": "1"}, offloads={"tso": False}, qdisc="noqueue",
    )  # fmt: skip
    return ServerRun(
        server=Server(kind=ServerKind.ENGINE, label=f"clickhouse:{version}", version=version), version=version,
        lab=LabFacts(backend=Backend.RELAY, privileges="root", ends=(end,), emulation={"scheduling": "SCHED_FIFO 10"}),
        rtt=RttReport(sent=10, received=10, minimum=RTT, median=RTT + us(40), maximum=RTT + us(90)),
        lateness=LatenessReport(packets=190, dropped=0, lost=0, median=us(7), p99=us(200), worst=us(300)),
        warmups=(), samples=tuple(a_sample(e, index) for index, e in enumerate(exchanges, 1)),
        captures=(CaptureFile(path=f"{version}.server.pcapng", vantage="server", packets=100, drops=0),),
        diagnosis=a_diagnosis(*exchanges, file=f"{version}.server.pcapng"),
        psh=PshTable(
            segments=sum(sizes.values()), bytes=sum(s * n for s, n in sizes.items()), sizes=tuple(sorted(sizes.items()))
        ),
    )  # fmt: skip


def a_record(*runs: ServerRun, **changes: object) -> RunRecord:
    """A run of both engines, or of `runs`, with `changes` to its fields."""
    machine = Environment(
        netlab="0.1.0", python="3.11.7", kernel="Linux 6.18", machine="x86_64", cpus=2, tools={"tshark": "4.0"},
        packages={"scapy": "2.6"},
    )  # fmt: skip
    record = RunRecord(
        run_id="r", started_at=START, finished_at=START + seconds(30), command_line=("netlab", "repro"),
        scenario=Scenario(), environment=machine,
        runs=runs or (a_run("26.7", stalled=True), a_run("26.9", stalled=False)),
    )  # fmt: skip
    return replace(record, **changes)

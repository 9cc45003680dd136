"""The tables of a run's report."""

from collections.abc import Callable, Sequence

from netlab.analysis.explain import Verdict
from netlab.analysis.match import matched_exchanges
from netlab.analysis.tail import Summary, summarise
from netlab.diagnosis import Exchange
from netlab.record import LatenessReport, RttReport, RunRecord, ServerRun
from netlab.report.document import Table
from netlab.samples import Sample
from netlab.segments import Direction
from netlab.units import as_ms, format_duration, format_rate

DASH = "–"  # a figure that was not measured


def sound(run: ServerRun) -> list[Sample]:
    """Return the samples that prove something."""
    return [sample for sample in run.samples if sample.void is None]


def ended_early(record: RunRecord) -> list[str]:
    """Return a sentence for each run that did not come to its end, or proves nothing."""
    runs = record.runs
    voids = [f"{run.server.label}: VOID: {run.void}" for run in runs if run.void]
    return voids + [f"{run.server.label}: ended early: {run.error}" for run in runs if run.error]


def headline(record: RunRecord, verdicts: Sequence[Verdict]) -> Table:
    """Return the side-by-side: a row a figure, a column a server."""
    by_label = {verdict.server: verdict for verdict in verdicts}
    rows: list[list[str]] = [[name] for name in _FIGURES]
    for run in record.runs:
        for row, cell in zip(rows, _figures(run, by_label.get(run.server.label)), strict=True):
            row.append(cell)
    titles = tuple(run.server.label for run in record.runs)
    return Table(title="Side by side", columns=("", *titles), rows=tuple(tuple(row) for row in rows))


def queries(run: ServerRun, verdict: Verdict | None) -> Table:
    """Return a row a query, void ones included and marked."""
    trips = iter(() if verdict is None else verdict.extra_round_trips)
    rows = []
    for sample in run.samples:
        extra = DASH if sample.void is not None else _count(next(trips, None))
        figures = (_ms(sample.first_row), _ms(sample.eos), _ms(sample.tail))
        cwnd = DASH if sample.server_after is None else str(sample.server_after.snd_cwnd)
        late = DASH if sample.lateness is None else format_duration(round(sample.lateness, -3))
        notes = [f"VOID: {sample.void}"] if sample.void is not None else []
        if sample.exception is not None:
            error = sample.exception
            notes.append(f"exception {error.code} {error.name}: {error.message}")
        rows.append(
            (
                str(sample.index),
                *figures,
                extra,
                str(sample.rows),
                str(len(sample.arrivals)),
                cwnd,
                late,
                "; ".join(notes),
            )
        )
    columns = (
        "query",
        "first_row",
        "eos",
        "tail",
        "extra round trips",
        "rows",
        "packets",
        "snd_cwnd after",
        "lateness",
    )
    return Table(title=f"Queries of {run.server.label}", columns=(*columns, "note"), rows=tuple(rows))


def lab(record: RunRecord) -> Table:
    """Return what was asked of the labs and what was read back."""
    link, tcp = record.scenario.link, record.scenario.server_tcp
    to_client, to_server = link.to_client, link.to_server
    rows: list[list[str]] = [
        ["RTT", format_duration(link.rtt)],
        ["one way, to client / to server", f"{format_duration(to_client.delay)} / {format_duration(to_server.delay)}"],
        ["jitter", format_duration(to_client.jitter)],
        ["loss", f"{to_client.loss:.3%}"],
        ["rate", format_rate(to_client.rate) if to_client.rate else "unlimited"],
        ["backend", link.backend.value],
        ["delay line", ""],
        ["lateness p99 / worst", "void above 1ms"],
        ["server initcwnd", DASH if tcp.initcwnd is None else str(tcp.initcwnd)],
        ["server congestion control", tcp.congestion.value],
        ["tcp_slow_start_after_idle", str(int(tcp.slow_start_after_idle))],
        ["tcp_no_metrics_save", str(int(tcp.no_metrics_save))],
        ["tcp_autocorking", str(int(tcp.autocorking))],
        ["MTU", str(link.mtu)],
        ["offloads (tso, gso, gro)", "on" if link.offloads else "off"],
        ["privileges", ""],
    ]
    for run in record.runs:
        for row, cell in zip(rows, _lab_cells(run), strict=True):
            row.append(cell)
    titles = tuple(f"read back: {run.server.label}" for run in record.runs)
    return Table(title="The labs", columns=("", "asked", *titles), rows=tuple(tuple(row) for row in rows))


def machine(record: RunRecord) -> Table:
    """Return the machine and the versions."""
    env = record.environment
    rows = [
        ("netlab", env.netlab),
        ("kernel", env.kernel),
        ("machine", f"{env.machine}, {env.cpus} CPUs"),
        ("Python", env.python),
    ]
    rows += sorted({**env.tools, **env.packages}.items())
    return Table(title="The machine", columns=("what", "version"), rows=tuple(rows))


_FIGURES = (
    "version",
    "first_row p50",
    "eos p50",
    "tail p50",
    "tail p99",
    "tail max",
    "sound queries",
    "extra round trips",
    "cause",
    "segments per query",
    "PSH segments per query",
    "PSH segments, whole capture",
)


def _figures(run: ServerRun, verdict: Verdict | None) -> list[str]:
    samples = sound(run)
    first_row = _summary([s.first_row for s in samples])
    eos, tail = _summary([s.eos for s in samples]), _summary([s.tail for s in samples])
    return [
        run.version or DASH,
        _ms(None if first_row is None else first_row.p50),
        _ms(None if eos is None else eos.p50),
        *((_ms(tail.p50), _ms(tail.p99), _ms(tail.maximum)) if tail is not None else (DASH, DASH, DASH)),
        f"{len(samples)} of {len(run.samples)}",
        DASH if verdict is None else ", ".join(_count(t) for t in verdict.extra_round_trips) or DASH,
        DASH if verdict is None or verdict.cause is None else verdict.cause,
        _range(run, lambda exchange: sum(flight.segments for flight in exchange.flights)),
        _range(run, _pushes),
        DASH if run.psh is None else str(run.psh.segments),
    ]


def _range(run: ServerRun, count: Callable[[Exchange], int]) -> str:
    """Return the least and the most of `count` over the measured exchanges."""
    counts = {count(exchange) for exchange in matched_exchanges(run) if exchange is not None}
    if not counts:
        return DASH
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _pushes(exchange: Exchange) -> int:
    return sum(1 for s in exchange.segments if s.direction is Direction.TO_CLIENT and s.push and s.length)


def _lab_cells(run: ServerRun) -> list[str]:
    facts = run.lab
    if facts is None:
        return [DASH] * 16
    server = next(end for end in facts.ends if end.name == "server")
    sysctl = {name.rpartition(".")[2]: value for name, value in server.sysctls.items()}
    return [
        _rtt(run.rtt),
        "",
        "",
        "",
        "",
        facts.backend.value,
        facts.emulation.get("scheduling", server.qdisc),
        _late(run.lateness),
        server.route.get("initcwnd", DASH),
        server.route.get("cc_algo", DASH),
        sysctl.get("tcp_slow_start_after_idle", DASH),
        sysctl.get("tcp_no_metrics_save", DASH),
        sysctl.get("tcp_autocorking", DASH),
        str(server.mtu),
        ", ".join(f"{n} {'on' if server.offloads.get(n) else 'off'}" for n in ("tso", "gso", "gro")),
        facts.privileges,
    ]


def _rtt(report: RttReport | None) -> str:
    if report is None:
        return DASH
    return f"{as_ms(report.median):.3f} ms (ping, {report.received} of {report.sent})"


def _late(report: LatenessReport | None) -> str:
    if report is None or report.p99 is None or report.worst is None:
        return DASH
    return f"{report.p99 / 1000:.0f} / {report.worst / 1000:.0f} us of {report.packets}"


def _summary(values: list[int | None]) -> Summary | None:
    return summarise([value for value in values if value is not None])


def _count(value: int | None) -> str:
    return DASH if value is None else str(value)


def _ms(value: int | None) -> str:
    return DASH if value is None else f"{as_ms(value):.2f} ms"

"""Bounds on time: what `netlab repro` costs beside waiting, and the probe against the capture."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from netlab.analysis import diagnose
from netlab.analysis.match import matched_exchanges
from netlab.capture.read import open_capture
from netlab.lab import Lab
from netlab.run import Request, measure
from netlab.scenario import Backend, Emulation, Link, Scenario, Server, ServerKind, Workload
from netlab.servers.interface import start
from netlab.store import load_record
from netlab.units import NS_PER_MS, NS_PER_S, ms, seconds


class Nobody:
    """An observer that observes nothing."""

    def __getattr__(self, _name: str):
        return lambda *_arguments: None


def engine_start(version: str, folder: Path) -> float:
    server = Server(kind=ServerKind.ENGINE, label=f"clickhouse:{version}", version=version)
    with Lab() as lab:
        began = time.monotonic()
        running = start(server, lab.server, str(folder / f"{version}.log"))
        took = time.monotonic() - began
        running.close()
    return took


def test_repro_costs_its_waiting_the_engines_starts_and_two_seconds(tmp_path: Path):
    for version in ("26.7", "26.9"):  # the files of both are in the page cache then
        engine_start(version, tmp_path)
    folder = tmp_path / "run"
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "netlab", "repro", "--quiet", "--output", str(folder)], check=True)
    wall = time.monotonic() - began
    record = load_record(folder)
    waited = 0
    for run in record.runs:
        assert run.rtt is not None
        samples = (*run.warmups, *run.samples)
        waited += sum(s.idle for s in run.samples) + sum(s.eos or 0 for s in samples)
        waited += 3 * run.rtt.median + 50 * NS_PER_MS  # connect, login and ten pings 5 ms apart
    starts = sum(run.startup or 0 for run in record.runs) / NS_PER_S
    rest = wall - waited / NS_PER_S - starts
    print(
        f"\nwall {wall:.2f} s, waiting {waited / NS_PER_S:.2f} s, engines' starts {starts:.2f} s, the rest {rest:.2f} s"
    )
    assert rest <= 2.0


def test_the_probes_tail_is_the_captures(tmp_path: Path):
    work = Workload(count=100, idle=ms(20), warmup=5, timeout=seconds(10))
    server = Server(kind=ServerKind.SCRIPTED, label="scripted")
    link = Link(backend=Backend.RELAY, to_client=Emulation(delay=ms(4)))
    scenario = Scenario(link=link, servers=(server,), workload=work)
    runs = []
    measure(Request(scenario=scenario, folder=tmp_path), server, Nobody(), runs.append)
    (run,) = runs
    path = tmp_path / next(c.path for c in run.captures if c.vantage == "client")
    with open_capture(path) as capture:
        found = diagnose(capture.segments(), file=path.name, summary=capture.summary)
    from dataclasses import replace

    exchanges = matched_exchanges(replace(run, diagnosis=found))
    samples = [s for s in run.samples if s.void is None]
    differences = [
        abs(s.tail - e.tail)
        for s, e in zip(samples, exchanges, strict=True)
        if e is not None and e.tail is not None and s.tail is not None
    ]
    assert len(differences) >= 100
    median = statistics.median(differences)
    print(
        f"\nprobe's tail against the capture's: median difference {median / 1000:.1f} us of {len(differences)} queries"
    )
    assert median <= ms(0.05)

"""Reports of a run: figures as measured, missing ones absent, hostile text inert, frames with documented units."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from netlab.analysis import diagnose
from netlab.analysis.explain import Verdict, explain
from netlab.analysis.match import matched_exchanges
from netlab.capture.psh import psh_table
from netlab.capture.read import open_capture
from netlab.record import Environment, RunRecord, ServerRun
from netlab.report import frames, html, markdown, plots, save, tables
from netlab.report.document import Document, Plate
from netlab.samples import QueryException, Sample, StampSource
from netlab.scenario import Scenario, Server, ServerKind
from netlab.units import ms

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
HOSTILE = "<script>alert(1)</script> | `x` \x1b[31m \u202e [a](http://b) **b** \n# t @someone"
WARMUPS = 5


def a_run(version: str) -> ServerRun:
    """The golden capture as the run that made it: its exchanges are the samples."""
    path = CAPTURES / f"clickhouse-{version}-rtt32-initcwnd8.server.pcapng"
    with open_capture(path) as capture:
        found = diagnose(capture.segments(), file=path.name, summary=capture.summary)
    exchanges = [e for e in found.exchanges if e.index is not None and e.index >= WARMUPS]
    samples = tuple(
        Sample(
            index=number, sent_at=e.sent_at, idle=ms(2000), first_row_at=e.first_row_at, eos_at=e.eos_at, rows=1,
            bytes=e.response_bytes, arrivals=(), stamps=StampSource.KERNEL,
        )
        for number, e in enumerate(exchanges, 1)
    )  # fmt: skip
    server = Server(kind=ServerKind.ENGINE, label=f"clickhouse:{version}", version=version)
    return ServerRun(
        server=server, version=version, lab=None, rtt=None, lateness=None, warmups=(), samples=samples,
        diagnosis=found, psh=psh_table(path, 9000),
    )  # fmt: skip


def a_record(*runs: ServerRun, **changes: object) -> RunRecord:
    machine = Environment(
        netlab="0", python="3", kernel="Linux", machine="x86_64", cpus=2, tools={"tshark": "4"}, packages={}
    )
    record = RunRecord(
        run_id="r", started_at=1, finished_at=2, command_line=("netlab", "repro"), scenario=Scenario(),
        environment=machine, runs=runs,
    )  # fmt: skip
    return replace(record, **changes)


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return a_record(a_run("26.7"), a_run("26.9"))


def verdicts_of(record: RunRecord) -> list[Verdict]:
    return [explain(run, matched_exchanges(run), record.scenario) for run in record.runs]


def test_the_words_follow_the_packets(record: RunRecord):
    before, after = verdicts_of(record)
    assert before.headline == "1 extra round trip in each of 3 queries: idle_window_restart"
    assert before.extra_round_trips == (1, 1, 1) and after.extra_round_trips == (0, 0, 0)
    assert "the window after idle was 8 segments, the response needs 9" in before.sentences[0]
    assert "frames" in before.sentences[0]
    heals = " ".join(what for _, what in before.remedies)
    assert "initcwnd 9" in heals and "send_profile_events" in heals and "tcp_slow_start_after_idle" in heals
    assert after.cause == "healthy" and after.remedies == ()


def test_side_by_side_has_a_column_a_server(record: RunRecord):
    table = tables.headline(record, verdicts_of(record))
    assert table.columns == ("", "clickhouse:26.7", "clickhouse:26.9")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["extra round trips"] == ("1, 1, 1", "0, 0, 0")
    assert rows["PSH segments per query"] == ("8", "3")
    assert rows["cause"] == ("idle_window_restart", "healthy")
    assert float(rows["tail p50"][0].split()[0]) > 28 > 3 > float(rows["tail p50"][1].split()[0])


def test_a_figure_that_was_not_measured_is_a_dash_and_a_void_one_does_not_count(record: RunRecord):
    run = record.runs[0]
    lost = replace(run.samples[0], first_row_at=None, eos_at=None)
    late = replace(run.samples[1], eos_at=run.samples[1].sent_at + ms(999), void="late")
    broken = replace(run, samples=(lost, late), psh=None, diagnosis=None)
    table = tables.headline(a_record(broken), [])
    rows = {row[0]: row[1] for row in table.rows}
    assert rows["tail p50"] == rows["eos p50"] == rows["PSH segments per query"] == tables.DASH
    assert rows["sound queries"] == "1 of 2"
    shown = tables.queries(broken, None).rows
    assert shown[0][1:4] == (tables.DASH,) * 3
    assert shown[1][-1] == "VOID: late"


def test_hostile_text_is_inert_everywhere(record: RunRecord, tmp_path: Path):
    run = record.runs[0]
    failed = replace(run.samples[0], exception=QueryException(code=1, name=HOSTILE, message=HOSTILE))
    scenario = replace(record.scenario, story=HOSTILE, workload=replace(record.scenario.workload, query=HOSTILE))
    hostile = a_record(
        replace(run, samples=(failed, *run.samples[1:]), error=HOSTILE), scenario=scenario, notes=(HOSTILE,),
        command_line=("netlab", HOSTILE),
    )  # fmt: skip
    save(hostile, verdicts_of(hostile), tmp_path)
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert "<script" not in page and "http://b" in page
    for shown in (page, text):
        assert "\x1b" not in shown and "\u202e" not in shown
    outside_code = re.sub(r"(?<![`\\])(`+) .*? \1(?!`)", "", text)
    assert "<script" not in outside_code and "\n# t" not in text and "[a](http" not in outside_code
    rows = [line for line in text.splitlines() if line.startswith("| 1 ")]
    assert rows and rows[0].count(" | ") == len(tables.queries(hostile.runs[0], None).columns) - 1


def test_the_page_needs_no_network_and_no_script(record: RunRecord):
    drawn = plots.tails(record.runs, ms(32))
    plates = [Plate(name="a.png", what=what, picture=drawn, folded=what != "a picture") for what in ("a picture", "b")]
    page = html.render(Document(title="t", blocks=(*plates, tables.headline(record, verdicts_of(record)))))
    assert "default-src 'none'" in page and page.count("<svg ") == 2 and 'aria-label="a picture"' in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert 'name="viewport"' in page and "prefers-color-scheme: dark" in page


def test_a_code_span_cannot_be_closed_from_inside():
    assert markdown.code("a`` b") == "``` a`` b ```"
    assert markdown.code("plain") == "`plain`"


def test_pictures_and_reports_are_written(record: RunRecord, tmp_path: Path):
    save(record, verdicts_of(record), tmp_path)
    for name in ("waterfall.png", "histogram.png", "tails.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert name in (tmp_path / "report.md").read_text()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_frames_have_documented_columns_and_units(record: RunRecord):
    samples = frames.samples_frame(record)
    assert list(samples["server"].unique()) == ["clickhouse:26.7", "clickhouse:26.9"]
    assert samples["tail"].iloc[0] > 28 and math.isnan(samples["lateness"].iloc[0])
    diagnosis = record.runs[0].diagnosis
    exchanges = frames.exchanges_frame(diagnosis)
    assert exchanges[exchanges["index"] >= WARMUPS]["cause"].unique().tolist() == ["idle_window_restart"]
    segments = frames.segments_frame(diagnosis)
    assert (segments[segments["labels"] == "EndOfStream"]["length"] == 1).all()
    assert frames.psh_frame(record.runs[0].psh)["count"].sum() == record.runs[0].psh.segments

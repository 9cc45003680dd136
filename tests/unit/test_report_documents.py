"""Documents: what runs, captures and pairs of captures are said to be; absent figures are absent; files are whole."""

import csv
import errno
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from report_records import AFTER, RTT, a_diagnosis, a_record, a_run, an_exchange

from netlab.analysis.explain import Verdict, explain
from netlab.analysis.match import matched_exchanges
from netlab.diagnosis import Baseline, Cause, Exchange
from netlab.errors import OutputError
from netlab.record import RunRecord
from netlab.report import export, frames, html, markdown, save, save_document, save_queries
from netlab.report.compare import Side, compare_document
from netlab.report.counts import DASH
from netlab.report.diagnosis import diagnosis_document
from netlab.report.document import Document, Section, Table, Text, Tone
from netlab.samples import QueryException
from netlab.units import ms


def verdicts(record: RunRecord) -> list[Verdict]:
    return [explain(run, matched_exchanges(run), record.scenario) for run in record.runs]


def table(document: Document, title: str) -> dict[str, tuple[str, ...]]:
    found = [block for block in document.blocks if isinstance(block, Table) and block.title == title]
    assert len(found) == 1, [block.title for block in document.blocks if isinstance(block, Table)]
    return {row[0]: row[1:] for row in found[0].rows}


def sections(document: Document) -> list[Section]:
    return [block for block in document.blocks if isinstance(block, Section)]


BEFORE_SIDE = Side(label="26.7", diagnosis=a_diagnosis(*(an_exchange(i) for i in range(5)), file="before.pcapng"))
AFTER_SIDE = Side(
    label="26.9",
    diagnosis=a_diagnosis(*(an_exchange(i, AFTER, stalled=False) for i in range(3)), file="after it.pcapng"),
    psh=a_run("26.9", stalled=False).psh,
)


@cache
def compared() -> Document:
    """The usual comparison, drawn once."""
    return compare_document(BEFORE_SIDE, AFTER_SIDE)


class TestRun:
    def test_the_files_of_a_run_are_there_and_name_each_other(self, tmp_path: Path):
        record = a_record()
        save(record, verdicts(record), tmp_path)
        names = {path.name for path in tmp_path.iterdir()}
        pictures = {"waterfall", "queries", "histogram", "tails", "26.7.queries", "26.9.queries"}
        assert names == {f"{n}.{kind}" for n in pictures for kind in ("png", "svg")} | {"report.md", "report.html"}
        text = (tmp_path / "report.md").read_text()
        assert all(f"]({name}.png)" in text for name in pictures)
        assert (tmp_path / "report.html").read_text().count("<svg ") == len(pictures)

    def test_pictures_of_an_older_run_in_the_folder_do_not_stay(self, tmp_path: Path):
        record = a_record()
        save(record, verdicts(record), tmp_path)
        one = a_record(record.runs[0])
        save(one, verdicts(one), tmp_path)
        assert not (tmp_path / "histogram.png").exists() and not (tmp_path / "histogram.svg").exists()
        assert "histogram" not in (tmp_path / "report.md").read_text()

    def test_a_run_that_measured_nothing_is_reported_all_the_same(self, tmp_path: Path):
        run = replace(
            a_run("26.7", stalled=True), samples=(), lab=None, rtt=None, lateness=None, diagnosis=None, psh=None,
            version=None, captures=(), error="connection refused",
        )  # fmt: skip
        save(a_record(run, interrupted="SIGTERM"), [], tmp_path)
        text = (tmp_path / "report.md").read_text()
        assert "**clickhouse:26.7: ended early: connection refused**" in text and "Interrupted by SIGTERM" in text
        assert f"| tail p50 | {DASH} |" in text and f"| PSH segments, whole capture | {DASH} |" in text
        assert not list(tmp_path.glob("*.png"))

    def test_a_void_query_is_marked_also_when_it_failed(self, tmp_path: Path):
        run = a_run("26.7", stalled=True)
        failed = replace(run.samples[0], void="late", exception=QueryException(code=60, name="NO", message="such"))
        record = a_record(replace(run, samples=(failed, *run.samples[1:])))
        save(record, verdicts(record), tmp_path)
        assert "VOID: late; exception 60 NO: such" in (tmp_path / "report.md").read_text()

    def test_void_samples_are_in_no_statistic(self):
        run = a_run("26.7", stalled=True)
        slow = replace(run.samples[0], eos_at=run.samples[0].eos_at + ms(500), void="late")
        record = a_record(replace(run, samples=(slow, *run.samples[1:])))
        from netlab.report import tables

        rows = {row[0]: row[1] for row in tables.headline(record, verdicts(record)).rows}
        assert (rows["tail max"], rows["sound queries"]) == ("32.02 ms", "4 of 5")


class TestCompare:
    def test_figures_are_per_exchange_so_that_lengths_may_differ(self):
        found = table(compared(), "Side by side")
        assert found["exchanges"] == ("5", "3")
        assert found["segments an exchange"] == ("9.0", "4.0")
        assert found["PSH segments an exchange (about one a write)"] == ("8.0", "3.0")
        assert found["bytes an exchange"] == ("2140", "2140")
        assert found["extra round trips"] == ("1", "0")
        assert found["fill against MSS"] == (f"{2140 / 9 / 1448:.1%}", f"{2140 / 4 / 1448:.1%}")
        assert found["PSH segments, whole capture"] == (DASH, "15")

    def test_causes_come_and_go(self):
        document = compared()
        assert sections(document)[0].title == "Causes gone, none new" and sections(document)[0].tone is Tone.GOOD
        assert "gone: idle_window_restart (5 of 5 exchanges)" in sections(document)[0].sentences
        assert table(document, "Causes: exchanges") == {
            "idle_window_restart": ("5", "0", "gone"), "healthy": ("0", "3", "new"),
        }  # fmt: skip
        back = compare_document(AFTER_SIDE, BEFORE_SIDE)
        assert sections(back)[0].title == "New causes" and sections(back)[0].tone is Tone.BAD

    def test_times_have_p50_p99_maximum_and_n(self):
        found = table(compared(), "Times, ms: p50 / p99 / max / n")
        assert found["tail"] == ("32.02 / 32.02 / 32.02 / 5", "0.12 / 0.12 / 0.12 / 3")
        assert found["RTT"] == ("32.00 / 32.00 / 32.00 / 5", "32.00 / 32.00 / 32.00 / 3")

    def test_sizes_add_up(self):
        document = compared()
        pushed, every = table(document, "PSH segments by size"), table(document, "All segments by size")
        assert "1448" not in pushed and every["1448"] == ("5 (1.00)", "3 (1.00)")
        assert pushed["1"] == ("5 (1.00)", "") and pushed["total"] == ("40 (3,460 B)", "9 (2,076 B)")
        assert every["total"] == ("45 (10,700 B)", "12 (6,420 B)")

    def test_a_capture_without_exchanges_is_said_to_be_one(self, tmp_path: Path):
        empty = Side(label="empty", diagnosis=a_diagnosis())
        document = compare_document(BEFORE_SIDE, empty)
        assert sections(document)[0].title == "No exchange in empty: nothing to compare"
        assert table(document, "Side by side")["segments an exchange"] == ("9.0", DASH)
        assert table(document, "Times, ms: p50 / p99 / max / n")["tail"][1] == DASH
        save_document(document, tmp_path)
        save_document(compare_document(empty, empty), tmp_path)

    def test_exchanges_whose_segments_were_not_kept_count_in_no_size(self):
        bare = replace(an_exchange(7), segments=())
        side = replace(BEFORE_SIDE, diagnosis=a_diagnosis(*BEFORE_SIDE.diagnosis.exchanges, bare))
        assert table(compare_document(side, AFTER_SIDE), "Side by side")["segments an exchange"] == ("9.0", "4.0")

    def test_the_command_can_be_typed_again(self):
        document = compared()
        assert Text(text="Again:", code="netlab compare before.pcapng 'after it.pcapng'") in document.blocks


class TestDiagnosis:
    def a_document(self, *exchanges: Exchange) -> Document:
        return diagnosis_document(a_diagnosis(*exchanges))

    def test_each_cause_is_told_with_its_evidence_and_its_picture(self):
        document = self.a_document(*(an_exchange(i) for i in range(5)), an_exchange(5, AFTER, stalled=False))
        assert sections(document)[0].title == "A cause in 5 of 6 exchanges"
        told = [s for s in sections(document) if "connection" in s.title]
        assert [s.title for s in told] == [f"connection 0, exchange {i}: idle_window_restart" for i in range(3)]
        assert told[0].sentences[0] == (
            "8 segments, then an ACK [idle_window_restart, 31.66 ms = 0.99 RTT, confidence 98%; frames 18, 19, 20]"
        )
        names = [plate.name for plate in document.plates]
        assert names == ["windows.png", *(f"exchange-0-{i}.png" for i in range(3))]

    def test_undetermined_says_what_would_settle_it(self):
        exchange = replace(
            an_exchange(0), cause=Cause.UNDETERMINED, findings=(), settle="a capture at the server", also=(),
            extra_round_trips=None, rtt=None, baselines=(Baseline(method="tapo", verdict="NO_STALL"),),
        )  # fmt: skip
        document = self.a_document(exchange)
        assert "to settle it: a capture at the server" in sections(document)[1].sentences
        assert "tapo would say: NO_STALL" in sections(document)[1].sentences
        assert sections(document)[1].tone is Tone.PLAIN and sections(document)[0].tone is Tone.PLAIN
        assert table(document, "Exchanges")["0:0"][1:3] == (DASH, DASH)

    def test_a_capture_of_ten_thousand_exchanges_is_one_page(self):
        one = an_exchange(0)
        many = [replace(one, index=i, segments=()) for i in range(10_000)]
        document = self.a_document(*many)
        assert len(markdown.render(document)) < 100_000
        exchanges = next(b for b in document.blocks if isinstance(b, Table) and b.title == "Exchanges")
        assert exchanges.notes == ("9,800 more are in the JSON.",)

    def test_nothing_found_is_said(self):
        assert sections(self.a_document())[0].title == "No exchange in this capture"

    def test_hostile_names_stay_text_in_both(self):
        bad = "<script>|`$x$\x1b[2J\u202e"
        exchange = replace(an_exchange(0), query=bad, exception=bad)
        document = diagnosis_document(replace(a_diagnosis(exchange), file=bad))
        page = html.render(document)
        assert "<script" not in page and "\x1b" not in page + markdown.render(document)
        assert "netlab diagnose" in page


class TestSaving:
    def test_a_folder_that_is_none_is_an_output_error_with_a_way_out(self, tmp_path: Path):
        (tmp_path / "file").write_text("")
        with pytest.raises(OutputError, match="Not a directory") as caught:
            save(a_record(), [], tmp_path / "file")
        assert caught.value.exit_code == 4 and "--output" in caught.value.hint

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
    def test_a_full_disk_leaves_no_half_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
        def fail(descriptor: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OutputError, match=os.strerror(number)):
            save_queries(a_run("26.7", stalled=True), tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_document_is_written_whole(self, tmp_path: Path):
        document = compared()
        save_document(document, tmp_path)
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {plate.name for plate in document.plates} | {"report.md", "report.html"}


class TestFrames:
    def test_arrivals_are_ms_from_the_request(self):
        found = frames.arrivals_frame(a_record())
        mine = found[(found["server"] == "clickhouse:26.7") & (found["query"] == 2)]
        assert list(mine["size"]) == [28, 36, 8, 11, 1448, 586, 12, 10, 1]
        assert mine["kind"].iloc[-1] == "EndOfStream" and mine["at"].iloc[-1] == pytest.approx(66.19, abs=0.01)

    def test_samples_and_exchanges_agree_on_the_tail(self):
        record = a_record()
        samples = frames.samples_frame(record).groupby("server")["tail"].max()
        exchanges = frames.exchanges_frame(record.runs[0].diagnosis)
        assert samples["clickhouse:26.7"] == pytest.approx(exchanges["tail"].max())
        assert list(exchanges["segments"]) == [9] * 5 and list(exchanges["pushes"]) == [8] * 5

    def test_missing_figures_are_missing_and_not_zero(self):
        exchange = replace(
            an_exchange(0), rtt=None, first_row_at=None, extra_round_trips=None, segments=(), exception=None
        )
        row = frames.exchanges_frame(a_diagnosis(exchange)).iloc[0]
        for name in ("rtt", "first_row", "tail", "extra_round_trips", "segments", "pushes", "exception"):
            assert pd.isna(row[name]), name

    @pytest.mark.parametrize("make", [frames.exchanges_frame, frames.segments_frame])
    def test_an_empty_frame_has_the_columns_and_types_of_a_full_one(self, make):
        full, empty = make(a_diagnosis(an_exchange(0))), make(a_diagnosis())
        assert len(empty) == 0 and len(full) > 0
        assert list(full.dtypes.items()) == list(empty.dtypes.items())


class TestExport:
    def test_csv_holds_every_exchange_and_gaps_where_nothing_was_measured(self):
        both = [BEFORE_SIDE.diagnosis, a_diagnosis(replace(an_exchange(0), rtt=None), file="x")]
        rows = list(csv.DictReader(io.StringIO(export.exchanges_csv(both).decode())))
        assert [row["file"] for row in rows] == ["before.pcapng"] * 5 + ["x"]
        assert rows[0]["rtt"] == "32.0" and rows[-1]["rtt"] == ""
        assert float(rows[0]["tail"]) == pytest.approx(RTT / 1e6 + 0.02)

    @pytest.mark.parametrize("query", ["=1+1", "+1", "-1", "@SUM(A1)", "a\n=b", '"; x', "\x1b[2J"])
    def test_no_query_becomes_a_formula_or_a_row(self, query: str):
        data = export.exchanges_csv([a_diagnosis(replace(an_exchange(0), query=query))])
        rows = list(csv.DictReader(io.StringIO(data.decode())))
        assert len(rows) == 1 and rows[0]["query"][0] not in "=+-@" and "\x1b" not in rows[0]["query"]

    def test_parquet_comes_back_as_the_frame(self):
        data = export.exchanges_parquet([BEFORE_SIDE.diagnosis])
        back = pd.read_parquet(io.BytesIO(data))
        expected = frames.exchanges_frame(BEFORE_SIDE.diagnosis)
        assert list(back.columns) == list(expected.columns)
        assert list(back["tail"]) == list(expected["tail"])
        assert list(back["sent_at"]) == list(expected["sent_at"])

    def test_without_pyarrow_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch):
        def missing(*_: object, **__: object) -> None:
            raise ImportError("no pyarrow")

        monkeypatch.setattr(pd.DataFrame, "to_parquet", missing)
        with pytest.raises(OutputError) as caught:
            export.exchanges_parquet([BEFORE_SIDE.diagnosis])
        assert "netlab-toolkit[parquet]" in caught.value.hint

    @pytest.mark.parametrize("diagnoses", [[], [a_diagnosis()]])
    def test_nothing_is_a_header(self, diagnoses: Sequence):
        assert export.exchanges_csv(diagnoses).decode().startswith("file,connection,index")


def test_a_home_that_cannot_be_written_is_no_matter_of_the_reader(tmp_path: Path):
    (tmp_path / "file").write_text("")
    script = "from netlab.report import plots; plots.strips([('a', [1])], 'x')"
    kept = {name: value for name, value in os.environ.items() if name not in ("MPLCONFIGDIR", "XDG_CONFIG_HOME")}
    environment = {**kept, "HOME": str(tmp_path / "file"), "XDG_CACHE_HOME": str(tmp_path / "file")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")

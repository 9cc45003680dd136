"""Records: written whole, read back, and read by later versions."""

import json
import os
from dataclasses import fields

import pytest

from netlab.errors import NetlabError, OutputError, UsageError
from netlab.record import SCHEMA, Environment, RunRecord, ServerRun
from netlab.scenario import Scenario, Server, ServerKind
from netlab.store import RECORD, load_record, record_schema, save_record

ENVIRONMENT = Environment(
    netlab="0", python="3", kernel="6", machine="x86_64", cpus=2, tools={"tshark": "4"}, packages={}
)


def record(**changes):
    server = Server(kind=ServerKind.SCRIPTED, label="scripted")
    run = ServerRun(
        server=server, version="26.7.2", lab=None, rtt=None, lateness=None, warmups=(), samples=(), error="it died"
    )
    fields = {
        "run_id": "r",
        "started_at": 1,
        "finished_at": None,
        "command_line": ("netlab", "repro", "π"),
        "scenario": Scenario(),
        "environment": ENVIRONMENT,
        "runs": (run,),
    }
    return RunRecord(**(fields | changes))


def test_a_record_reads_back_from_its_file_and_its_folder(tmp_path):
    path = save_record(record(), tmp_path)
    assert path == tmp_path / RECORD
    assert load_record(path) == load_record(tmp_path) == record()
    assert os.listdir(tmp_path) == [RECORD]


def test_a_second_record_replaces_the_first_whole(tmp_path):
    save_record(record(run_id="first" * 10_000), tmp_path)
    save_record(record(run_id="second"), tmp_path)
    assert load_record(tmp_path).run_id == "second"
    assert os.listdir(tmp_path) == [RECORD]


def test_older_and_newer_records_of_the_same_major_version_load(tmp_path):
    path = save_record(record(), tmp_path)
    said = json.loads(path.read_bytes())
    del said["notes"], said["interrupted"], said["runs"][0]["void"], said["scenario"]["expectations"]
    said["schema"] = SCHEMA + ".9"
    said["of the future"] = {"x": 1}
    said["runs"][0]["more"] = [1]
    path.write_text(json.dumps(said))
    loaded = load_record(path)
    assert loaded.runs == record().runs
    assert loaded.notes == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "netlab.run/2"}, "its schema is netlab.run/2, not netlab.run/1"),
        ({"schema": "other/1"}, "its schema is other/1"),
        ({"schema": None}, "its schema is None"),
        ({"runs": 5}, "not a sound record"),
        ({"started_at": "x"}, "not a sound record"),
    ],
)
def test_what_is_no_such_record_is_named(tmp_path, change, said):
    path = save_record(record(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(UsageError) as caught:
        load_record(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"schema": "netlab.run/1"}', b"[" * 100_000, b"null"])
def test_garbage_is_one_clear_error(tmp_path, raw):
    (tmp_path / RECORD).write_bytes(raw)
    with pytest.raises(NetlabError, match=RECORD):
        load_record(tmp_path)


def test_a_cut_record_and_a_missing_one(tmp_path):
    path = save_record(record(), tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match="the file is cut"):
        load_record(path)
    with pytest.raises(UsageError, match="No such file"):
        load_record(tmp_path / "none")


def test_a_folder_that_is_not_there_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="none"):
        save_record(record(), tmp_path / "none")


def test_the_schema_describes_records():
    schema = record_schema()
    assert json.dumps(schema)
    definition = schema["$defs"]["RunRecord"]
    assert set(definition["properties"]) == {field.name for field in fields(RunRecord)}

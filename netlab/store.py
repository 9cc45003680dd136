"""Files in and out: run records as JSON, written by rename, so that a reader never sees half of one."""

from pathlib import Path
from typing import Any

import msgspec

from netlab.errors import UsageError
from netlab.files import write_file
from netlab.record import SCHEMA, RunRecord

RECORD = "record.json"
_KIND, _, _MAJOR = SCHEMA.partition("/")


def save_record(record: RunRecord, folder: Path) -> Path:
    """Write `record` into `folder`; return the file's path. Raises OutputError."""
    path = folder / RECORD
    write_file(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return path


def load_record(path: Path) -> RunRecord:
    """Read a record, or the record of a run's folder. Raises UsageError that says where and what.

    Any record of the same major schema loads: fields that it does not know yet take their defaults, and fields that
    this netlab does not know are left out.
    """
    file = path / RECORD if path.is_dir() else path
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", hint="name a run's folder or its record.json") from error
    try:
        schema = msgspec.json.decode(raw, type=dict[str, Any]).get("schema")
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{file}: not JSON ({error})", hint="the file is cut or not a record") from error
    kind, _, version = str(schema).partition("/")
    if kind != _KIND or version.partition(".")[0] != _MAJOR:
        raise UsageError(f"{file}: its schema is {schema}, not {SCHEMA}", hint="read it with the netlab that wrote it")
    try:
        return msgspec.json.decode(raw, type=RunRecord)
    except msgspec.ValidationError as error:
        raise UsageError(f"{file}: not a sound record: {error}", hint="see `netlab schema`") from error


def record_schema() -> dict[str, Any]:
    """Return the JSON schema of records."""
    return msgspec.json.schema(RunRecord)

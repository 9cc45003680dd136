"""Writing files whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

from netlab.errors import OutputError


def write_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` whole or not at all. Raises OutputError."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.rename(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise OutputError(
            f"{path}: {error.strerror or error}", hint="choose a folder with room that can be written, with --output"
        ) from error


def make_folder(path: Path) -> None:
    """Make `path` and its parents, and see that it can be written. Raises OutputError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".netlab-", dir=path)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}", hint="choose another folder with --output") from error


def remove_file(path: Path) -> None:
    """Remove `path`, which may be gone already. Raises OutputError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}", hint="choose another folder with --output") from error

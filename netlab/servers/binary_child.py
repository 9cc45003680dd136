"""Become a clickhouse server: write its configuration into the lab's scratch, which only the lab sees, then exec it.

Argument: JSON {"address", "port", "scratch", "program": [...]}. Exit status: 73 no folder for its data, 126 the program
cannot be executed.
"""

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

_PR_SET_NO_NEW_PRIVS = 38
_NO_FOLDER, _CANNOT_EXECUTE = 73, 126
# What every version since 2018 wants; no section asks for system logs, and no other port is opened.
_CONFIG = """<?xml version="1.0"?>
<{root}>
<logger><level>warning</level><console>1</console></logger>
<listen_host>{address}</listen_host>
<tcp_port>{port}</tcp_port>
<path>{folder}/data/</path>
<tmp_path>{folder}/tmp/</tmp_path>
<user_files_path>{folder}/user_files/</user_files_path>
<format_schema_path>{folder}/format_schemas/</format_schema_path>
<users_config>{folder}/users.xml</users_config>
<default_profile>default</default_profile>
<default_database>default</default_database>
<mark_cache_size>67108864</mark_cache_size>
<uncompressed_cache_size>8388608</uncompressed_cache_size>
</{root}>
"""
_USERS = """<?xml version="1.0"?>
<{root}>
<profiles><default/></profiles>
<users><default><password></password><networks><ip>::/0</ip></networks>
<profile>default</profile><quota>default</quota></default></users>
<quotas><default/></quotas>
</{root}>
"""


def main() -> None:
    """Write the configuration and exec the program with --config-file."""
    given = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        folder = Path(tempfile.mkdtemp(prefix="clickhouse-", dir=given["scratch"]))
        for name in ("data", "tmp", "user_files", "format_schemas"):
            (folder / name).mkdir()
        # Before 20.x the root element had to be <yandex>; every version still reads it.
        root = "yandex"
        places = {"root": root, "address": given["address"], "port": given["port"], "folder": folder}
        (folder / "config.xml").write_text(_CONFIG.format_map(places))
        (folder / "users.xml").write_text(_USERS.format_map(places))
        os.chdir(folder)
    except OSError as error:
        _give_up(_NO_FOLDER, f"no folder for the data below {given['scratch']}: {error.strerror}")
    program = given["program"]
    try:
        os.execv(program[0], [*program, f"--config-file={folder}/config.xml"])
    except OSError as error:
        _give_up(_CANNOT_EXECUTE, f"{program[0]}: {error.strerror}")


def _give_up(status: int, why: str) -> NoReturn:
    sys.stderr.write(f"{why}\n")
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()

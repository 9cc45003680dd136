"""Which binaries are taken for ClickHouse servers, and how each wants to be started."""

import pytest

from netlab.errors import OutputError, ServerError, UsageError
from netlab.scenario import Server, ServerKind
from netlab.servers import binary, interface
from netlab.servers.child import ChildServer, log_tail


def script(folder, name, body):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"gone/clickhouse: no such file"):
        binary.find_program(str(tmp_path / "gone/clickhouse"))


def test_a_file_without_the_execute_bit_gets_the_command_that_sets_it(tmp_path):
    path = script(tmp_path, "clickhouse", "")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="not an executable file") as caught:
        binary.find_program(str(path))
    assert f"chmod +x {path}" in caught.value.hint


def test_a_folder_is_no_binary(tmp_path):
    with pytest.raises(UsageError, match="not an executable file"):
        binary.find_program(str(tmp_path))


@pytest.mark.parametrize(
    "body", ["echo true 9.1", "exit 0", "echo ClickHouse >&2", "exit 3"], ids=["other", "silent", "stderr", "fails"]
)
def test_what_is_not_clickhouse_is_refused_before_it_is_started(tmp_path, body):
    path = script(tmp_path, "server", body)
    with pytest.raises(ServerError, match="is not a ClickHouse server"):
        binary.find_program(str(path))


def test_a_file_that_the_kernel_cannot_run_is_refused(tmp_path):
    path = tmp_path / "clickhouse"
    path.write_bytes(b"\x7fELF but not really")
    path.chmod(0o755)
    with pytest.raises(ServerError, match="is not a ClickHouse server"):
        binary.find_program(str(path))


def test_a_bundle_is_told_to_serve(tmp_path):
    path = script(tmp_path, "clickhouse", '[ "$1" = server ] && echo "ClickHouse server version 26.7.2.1."')
    assert binary.find_program(str(path)) == [str(path), "server"]


def test_a_server_binary_is_started_as_it_is(tmp_path):
    path = script(tmp_path, "clickhouse-server", 'echo "ClickHouse server version 24.8.4.13 (official build)."')
    assert binary.find_program(str(path)) == [str(path)]


def test_a_server_that_knows_no_version_option_is_known_by_its_own_words(tmp_path):
    path = script(tmp_path, "clickhouse-server", "exit 64 # ClickHouse 18.16")
    assert binary.find_program(str(path)) == [str(path)]


def test_the_name_is_found_across_the_pieces_that_are_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"." * ((1 << 20) - 5) + b"ClickHouse")
    assert binary._mentions_clickhouse(path)
    path.write_bytes(b"." * (1 << 20) + b"ClickHous")
    assert not binary._mentions_clickhouse(path)


def test_a_running_server_is_not_started():
    with pytest.raises(UsageError, match="runs already") as caught:
        interface.start(Server(kind=ServerKind.REMOTE, label="db:9000", host="db"), None, "/dev/null")
    assert caught.value.hint == "use: netlab probe db:9000"


class NoHost:
    """Stands in for a host of a server that never gets as far as a process."""

    name, address, interface, scratch = "server", "127.0.0.1", "lo", "/tmp"

    def socket(self, family, kind, proto=0):
        import socket

        return socket.socket(family, kind, proto)

    def spawn(self, argv, **_options):
        raise ServerError("no process today")


def test_a_log_that_cannot_be_written_is_an_output_error(tmp_path):
    with pytest.raises(OutputError, match="No such file or directory") as caught:
        ChildServer(NoHost(), "x", 0, str(tmp_path / "gone/log")).launch(["true"], env={}, patience=1)
    assert "--output" in caught.value.hint


def test_a_spawn_that_fails_leaves_no_descriptor(tmp_path):
    import os

    before = len(os.listdir("/proc/self/fd"))
    server = ChildServer(NoHost(), "x", 0, str(tmp_path / "log"))
    with pytest.raises(ServerError, match="no process today"):
        server.launch(["true"], env={}, patience=1)
    assert len(os.listdir("/proc/self/fd")) == before
    assert (server.pid, server.alive(), server.failure()) == (None, False, "never started")
    server.close()


def test_the_logs_tail_is_one_safe_line(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"old\n" + b"".join(b"line %d\n" % i for i in range(20)) + b"\n\x1b[31mred\xff\n")
    assert log_tail(str(log), start=4) == "line 15 / line 16 / line 17 / line 18 / line 19 / \\x1b[31mred\ufffd"
    assert log_tail(str(log), start=log.stat().st_size) == ""
    assert log_tail(str(tmp_path / "none")) == ""

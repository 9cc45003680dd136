"""The engine cache: real pip on tiny wheels that we build, pinned by hash like the real ones."""

import hashlib
import json
import os
import platform
import shutil
import threading
import zipfile
from collections import namedtuple

import pytest

from netlab.errors import EngineError, UsageError
from netlab.scenario import Server, ServerKind
from netlab.servers import engine, installer
from netlab.validate import ENGINES, parse_server

FILES = {
    "chdb/__init__.py": b"",
    "chdb/_chdb.abi3.so": b"\x7fELF" + bytes(range(256)) * 64,
    "chdb_core.libs/stubs.so": b"\x7fELFstubs",
}


def build_wheel(folder, version="26.7.3", files=FILES):
    info = f"chdb_core-{version}.dist-info"
    inside = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: chdb-core\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in inside) + f"{info}/RECORD,,\n"
    path = folder / f"chdb_core-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in {**inside, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(name, data)
    return path


def content_of(files):
    lines = sorted(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def pin(sha256, content, machine=None):
    wheel = engine.Wheel(sha256=sha256, content=content)
    return engine.Pin(package="26.7.3", clickhouse="26.7.2.1", wheels={machine or platform.machine(): wheel})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and an index that holds one tiny wheel, pinned as 26.7."""
    index = tmp_path / "index"
    index.mkdir()
    wheel = build_wheel(index)
    monkeypatch.setenv("NETLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(
        engine, "PINNED", {"26.7": pin(hashlib.sha256(wheel.read_bytes()).hexdigest(), content_of(FILES))}
    )
    return tmp_path / "cache" / "engines"


@pytest.fixture
def installed(cache):
    return installer.install("26.7", lambda _text: None).path


def start_engine(host=None):
    engine.start(Server(kind=ServerKind.ENGINE, label="clickhouse:26.7", version="26.7"), host, "/dev/null")


def test_the_pins_are_the_spellings_that_scenarios_know():
    assert tuple(engine.PINNED) == ENGINES
    assert parse_server("clickhouse:26.7").version == "26.7"
    for pinned in engine.PINNED.values():
        assert set(pinned.wheels) == {"x86_64", "aarch64"}
        for wheel in pinned.wheels.values():
            assert len(bytes.fromhex(wheel.sha256)) == len(bytes.fromhex(wheel.content)) == 32


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"NETLAB_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a/engines"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/netlab/engines"),
        ({"HOME": "/c"}, "/c/.cache/netlab/engines"),
    ],
)
def test_cache_folder_follows_the_environment(monkeypatch, environment, folder):
    for name in ("NETLAB_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert str(engine.cache_folder()) == folder


def test_install_puts_the_wheels_files_and_a_manifest_into_the_cache(cache):
    said = []
    entry = installer.install("26.7", said.append)
    assert (entry.version, entry.clickhouse, entry.path) == ("26.7", "26.7.2.1", cache / "26.7")
    for name, data in FILES.items():
        assert (entry.path / name).read_bytes() == data
    manifest = json.loads((entry.path / "netlab-manifest.json").read_text())
    assert manifest["chdb/_chdb.abi3.so"]["sha256"] == hashlib.sha256(FILES["chdb/_chdb.abi3.so"]).hexdigest()
    assert said[-1] == "engine 26.7: installed"
    assert engine.installed() == [entry]
    assert sorted(path.name for path in cache.iterdir()) == [".26.7.lock", "26.7"]


def test_a_second_install_does_nothing(installed, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    said = []
    installer.install("26.7", said.append)
    assert said == ["engine 26.7: installed already"]


def test_two_installs_at_once_make_one(cache):
    said = []
    threads = [threading.Thread(target=installer.install, args=("26.7", said.append)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said.count("engine 26.7: installed") == 1
    assert said.count("engine 26.7: installed already") == 1
    engine.verify("26.7")


def test_install_repairs_a_corrupted_engine(installed):
    (installed / "chdb/_chdb.abi3.so").write_bytes(b"broken")
    installer.install("26.7", lambda _text: None)
    engine.verify("26.7")


def test_install_clears_what_a_killed_one_left(cache):
    stale = cache / ".26.7.new-abc" / "files"
    stale.mkdir(parents=True)
    (cache / "26.7").mkdir()  # no manifest: not whole
    assert engine.installed() == []
    installer.install("26.7", lambda _text: None)
    assert not stale.exists()
    engine.verify("26.7")


def test_a_wheel_with_another_hash_is_refused_and_nothing_stays(cache, monkeypatch):
    monkeypatch.setattr(engine, "PINNED", {"26.7": pin("0" * 64, content_of(FILES))})
    with pytest.raises(EngineError, match="pip could not install it"):
        installer.install("26.7", lambda _text: None)
    assert [path.name for path in cache.iterdir()] == [".26.7.lock"]


def test_a_wheel_that_unpacks_to_other_files_is_refused(cache, monkeypatch):
    right = engine.PINNED["26.7"].wheels[platform.machine()].sha256
    monkeypatch.setattr(engine, "PINNED", {"26.7": pin(right, "0" * 64)})
    with pytest.raises(EngineError, match="other files than the pinned ones"):
        installer.install("26.7", lambda _text: None)
    assert engine.installed() == []


def test_pip_without_the_package_says_so_in_one_line(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(EngineError) as caught:
        installer.install("26.7", lambda _text: None)
    assert "No matching distribution" in caught.value.what
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_install_wants_room_first(cache, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10**9, 10**9, 5 * 10**6))
    with pytest.raises(EngineError, match=r"needs 900 MB in .*; 5 MB are free"):
        installer.install("26.7", lambda _text: None)


def test_a_cache_that_cannot_be_made_is_named(monkeypatch, tmp_path, cache):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NETLAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="Not a directory") as caught:
        installer.install("26.7", lambda _text: None)
    assert "NETLAB_CACHE" in caught.value.hint


def test_unknown_versions_list_the_pinned_ones():
    for use in (lambda: engine.install("25.1", print), lambda: engine.remove("25.1"), lambda: engine.verify("25.1")):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.what == 'no engine "25.1"'
        assert caught.value.hint == "pinned engines: 26.7, 26.9"


def test_a_machine_without_a_wheel_is_told_so(cache, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(EngineError, match="no wheel for riscv64"):
        installer.install("26.7", lambda _text: None)


def test_starting_never_downloads(cache):
    with pytest.raises(EngineError) as caught:
        start_engine()
    assert caught.value.what == "engine 26.7 is not installed"
    assert caught.value.hint == "netlab engine install 26.7"
    assert not cache.exists()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda f: (f / "chdb/_chdb.abi3.so").write_bytes(b"x"), "chdb/_chdb.abi3.so is not the file"),
        (lambda f: (f / "chdb/__init__.py").unlink(), "chdb/__init__.py is missing"),
        (lambda f: (f / "chdb/extra.py").write_text("import os"), "chdb/extra.py is not part of it"),
        (lambda f: (f / "netlab-manifest.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "netlab-manifest.json").write_text('{"a": 1}'), "cannot be read"),
        (lambda f: (f / "netlab-manifest.json").write_text("[]"), "cannot be read"),
    ],
)
def test_verify_names_what_differs(installed, change, what):
    engine.verify("26.7")
    change(installed)
    with pytest.raises(EngineError, match=what) as caught:
        engine.verify("26.7")
    assert caught.value.hint == "netlab engine remove 26.7 && netlab engine install 26.7"


def test_a_manifest_that_was_changed_with_its_file_does_not_pass(installed):
    (installed / "chdb/_chdb.abi3.so").write_bytes(b"evil")
    engine.write_manifest(installed, engine.describe(installed))
    assert not engine.is_touched("26.7")
    with pytest.raises(EngineError, match="not the pinned ones"):
        engine.verify("26.7")


def test_a_corrupted_engine_is_not_started(installed):
    path = installed / "chdb/_chdb.abi3.so"
    path.write_bytes(b"x" * path.stat().st_size)  # the same size: the time gives it away
    with pytest.raises(EngineError, match="not the file that was installed"):
        start_engine()


def test_a_touched_engine_is_hashed_once_and_then_trusted_again(installed):
    os.utime(installed / "chdb/__init__.py", ns=(1, 1))
    assert engine.is_touched("26.7")
    engine.verify("26.7")
    assert not engine.is_touched("26.7")


def test_remove_takes_it_away_once(installed):
    engine.remove("26.7")
    assert not installed.exists()
    assert engine.installed() == []
    with pytest.raises(EngineError, match="not installed"):
        engine.remove("26.7")


def test_remove_takes_an_unsound_one_away_too(installed):
    (installed / "netlab-manifest.json").unlink()
    engine.remove("26.7")
    assert not installed.exists()


def test_an_interrupted_install_leaves_nothing_and_the_next_one_works(cache, monkeypatch):
    def interrupt(text):
        if text.endswith("so far"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(installer, "_TICK", 0.001)
        with pytest.raises(KeyboardInterrupt):
            installer.install("26.7", interrupt)
    assert [path.name for path in cache.iterdir()] == [".26.7.lock"]
    installer.install("26.7", lambda _text: None)
    engine.verify("26.7")

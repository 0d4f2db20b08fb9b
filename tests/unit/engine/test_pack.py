"""Packs: what is in them, that the same input gives the same bytes, and what cannot be packed."""

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from penstock.engine.spark import pack
from penstock.engine.spark.pack import CODE, MANIFEST, default_name, pack_code, read_manifest
from penstock.engine.spark.packing import Entry, files_below, ordered, write_tar
from penstock.errors import BadInput, EngineError, NotFound


@pytest.fixture
def helpers(tmp_path: Path) -> Path:
    package = tmp_path / "helpers"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("VALUE = 7\n")
    (package / "inner" / "rates.csv").write_text("a,b\n")
    return package


def python(path: Path, call: str) -> str:
    """What a Python without any library says, the pack on its path."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(path)}
    done = subprocess.run([sys.executable, "-S", "-c", call], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_penstock_is_imported_from_the_zip_with_what_was_included(tmp_path: Path, helpers: Path) -> None:
    made = pack_code(tmp_path / "a.zip", [helpers])
    assert python(tmp_path / "a.zip", "import penstock, helpers; print(penstock.__file__, helpers.VALUE)") == (
        f"{tmp_path / 'a.zip'}/penstock/__init__.pyc 7"
    )
    assert (made.kind, made.included) == (CODE, ["helpers"])
    assert read_manifest(tmp_path / "a.zip") == made
    made.check(tmp_path / "a.zip")


def test_the_same_input_gives_the_same_bytes_whatever_the_times_of_files(tmp_path: Path, helpers: Path) -> None:
    pack_code(tmp_path / "a.zip", [helpers])
    os.utime(helpers / "__init__.py", (1, 1))
    (helpers / "__pycache__").mkdir()
    (helpers / "__pycache__" / "x.pyc").write_text("left over")
    pack_code(tmp_path / "b.zip", [helpers])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_an_archive_has_the_same_bytes_too_and_says_first_what_it_is(tmp_path: Path, helpers: Path) -> None:
    entries = ordered([*files_below(helpers, "helpers"), Entry(MANIFEST, b"{}"), Entry("a", b"x", True)], MANIFEST)
    seen: list[tuple[int, int]] = []
    write_tar(tmp_path / "a.tar.gz", entries, lambda done, total: seen.append((done, total)))
    os.utime(helpers / "__init__.py", (1, 1))
    write_tar(tmp_path / "b.tar.gz", entries, lambda done, total: None)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as packed:
        assert packed.getnames() == [MANIFEST, "a", "helpers/__init__.py", "helpers/inner/rates.csv"]
        assert [m.mode for m in packed.getmembers()] == [0o644, 0o755, 0o644, 0o644]
    assert seen[-1][0] == seen[-1][1]


def test_an_interrupted_pack_leaves_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"before")
    with pytest.raises(FileNotFoundError):
        write_tar(tmp_path / "a.tar.gz", [Entry("a", tmp_path / "gone")], lambda done, total: None)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.tar.gz", b"before")]


@pytest.mark.parametrize("name", ["missing.py", "notes.txt", "empty", "penstock.py"])
def test_what_python_could_not_import_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "penstock.py").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=name):
        pack_code(tmp_path / "a.zip", [tmp_path / name])
    assert not (tmp_path / "a.zip").exists()


def library(site: Path, record: str | None, url: str | None = None) -> PathDistribution:
    info = site / "thing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
    if record is not None:
        (info / "RECORD").write_text(record)
    if url:
        (info / "direct_url.json").write_text(url)
    return PathDistribution(info)


def test_a_librarys_own_files_are_packed_without_tests_headers_and_scripts(tmp_path: Path) -> None:
    (tmp_path / "thing" / "tests").mkdir(parents=True)
    for name in ("thing/__init__.py", "thing/fast.so", "thing/fast.h", "thing/tests/x.py"):
        (tmp_path / name).touch()
    found = library(tmp_path, "thing/__init__.py,,\nthing/fast.so,,\nthing/fast.h,,\nthing/tests/x.py,,\n../../bin/thing,,\n")
    assert [entry.name for entry in pack.library_files(found)] == ["thing/__init__.py", "thing/fast.so"]


@pytest.mark.parametrize(
    ("record", "url", "why"),
    [
        ("thing/__init__.py,,\n", None, "its file thing/__init__.py is missing"),
        ("x.pth,,\n", '{"dir_info": {"editable": true}, "url": "file:///x"}', "editable mode"),
        (None, None, "does not say which files"),
    ],
)
def test_a_library_that_cannot_be_packed_is_named_with_the_reason(
    record: str | None, url: str | None, why: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=f"the library thing cannot be packed.*{why}"):
        pack.library_files(library(tmp_path, record, url))


def test_a_library_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no-such-library"):
        pack.pack_environment(tmp_path / "a.tar.gz", libraries=["no-such-library"])


def test_the_libraries_of_an_environment_are_those_that_tasks_need(tmp_path: Path) -> None:
    found = pack.needed(["penstock"], ["confluent-kafka"])
    assert found.keys() >= {"penstock", "pyarrow", "polars", "polars-runtime-32", "numpy", "orjson", "confluent-kafka"}
    assert not found.keys() & {"pyspark", "py4j", "click", "rich", "pytest", "duckdb"}


@pytest.mark.skipif(sys.platform != "linux", reason="environments are packed on Linux")
def test_an_environment_runs_where_it_is_unpacked_with_nothing_of_this_one(tmp_path: Path) -> None:
    """With one library, which has a compiled part; the whole of it runs on a cluster (tests/spark/test_cluster.py)."""
    few = {name: found for name, found in pack.needed(["penstock"]).items() if name in ("penstock", "orjson")}
    made = pack.write_environment(tmp_path / "env.tar.gz", few)
    assert (made.kind, list(made.libraries)) == (pack.ENVIRONMENT, ["orjson"])
    with tarfile.open(tmp_path / "env.tar.gz") as packed:
        packed.extractall(tmp_path / "elsewhere", filter="data")
    call = "import sys, orjson, penstock.errors; print(orjson.__file__, penstock.__file__, sys.prefix, *sys.path[1:], sep='\\n')"
    done = subprocess.run(
        [tmp_path / "elsewhere/bin/python", "-c", call], env={"PATH": "/bin:/usr/bin"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.split() if not line.startswith(str(tmp_path / "elsewhere"))] == []


@pytest.mark.parametrize("content", [b"", b"no pack", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_pack_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(BadInput, match="is not what `penstock pack` makes"):
        read_manifest(tmp_path / "a")
    with pytest.raises(NotFound, match="penstock pack"):
        read_manifest(tmp_path / "b")


def test_names_say_what_a_pack_is_for() -> None:
    assert default_name(CODE) == "penstock-0.1.0.zip"
    assert default_name("environment").startswith(f"penstock-0.1.0-py{sys.version_info.major}{sys.version_info.minor}-")


def test_the_zip_can_be_read_by_others(tmp_path: Path) -> None:
    pack_code(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as packed:
        assert packed.testzip() is None
        assert "penstock/engine/execute/placement.py" in packed.namelist()

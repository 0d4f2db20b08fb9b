"""The class-data archive: where it lies, and that one process builds it."""

import sys
from pathlib import Path

import pytest

from penstock.engine.spark.archive import archive_path, build, build_if_free, building, cache_directory
from penstock.engine.spark.java import Java
from penstock.errors import EngineError

JAVA = Java(Path("/jdk/bin/java"), 17, "17.0.9+9")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "penstock"


def test_the_cache_is_for_its_owner_alone_also_if_it_was_not_before(cache: Path) -> None:
    cache.mkdir(parents=True, mode=0o755)
    assert cache_directory() == cache
    assert cache.stat().st_mode & 0o777 == 0o700


def test_every_build_of_java_has_its_own_archive() -> None:
    others = [JAVA._replace(text="17.0.10+7"), JAVA._replace(path=Path("/other/bin/java"))]
    assert len({archive_path(java) for java in [JAVA, *others]}) == 3


def test_what_is_there_is_not_built_again() -> None:
    built: list[Path] = []

    def write(path: Path) -> None:
        built.append(path)
        path.write_bytes(b"classes")

    assert build(JAVA, write) == build(JAVA, write) == archive_path(JAVA)
    assert len(built) == 1


def test_a_build_that_fails_says_why_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(EngineError, match="could not be built"):
        build(JAVA)
    assert [p.suffix for p in cache.iterdir()] == [".lock"]


def test_the_background_process_leaves_it_to_the_one_that_is_at_it() -> None:
    with building(archive_path(JAVA), wait=True):
        build_if_free(JAVA, lambda path: pytest.fail("two processes build it"))

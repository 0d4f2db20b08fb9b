"""Finding Java, and saying what to install where there is none."""

from pathlib import Path

import pytest

from penstock.engine.spark.java import find_java
from penstock.errors import NoJava


def jdk(path: Path, says: str, release: str | None = None) -> Path:
    program = path / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (path / "release").write_text(release)
    return path


def test_java_home_is_taken_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jdk(tmp_path / "a", 'openjdk version "21.0.3" 2024-04-16')))
    monkeypatch.setenv("PATH", str(jdk(tmp_path / "b", 'openjdk version "17.0.1"') / "bin"))
    assert find_java()[1:] == (21, "21.0.3")


def test_java_on_the_path_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = jdk(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    assert find_java().major == 17


def test_the_release_file_is_believed_without_starting_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = jdk(tmp_path / "a", "must not be asked", 'JAVA_VERSION="17.0.15"\nJAVA_RUNTIME_VERSION="17.0.15+6-Debian"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java()[1:] == (17, "17.0.15+6-Debian")


@pytest.mark.parametrize(("says", "found"), [('java version "1.8.0_402"', "is Java 8"), ('openjdk version "11.0.2"', "is Java 11")])
def test_old_java_is_refused_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jdk(tmp_path, says)))
    with pytest.raises(NoJava, match=found) as refused:
        find_java()
    assert "openjdk-17-jre-headless" in str(refused.value)


def test_no_java_is_refused_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoJava, match="none was found") as refused:
        find_java()
    assert "brew install openjdk@17" in str(refused.value)


def test_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava) as refused:
        find_java()
    assert str(tmp_path) in str(refused.value)


def test_java_that_says_nothing_useful_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jdk(tmp_path, "Unable to locate a Java Runtime.")))
    with pytest.raises(NoJava, match="does not say its version"):
        find_java()

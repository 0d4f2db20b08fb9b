"""What doctor says of a healthy home, a damaged one, and a machine without Java."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.cli.main import run
from penstock.core.schema import Schema
from penstock.log.file.log import FileLog
from penstock.log.port import TopicSpec
from penstock.storage.local import LocalStorage


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="17.0.9"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return path


def with_orders(home: Path) -> Path:
    """A topic of three rows; returns its segment file."""
    log = FileLog(LocalStorage(str(home / "log")))
    topic = log.create(TopicSpec("orders", schema=Schema.of("id long")))
    for n in range(3):
        topic.append(0, pa.record_batch({"id": pa.array([n], pa.int64())}))
    return max((p for p in (home / "log").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def test_an_empty_machine_is_healthy_and_nothing_is_made(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "not there yet" in shown
    assert "✓ Java 17.0.9" in shown
    assert "penstock doctor --warm" in shown
    assert not home.exists()


@pytest.mark.parametrize("options", [[], ["--deep"]])
def test_topics_are_counted_and_read(home: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    with_orders(home)
    assert run(["doctor", *options]) == 0
    assert "✓ topic orders: 3 rows in 1 partition, all read and checked" in capsys.readouterr().out


def test_a_damaged_record_is_unhealthy_and_the_other_checks_still_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = with_orders(home)
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    assert run(["doctor"]) == 4
    shown = capsys.readouterr().out
    assert "✗" in shown
    assert "orders" in shown
    assert "✓ Java" in shown


def test_a_damaged_view_is_unhealthy(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "views").mkdir(parents=True)
    (home / "views" / "sales.db").write_bytes(b"this is no database" * 100)
    assert run(["doctor"]) == 4
    assert "sales" in capsys.readouterr().out


def test_no_java_is_unhealthy_and_says_what_to_install(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert run(["doctor"]) == 4
    assert "openjdk-17-jre-headless" in capsys.readouterr().out


def test_a_home_that_others_can_write_is_pointed_out(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    home.chmod(0o777)
    assert run(["doctor"]) == 0
    assert "! other users of this machine can change home" in capsys.readouterr().out

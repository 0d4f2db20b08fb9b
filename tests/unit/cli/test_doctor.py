"""What doctor says of a healthy home, a damaged one, and a machine without Java."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Flow
from penstock.cli.main import run
from penstock.core.schema import Schema
from penstock.core.time import SystemClock
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.flows.removing import carry_out, plan
from penstock.engine.run.epoch.sink_status import telling
from penstock.errors import SinkLost, SinkUnavailable
from penstock.log.file.log import FileLog
from penstock.log.port import TopicSpec
from penstock.plan.outputs import SinkDefinition
from penstock.sinks import search, sqlite
from penstock.storage.local import LocalStorage
from unit.engine.homes import ORDERS, Home
from unit.engine.test_flow_removing import ROWS


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


# sinks and search indexes


def indexed(home: Path, name: str = "shop", *more: SinkDefinition) -> Home:
    """A flow that has run, with a search index called after it."""
    made = Home(home)
    made.send("orders", *ROWS)
    flow = Flow(name)
    words = flow.stream("orders", ORDERS, time="at").select("id", text="'order'")
    for definition in (search(name, key="id"), *more):
        words.sink(definition)
    made.run(flow)
    return made


def test_search_indexes_are_opened_and_those_of_no_flow_are_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = indexed(home)
    indexed(home, "gone")
    remove_flow(made, "gone")
    run(["doctor"])
    shown = capsys.readouterr().out
    assert "✓ search index shop.db: text of flow shop" in shown
    assert "gone.db" not in shown, "it went with its flow"
    indexed(home, "lost")
    LocalStorage(str(home / "flows")).remove("lost")
    assert run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "! search index lost.db: its flow lost is not here" in shown
    assert f"remove {home}/search/lost.db" in shown


def remove_flow(made: Home, name: str) -> None:
    carry_out(made.path, made.log, plan(made.path, made.log, name, "drop", topics=True))


def test_an_index_that_its_flow_does_not_write_any_more_is_pointed_out(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    indexed(home)
    decisions = decisions_of(home, "shop")
    decisions.generation(decisions.owner() | {"outputs": []})
    assert run(["doctor"]) == 0
    assert "! search index shop.db: flow shop does not write it any more" in capsys.readouterr().out


def test_an_index_that_cannot_be_opened_is_unhealthy_and_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    indexed(home)
    (home / "search" / "shop.db").write_bytes(b"this is no database" * 100)
    (home / "search" / "words").mkdir()
    (home / "search" / "words" / "meta.json").write_text("{")
    assert run(["doctor"]) == 4
    shown = capsys.readouterr().out
    assert f"✗ search index shop.db: search index {home}/search/shop.db" in shown
    assert f"✗ search index words: search index {home}/search/words" in shown


def test_sinks_that_are_away_or_far_behind_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [sqlite(home.parent / "shop.db", name) for name in ("words", "others", "lost")]
    indexed(home, "shop", *tables)
    decisions = decisions_of(home, "shop")
    last = decisions.last()
    assert last
    for epoch in range(1, 200):
        decisions.publish(replace(last, epoch=epoch))
    tell = telling(decisions.storage, SystemClock())
    for sink, delivered, away in (
        ("search.shop", 199, None),
        ("sqlite.words", 150, SinkUnavailable("the file is locked")),
        ("sqlite.others", 3, None),
        ("sqlite.lost", 3, SinkLost("it was emptied", hint="penstock sink rebuild FLOW.py sqlite.lost")),
    ):
        tell(sink, delivered, 199 - delivered, away)
    assert run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "! flow shop: sink sqlite.words is away, it lacks 49 epochs: the file is locked" in shown
    assert "! flow shop: sink sqlite.others is far behind, it lacks 196 epochs" in shown
    assert "! flow shop: sink sqlite.lost is away, it lacks 196 epochs: it was emptied" in shown
    assert "penstock sink rebuild FLOW.py sqlite.lost" in shown
    assert "✓ flow shop: 1 of 4 sinks in step" in shown

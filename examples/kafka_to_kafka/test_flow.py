"""Every window once, in the test's own log and in a real Kafka where the flow is killed on the way."""

import runpy
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import open_log
from penstock.cli.main import run
from penstock.testing.servers.kafka_broker import KafkaBroker

HERE = Path(__file__).parent
SALES = [(7, "10:00", 2, 35.0), (7, "10:02", 1, 5.0), (8, "10:01", 1, 30.0), (8, "10:02", 1, 2.5), (9, "10:02", 1, 4.0)]
KILLS = ("before_decide@1", "topic.appended@1")


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((r["user_id"], f"{r['window_start']:%H:%M}", r["n"], r["total"]) for r in rows)


def test_every_window_comes_out_once_and_the_late_order_goes_to_its_own_topic() -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.topic("orders", partitions=2, key="user_id")
        t.send("orders", *(orjson.loads(line) for line in (HERE / "orders.jsonl").read_bytes().splitlines()))
        t.crash("after_decide")
        t.end()
        assert shown(t.rows("sales")) == SALES
        assert [row["order_id"] for row in t.rows("late_orders")] == ["o5"]


def held(name: str) -> list[dict[str, Any]]:
    topic = open_log().topic(name)
    return [row for partition in topic.ends() for chunk in topic.read(partition) for row in chunk.rows.to_pylist()]


def told() -> list[list[str]]:
    """What the README tells its reader to type."""
    lines = (HERE / "README.md").read_text().splitlines()
    return [shlex.split(line.removeprefix("$ penstock ")) for line in lines if line.startswith("$ penstock ")]


def test_a_flow_that_is_killed_has_every_window_in_kafka_once(
    tmp_path: Path, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(HERE)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_LOG", f"{kafka_broker.url}?prefix=kafka_to_kafka.")
    commands = told()
    for command in commands:
        if command[0] == "topic" and command[1] != "consume":
            assert run(command) == 0
    for kill in (*KILLS, ""):
        monkeypatch.setenv("PENSTOCK_FAIL", kill)
        ended = subprocess.run([sys.executable, "-c", DRAIN], start_new_session=True, capture_output=True, text=True)
        assert ended.returncode == (-signal.SIGKILL if kill else 0), ended.stderr
    assert shown(held("sales")) == SALES
    assert [row["order_id"] for row in held("late_orders")] == ["o5"]
    capsys.readouterr()
    for command in commands:
        if command[:2] in (["topic", "consume"], ["group", "describe"]):
            assert run(command) == 0
    said = capsys.readouterr().out
    assert said.count("window_start") == len(SALES)
    assert '"o5"' in said


# `penstock run flow.py --drain`, its work done in the process itself instead of in Spark's.
DRAIN = f"""
import sys
sys.path.insert(0, {str(HERE.parents[1] / "tests")!r})
from pathlib import Path
from faults.example_child import drain
from penstock.storage.home import find_home
drain(find_home(), Path.cwd())
"""

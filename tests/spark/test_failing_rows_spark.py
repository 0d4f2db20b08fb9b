"""A row on which an expression of Spark SQL fails is a dead letter, and all others are as they would be without it (G26)."""

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from penstock import Flow, FlowTest, Schema, Tumbling, agg
from penstock.engine.execute import sql_guard
from penstock.engine.execute.sql import SqlSteps
from penstock.engine.run import loop
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.progress import balance
from penstock.engine.spark.analyze import SparkAnalyzer
from penstock.errors import FailedRow
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer
from spark.test_engine_spark import PLACES, Placed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READINGS = "sensor string, value string, n int, at timestamp"


class OnSpark:
    """The tests' own session, for flow.test(). careful: without a first job that fails, which costs Python workers."""

    def __init__(self, session: "SparkSession", careful: bool = True) -> None:
        self.type_of = SparkAnalyzer(session).type_of
        self.sql = SqlSteps(session, careful=careful)


Start = Callable[..., FlowTest]


@pytest.fixture(scope="module")
def on_spark(spark: "SparkSession") -> OnSpark:
    return OnSpark(spark)


@pytest.fixture
def started(spark: "SparkSession", on_spark: OnSpark) -> Iterator[Start]:
    opened: list[FlowTest] = []

    def start(flow: Flow, careful: bool = True) -> FlowTest:
        opened.append(flow.test(analyzer=on_spark if careful else OnSpark(spark, careful)))
        return opened[-1]

    yield start
    for t in opened:
        t.__exit__(None, None, None)


def reading(sensor: str, value: str, n: int = 1, second: int = 0) -> dict[str, Any]:
    return {"sensor": sensor, "value": value, "n": n, "at": f"2024-01-15T10:00:{second:02d}Z"}


def readings(flow: Flow) -> Any:
    return flow.stream("readings", READINGS, time="at", lateness="10 seconds")


def test_each_row_that_fails_is_dead_with_expression_cause_and_row(started: Start) -> None:
    flow = Flow("lab")
    made = readings(flow).select("sensor", twice="cast(value as int) * 2", share="100 / n", first="array(1, 2)[n]")
    made.named("made").view("made", key="sensor")
    t = started(flow, careful=False)
    t.send(
        "readings",
        reading("a", "1"),
        reading("b", "abc", second=1),
        reading("c", "3", 0, 2),
        reading("d", "4", 5, 3),
        reading("e", "2147483647", 1, 4),
        reading("f", "5", 1, 5),
    )
    t.end()
    assert [(r["sensor"], r["twice"], r["share"], r["first"]) for r in t.rows("made")] == [("a", 2, 100.0, 2), ("f", 10, 100.0, 2)]
    dead = {row["offset"]: (row["expression"], row["reason"]) for row in t.rows("dead")}
    assert {offset: expression for offset, (expression, _) in dead.items()} == {
        1: "cast(value as int) * 2",
        2: "100 / n",
        3: "array(1, 2)[n]",
        4: "cast(value as int) * 2",
    }
    assert dead[1][1].startswith("CAST_INVALID_INPUT: The value 'abc'")
    assert dead[2][1].startswith("DIVIDE_BY_ZERO: ")
    assert dead[3][1].startswith("INVALID_ARRAY_INDEX: ")
    assert dead[4][1].startswith("ARITHMETIC_OVERFLOW")
    assert orjson.loads(t.rows("dead")[0]["row"])["value"] == "abc"
    assert t.fates("made") == {"in": 6, "passed": 2, "dead": 4}


def test_what_expressions_have_in_common_is_tried_in_each_of_them(started: Start) -> None:
    flow = Flow("lab")
    readings(flow).select("sensor", a="cast(value as int) + 1", b="cast(value as int) + 2").named("made").view("made", key="sensor")
    t = started(flow)
    t.send("readings", reading("a", "1"), reading("b", "abc", second=1))
    t.end()
    assert [(r["a"], r["b"]) for r in t.rows("made")] == [(2, 3)]
    assert len(t.rows("dead")) == 1


def test_a_condition_filters_kills_or_passes_and_the_books_balance(started: Start) -> None:
    flow = Flow("lab")
    readings(flow).where("cast(value as int) > 2", name="large").view("large", key="sensor")
    t = started(flow)
    t.send("readings", *(reading(str(i), value, second=i) for i, value in enumerate(["1", "x", "3", "", "5"])))
    t.end()
    assert sorted(row["value"] for row in t.rows("large")) == ["3", "5"]
    assert t.fates("large") == {"in": 5, "passed": 2, "filtered": 1, "dead": 2}


def test_null_gives_null_for_the_failing_expression_alone(started: Start) -> None:
    flow = Flow("lab")
    rows = readings(flow)
    rows.select("sensor", number="cast(value as int)", share="100 / n", on_error="null").named("made").view("made", key="sensor")
    rows.where("cast(value as int) > 0", name="large", on_error="null").view("large", key="sensor")
    t = started(flow)
    t.send("readings", reading("a", "7", 0), reading("b", "x", 4, 1))
    t.end()
    assert [(r["sensor"], r["number"], r["share"]) for r in t.rows("made")] == [("a", 7, None), ("b", None, 25.0)]
    assert [row["sensor"] for row in t.rows("large")] == ["a"]
    assert t.rows("dead") == []
    assert t.fates("large") == {"in": 2, "passed": 1, "filtered": 1}


def test_stop_says_step_expression_cause_and_row(started: Start) -> None:
    flow = Flow("lab")
    readings(flow).select("sensor", number="cast(value as int)", on_error="stop").named("made").view("made", key="sensor")
    t = started(flow)
    t.send("readings", reading("a", "7"), reading("b", "x", second=1), reading("c", "y", second=2))
    with pytest.raises(FailedRow) as stopped:
        t.epoch()
    text = str(stopped.value)
    assert text.startswith("step \"made\" fails on a row: cast(value as int): CAST_INVALID_INPUT: The value 'x'")
    assert 'row readings/0@1: {"sensor":"b","value":"x"' in text
    assert "test_failing_rows_spark.py:" in text
    assert "^^" not in text


def test_what_a_window_cannot_work_out_never_comes_to_it(started: Start) -> None:
    flow = Flow("lab")
    sums = readings(flow).window(Tumbling("1 minute"), by="sensor").agg(n=agg.count(), total=agg.sum("cast(value as int)"))
    sums.named("sums").view("sums")
    t = started(flow)
    t.send("readings", reading("a", "7"), reading("a", "x", second=1), reading("a", "3", second=2))
    t.end()
    assert [(row["n"], row["total"]) for row in t.rows("sums")] == [(2, 10)]
    assert [(row["step"], row["offset"]) for row in t.rows("dead")] == [("sums.input", 1)]


def test_on_a_table_a_version_that_fails_takes_its_key_out_until_a_good_one_comes(started: Start) -> None:
    flow = Flow("lab")
    settings = flow.table("settings", "sensor string, factor string, at timestamp", key="sensor", time="at")
    settings.with_columns(number="cast(factor as int)").named("numbers").view("numbers")
    t = started(flow)

    def send(sensor: str, factor: str, second: int) -> list[tuple[str, int]]:
        t.send("settings", {"sensor": sensor, "factor": factor, "at": f"2024-01-15T10:00:{second:02d}Z"})
        t.catch_up()
        return sorted((row["sensor"], row["number"]) for row in t.rows("numbers"))

    assert send("a", "1", 1) == [("a", 1)]
    assert send("b", "2", 2) == [("a", 1), ("b", 2)]
    assert send("a", "x", 3) == [("b", 2)]
    assert send("a", "4", 4) == [("a", 4), ("b", 2)]
    assert [row["offset"] for row in t.rows("dead")] == [2]
    assert t.fates("numbers")["withdrawn"] == 1
    assert all(rows == known for _, rows, known in balance(t.fates()))


def test_many_rows_that_fail_cost_one_more_job_and_not_one_each(started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_guard, "MOST_CAUSES", 3)
    flow = Flow("lab")
    readings(flow).select("sensor", number="cast(value as int)").named("made").view("made", key="sensor")
    t = started(flow)
    t.send("readings", *(reading(str(i), f"x{i}" if i % 10 == 0 else str(i), second=i % 60) for i in range(10_000)))
    t.end()
    dead = t.rows("dead")
    assert sorted(row["offset"] for row in dead) == list(range(0, 10_000, 10))
    assert len(t.rows("made")) == 9_000
    looked_up = [row for row in dead if row["reason"].startswith("CAST_INVALID_INPUT")]
    assert len(looked_up) == 3


@pytest.mark.parametrize("where", [p if p == "across tasks" else pytest.param(p, marks=pytest.mark.long) for p in PLACES])
def test_every_placement_sets_the_same_rows_aside(where: str, tmp_path: Path, spark: "SparkSession") -> None:
    runtime = Placed(tmp_path, spark=spark, where=where)
    runtime.__dict__["_sql_steps"] = SqlSteps(spark, careful=True)
    flow = Flow("lab")
    made = readings(flow).where("cast(value as int) >= 0", name="numbers").select("sensor", share="100 / n")
    made.named("shares").view("shares", key="sensor")
    topic = runtime.log.create(TopicSpec("readings", 1, Schema.of(READINGS), "at"))
    with Producer(topic) as producer:
        for i in range(60):
            producer.send(reading(str(i), "x" if i % 5 == 0 else str(i), i % 3, i))
    driver = runtime.started(flow)
    try:
        loop.drain(driver, threading.Event(), lambda report: None, 35)
        driver.deliverer.settle()
    finally:
        driver.release()
    letters = [row for chunk in runtime.log.topic("lab.dead").read(0) for row in chunk.rows.to_pylist()]
    bad = {i for i in range(60) if i % 5 == 0}
    assert {row["offset"] for row in letters if row["step"] == "numbers"} == bad
    assert {row["offset"] for row in letters if row["step"] == "shares"} == {i for i in range(60) if i % 3 == 0} - bad
    assert len(letters) == len({row["offset"] for row in letters})


CASES = 1


@pytest.mark.parametrize("seed", range(CASES))
def test_any_cut_and_any_crash_gives_what_row_by_row_would(seed: int, started: Start) -> None:
    check_a_case(seed, started)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(CASES, 60))
def test_any_cut_and_any_crash_gives_what_row_by_row_would_at_length(seed: int, started: Start) -> None:
    check_a_case(seed, started)


def check_a_case(seed: int, started: Start) -> None:
    """Random rows, some of which fail, in random epochs with crashes, against plain Python."""
    rng = random.Random(f"failing rows {seed}")
    flow = Flow("lab")
    sums = readings(flow).with_columns(number="cast(value as int)", share="12 / n").named("made").where("share <> 4")
    sums.window(Tumbling("20 seconds"), by="sensor").agg(total=agg.sum("number"), n=agg.count(), name="sums").view("sums")
    t = started(flow, careful=seed % 5 < 4)
    rows = [reading(rng.choice("ab"), rng.choice(["1", "7", "x", "", "99999999999"]), rng.randrange(4), i % 60) for i in range(24)]
    for start in range(0, 24, 8):
        t.send("readings", *rows[start : start + 8])
        for _ in range(rng.randrange(3)):
            cut = rng.choice([1, 2, 5, None])
            if rng.random() < 0.4 and t.driver.worth_it(t.driver.open(EpochRequest())):
                t.crash(rng.choice(["after_run", "before_decide", "after_decide"]), cut)
            else:
                t.epoch(cut)
    t.end()
    wanted: dict[tuple[str, int], list[int]] = {}
    dead = set()
    for offset, row in enumerate(rows):
        if row["value"] not in ("1", "7") or row["n"] == 0:
            dead.add(offset)
        elif row["n"] != 3:
            wanted.setdefault((row["sensor"], offset // 20), []).append(int(row["value"]))
    got = {(r["sensor"], r["window_start"].second // 20): (r["total"], r["n"]) for r in t.rows("sums")}
    assert got == {key: (sum(values), len(values)) for key, values in wanted.items()}
    assert {row["offset"] for row in t.rows("dead")} == dead
    assert len(t.rows("dead")) == len(dead)
    assert all(rows == known for _, rows, known in balance(t.fates()))

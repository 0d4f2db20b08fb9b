"""Pairs on which a join's condition fails in Spark SQL: dead once, no match, in every placement and any cut (G26)."""

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laws.test_failing_pairs import HOWS, Case, Naive, check, flow, pair_of
from penstock import Schema, View
from penstock.engine.execute.sql import SqlSteps
from penstock.engine.run import loop
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer
from penstock.plan import How
from spark.test_engine_spark import PLACES, Placed
from spark.test_failing_rows_spark import OnSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_pairs_that_fail_in_any_cut(seed: int, spark: "SparkSession") -> None:
    check(Case(seed), "null" if seed % 4 == 0 else "dead", analyzer=OnSpark(spark, careful=seed % 3 > 0))


@pytest.mark.parametrize("where", [p if p == "across tasks" else pytest.param(p, marks=pytest.mark.long) for p in PLACES])
def test_every_placement_tells_the_same_pairs_apart(where: str, tmp_path: Path, spark: "SparkSession") -> None:
    runtime, case = Placed(tmp_path, spark=spark, where=where), Case(2)
    runtime.__dict__["_sql_steps"] = SqlSteps(spark, careful=True)
    hows: tuple[How, ...] = HOWS if where != "across tasks" else ("full",)
    made = flow(hows=hows)
    for side, own, value in (("lefts", "l", "n"), ("rights", "r", "m")):
        topic = runtime.log.create(TopicSpec(side, 2, Schema.of(f"k string, {own} long, {value} long, at timestamp"), "at"))
        with Producer(topic) as producer:
            for partition, row in case.sides[side]:
                producer.send(row, partition=partition)
    driver = runtime.started(made)
    try:
        loop.drain(driver, threading.Event(), lambda report: None, 200 if hows == ("full",) else 20)
        driver.deliverer.settle()
    finally:
        driver.release()
    shown = {how: rows_of(runtime.home / "views", how) for how in (*hows, "full-late")}
    naive = Naive(case, {(side, row[side]) for row in shown["full-late"] for side in "lr" if row[side] is not None})
    for how in hows:
        assert Counter((row.get("l"), row.get("r")) for row in shown[how]) == naive.rows(how), how
    letters = [row for chunk in runtime.log.topic("law.dead").read(0) for row in chunk.rows.to_pylist()]
    assert all(row["reason"].startswith("DIVIDE_BY_ZERO: ") for row in letters)
    assert Counter((row["step"], *pair_of(row["row"])) for row in letters) == Counter(
        {(f"{how}.where", *pair): n for how in hows for pair, n in naive.dead.items()}
    )


def rows_of(directory: Path, name: str) -> list[dict[str, object]]:
    with View(directory, name) as view:
        return list(view.rows().to_pylist())

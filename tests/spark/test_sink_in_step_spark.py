"""What a sink should hold is computed again in Spark's tasks, Spark SQL included."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Flow, Producer, Schema, TopicSpec, agg
from penstock.engine.replay import expected
from penstock.engine.replay.instep import SinkCheck, places_of, sink_named
from penstock.engine.run import loop
from penstock.engine.run.runtime import Runtime
from penstock.sinks import sqlite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "id long, user string, amount double, at timestamp"
START = datetime(2024, 1, 15, 10, tzinfo=UTC)


def test_a_store_behind_spark_sql_is_compared_and_put_right(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected, "IN_PROCESS", 0)
    runtime = Runtime(tmp_path, "local[2]")
    topic = runtime.log.create(TopicSpec("orders", 2, Schema.of(ORDERS), "at"))
    with Producer(topic, batch_rows=50) as producer:
        for n in range(500):
            producer.send({"id": n, "user": f"U{n % 9}", "amount": n / 7, "at": START + timedelta(seconds=n)}, partition=n % 2)
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at")
    named = orders.select("amount", user="initcap(reverse(user))")  # only Spark evaluates it
    named.group_by("user").agg(n=agg.count(), total=agg.sum("amount")).sink(sqlite(tmp_path / "shop.db", "spent"))
    plan = runtime.plan(flow)
    driver = runtime.driver(plan)
    driver.start()
    loop.catch_up(driver, threading.Event(), lambda report: None, 100)
    driver.deliverer.caught_up(60)
    driver.stop()
    output = sink_named(plan, "sqlite.spent")
    check = SinkCheck(runtime, plan, output, *places_of(output))
    found = check.reconcile()
    assert (found.compared.equal, found.compared.rows) == (True, 9)
    (tmp_path / "shop.db").unlink()
    assert check.rebuild(lambda compared: True).written == 9
    assert check.reconcile().compared.equal

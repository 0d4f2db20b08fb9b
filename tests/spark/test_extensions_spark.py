"""Aggregates, windows and joins from outside the package go to Spark's tasks, pickled, and tell there what they tell in a test."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

import toys.aggregates
import toys.joins
import toys.windows
from faults.engine_shop import view
from penstock import Flow, Producer, Schema, TopicSpec, agg
from penstock.engine.execute.job import travels_whole
from toys.aggregates import Frequent, Product
from toys.joins import NearestDefinition
from toys.windows import Shifts
from unit.test_extensions_of_steps import COLUMNS, made

from .test_engine_spark import Placed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def sent_along() -> Iterator[None]:
    """As what a flow's own file defines: tasks cannot import it."""
    modules = (toys.aggregates, toys.joins, toys.windows)
    for module in modules:
        travels_whole(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


def flow_of_toys() -> Flow:
    flow = Flow("toys")
    orders, clicks = (flow.stream(topic, COLUMNS, time="at", lateness="1 minute") for topic in ("orders", "clicks"))
    both = {"p": agg.of(Product(), "factor"), "f": agg.of(Frequent(2), "kind")}
    orders.window(Shifts(90), by="user").agg(**both).view("shifts")
    orders.step(NearestDefinition(("user",), timedelta(minutes=2)), clicks).view("nearest")
    return flow


def test_steps_from_outside_tell_in_tasks_what_they_tell_in_a_test(tmp_path: Path, spark: "SparkSession") -> None:
    given = {"orders": made(1, 80, 5), "clicks": made(2, 80, 5)}
    runtime = Placed(tmp_path, spark=spark, where="across tasks")
    for topic, rows in given.items():
        with Producer(runtime.log.create(TopicSpec(topic, 1, Schema.of(COLUMNS), "at"))) as producer:
            for row in rows:
                producer.send(row)
    runtime.drain(flow_of_toys(), 50)
    with flow_of_toys().test() as t:
        for topic, rows in given.items():
            t.send(topic, *rows)
        t.end()
        for name in ("shifts", "nearest"):
            found = sorted(map(shown, view(tmp_path, name)))
            assert found == sorted(map(shown, t.rows(name)))
            assert found


def shown(row: dict[str, Any]) -> str:
    return str({name: row[name] for name in sorted(row) if not name.startswith("__")})

"""Aggregates that are defined by Spark's own give what Spark gives."""

import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Flow, Tumbling, agg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = "2024-01-15T10:00:15Z"


def of_flow(ddl: str, rows: list[tuple[str, Any]], **aggregates: Any) -> dict[str, Any]:
    flow = Flow("definitions")
    stream = flow.stream("events", f"k string, x {ddl}, at timestamp", time="at", lateness="0 seconds")
    stream.window(Tumbling("1 minute"), by="k").agg(**aggregates).view("v")
    with flow.test() as t:
        t.send("events", *({"k": k, "x": x, "at": AT} for k, x in rows))
        t.end()
        return {row["k"]: tuple(row[name] for name in aggregates) for row in t.rows("v")}


@pytest.mark.parametrize(
    ("precision", "scale"), [(5, 0), (5, 5), (10, 2), (18, 6), (20, 18), (34, 0), (38, 30), (38, 36), (38, 38)]
)
def test_the_mean_of_decimals_is_that_of_spark(spark: "SparkSession", precision: int, scale: int) -> None:
    rng = random.Random(precision * 100 + scale)
    most = 10 ** min(precision, 38 - 4) - 1  # beyond, the mean does not fit Spark's type either
    rows: list[tuple[str, Any]] = []
    for k in range(40):
        for _ in range(rng.randint(1, 13)):
            rows.append((f"k{k}", None if rng.random() < 0.1 else Decimal(rng.randint(-most, most)).scaleb(-scale)))
    ddl = f"decimal({precision},{scale})"
    theirs = spark.createDataFrame(rows, f"k string, x {ddl}").groupBy("k").agg({"x": "avg"})
    kind = theirs.schema["avg(x)"].dataType.simpleString()
    assert kind == f"decimal({min(38, precision + 4)},{min(38, scale + 4)})"
    assert {k: v for k, (v,) in of_flow(ddl, rows, m=agg.avg("x")).items()} == {row["k"]: row["avg(x)"] for row in theirs.collect()}


def test_a_quantile_is_that_of_percentile_approx_within_its_error(spark: "SparkSession") -> None:
    rng = random.Random(7)
    rows = [(f"k{k}", rng.uniform(1, 1e6)) for k in range(20) for _ in range(rng.randint(1, 60))]
    ours = of_flow("double", rows, a=agg.quantile("x", 0.5), b=agg.quantile("x", 0.95), c=agg.quantile("x", 0.0))
    asked = "percentile_approx(x, array(0.5, 0.95, 0.0), 1000000) as q"
    spark.createDataFrame(rows, "k string, x double").createOrReplaceTempView("definitions")
    for row in spark.sql(f"select k, {asked} from definitions group by k").collect():
        assert ours[row["k"]] == pytest.approx(tuple(row["q"]), rel=0.01)

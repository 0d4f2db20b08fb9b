"""Rows that go through Spark SQL stand in an output topic as they stand in the input, whatever the cut. (G25)"""

from typing import Any

import pytest

from penstock import Flow
from penstock.engine.execute.sql import SqlSteps
from penstock.engine.spark.analyze import SparkAnalyzer
from penstock.testing.driver import FlowTest


class OnSpark:
    """Types and rows by this session."""

    def __init__(self, session: Any) -> None:
        self.type_of, self.sql = SparkAnalyzer(session).type_of, SqlSteps(session)


@pytest.mark.parametrize("cut", [None, 2])
def test_rows_that_spark_evaluates_keep_the_order_of_the_input(spark, cut: int | None) -> None:
    flow = Flow("copy")
    rows = flow.stream("rows", "k string, v long, at timestamp", time="at", lateness="1 minute")
    upper = rows.where("length(k) = 1").with_columns(k="upper(k)")
    upper.union(rows.where("k = 'b'", name="plain")).to("out", key="k")
    with FlowTest(flow, analyzer=OnSpark(spark)) as t:
        t.send("rows", *({"k": "ab"[v % 2], "v": v, "at": f"2024-01-15T10:00:{(7 * v) % 10:02}Z"} for v in range(6)))
        while t.epoch(cut):
            pass
        told = [(row["k"], row["v"]) for row in t.rows("out")]
        for name in "ABb":
            mine = [v for k, v in told if k == name]
            assert mine == sorted(mine)
            assert len(mine) == 3

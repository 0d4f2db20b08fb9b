"""One small Spark session whose JVM writes down the classes it used: `python -m penstock.engine.spark.rehearsal FILE`.

It does once what flows do: a shuffle of bytes between Python workers, SQL analysis, and Arrow in and out of the JVM.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.engine.spark.archive import EXIT_PATIENCE
from penstock.engine.spark.scratch import remove_scratch
from penstock.engine.spark.session import end_jvm, start_recording

if TYPE_CHECKING:
    import pyarrow as pa


def rehearse(path: str) -> None:
    spark, jvm = start_recording(path)
    _work(spark)
    end_jvm(jvm, EXIT_PATIENCE)
    remove_scratch()


def _work(spark: Any) -> None:
    pairs = spark.sparkContext.parallelize(range(2), 2).mapPartitionsWithIndex(_pairs)
    pairs.partitionBy(2, lambda bucket: bucket).mapPartitions(_count).collect()
    rows = spark.range(4).selectExpr("id", "id % 2 as k", "cast(id as double) as v", "timestamp'2024-01-15 10:30:00Z' as at")
    rows.where("v > 1 or k = 0").mapInArrow(_same, rows.schema).groupBy("k").sum("v").collect()
    spark.createDataFrame(rows.toPandas()).count()


def _pairs(index: int, items: Iterable[int]) -> list[tuple[int, bytes]]:
    return [(bucket, b"block") for bucket in range(2) for _ in items]


def _count(items: Iterable[Any]) -> list[int]:
    return [len(list(items))]


def _same(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    yield from batches


if __name__ == "__main__":
    rehearse(sys.argv[1])

"""The other side: Spark Structured Streaming with the RocksDB state store, Spark's own JVM settings, the same number of cores."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
from measuring import Meter

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


@dataclass(frozen=True)
class Streamed:
    """A query that has read everything: the seconds of its batches, without the start of the query."""

    rows: int
    seconds: float
    foreign: float
    cpu: float
    batches: list[float]
    output: str

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def facts(self) -> dict[str, Any]:
        return asdict(self) | {"rate": self.rate}


class Streaming:
    """A session, and queries over Parquet files into Parquet files, to the end of what is there."""

    def __init__(self, directory: Path) -> None:
        import os

        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        builder = SparkSession.builder.master("local[2]").appName("structured streaming")
        for name, value in (_SETTINGS | {"spark.local.dir": str(directory / "local")}).items():
            builder = builder.config(name, value)
        self.spark, self.directory, self._runs = builder.getOrCreate(), directory, 0

    def source(self, path: Path, files_per_batch: int | None, time: str) -> Any:
        schema = self.spark.read.parquet(str(path)).schema
        reader = self.spark.readStream.schema(schema)
        if files_per_batch:
            reader = reader.option("maxFilesPerTrigger", files_per_batch)
        return reader.parquet(str(path)).withWatermark(time, "10 seconds")

    def run(self, query: Callable[["Streaming"], Any], *, updates: bool = False) -> Streamed:
        """Runs the query into Parquet files (exactly once, as Spark's file sink does it) until it has read everything.
        Rows that change go there batch by batch: the file sink does not take them."""
        self._runs += 1
        place = self.directory / f"query{self._runs}"
        writer = query(self).writeStream
        if updates:
            writer = writer.outputMode("update").foreachBatch(lambda rows, _: rows.write.mode("append").parquet(str(place / "out")))
        else:
            writer = writer.format("parquet").outputMode("append").option("path", str(place / "out"))
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True)
        with Meter() as meter:
            running = writer.start()
            running.awaitTermination()
        progress = [p for p in running.recentProgress if p["durationMs"].get("addBatch") is not None]
        seconds = [p["durationMs"]["triggerExecution"] / 1e3 for p in progress]
        rows = sum(p["numInputRows"] for p in progress)
        shutil.rmtree(place / "checkpoint")
        return Streamed(rows, sum(seconds), meter.foreign, meter.cpu, seconds, str(place / "out"))

    def keep(self, ran: Streamed, path: Path) -> None:
        """The rows of a run as one file."""
        pl.read_parquet(f"{ran.output}/*.parquet").write_parquet(path)
        shutil.rmtree(ran.output)

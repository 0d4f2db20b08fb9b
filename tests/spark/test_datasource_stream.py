"""readStream and writeStream with format("penstock"): batch by batch, exactly once, loud when things were exchanged."""

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.schema import Schema
from penstock.engine.datasource.format import register
from penstock.log.consumer import records
from penstock.log.open import open_log
from penstock.log.port import Topic, TopicSpec
from penstock.log.producer import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT = 120  # seconds that no query takes


@pytest.fixture
def home(spark: "SparkSession", tmp_path: Path) -> Path:
    register(spark, tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def clicks(home: Path) -> Topic:
    spec = TopicSpec("clicks", partitions=2, schema=Schema.of("user long, n long"), key="user")
    return open_log(home).create(spec)


def produce(topic: Topic, numbers: range, batch_rows: int = 5) -> None:
    with Producer(topic, batch_rows=batch_rows, linger="1 hour") as producer:
        for n in numbers:
            producer.send({"user": n % 7, "n": n})


def stream(spark: "SparkSession", topic: str = "clicks", **options: Any) -> "DataFrame":
    return spark.readStream.format("penstock").options(**options).load(topic)


def to_end(frame: "DataFrame", checkpoint: Path, **options: Any) -> "StreamingQuery":
    """Runs the stream into topic `copy` until it has read what is there."""
    writing = frame.writeStream.format("penstock").options(topic="copy", checkpointLocation=str(checkpoint))
    query = writing.options(**{"writer": "copier"} | options).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT)
    return query


def numbers(home: Path, topic: str = "copy") -> list[int]:
    return sorted(record.value["n"] for record in records(open_log(home).topic(topic)))  # type: ignore[index]


def forget_last_commit(checkpoint: Path) -> None:
    """As if Spark had been killed after the topic had the batch and before Spark's own note of it."""
    last = max((p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)


def test_stream_in_several_batches_equals_the_topic(spark: "SparkSession", home: Path, clicks: Topic, tmp_path: Path) -> None:
    produce(clicks, range(40))
    query = to_end(stream(spark, maxRowsPerBatch="10"), tmp_path / "c", key="user", partitions="2")
    rows = [p.numInputRows for p in query.recentProgress if p.numInputRows]
    assert len(rows) > 3
    assert max(rows) <= 10
    assert numbers(home) == list(range(40))

    produce(clicks, range(40, 47))
    to_end(stream(spark, maxRowsPerBatch="10"), tmp_path / "c")
    assert numbers(home) == list(range(47))
    copy = open_log(home).topic("copy")
    assert copy.spec.partitions == 2
    assert all(end.next for end in copy.ends().values())


def test_batch_that_spark_repeats_is_added_once(spark: "SparkSession", home: Path, clicks: Topic, tmp_path: Path) -> None:
    produce(clicks, range(30))
    to_end(stream(spark, maxRowsPerBatch="10"), tmp_path / "c", key="user", partitions="2")
    forget_last_commit(tmp_path / "c")
    before = open_log(home).topic("copy").ends()

    query = to_end(stream(spark, maxRowsPerBatch="10"), tmp_path / "c")
    assert sum(p.numInputRows for p in query.recentProgress) > 0, "Spark did not repeat the batch"
    assert numbers(home) == list(range(30))
    assert open_log(home).topic("copy").ends() == before

    forget_last_commit(tmp_path / "c")
    produce(clicks, range(30, 42))
    to_end(stream(spark, maxRowsPerBatch="10"), tmp_path / "c")
    assert Counter(numbers(home)) == Counter(range(42))
    staged = home / "ingest" / "copy" / "copier"
    assert [p.name for p in staged.rglob("*") if p.is_file() and p.name != "life.json"] == []


def test_new_checkpoint_under_an_old_name_is_refused(spark: "SparkSession", home: Path, clicks: Topic, tmp_path: Path) -> None:
    produce(clicks, range(10))
    to_end(stream(spark), tmp_path / "c")
    shutil.rmtree(tmp_path / "c")
    produce(clicks, range(10, 20))
    with pytest.raises(Exception, match="writer copier has written topic copy from another checkpoint"):
        to_end(stream(spark), tmp_path / "c")
    assert numbers(home) == list(range(10))
    to_end(stream(spark, startingOffsets='{"0": 0, "1": 0}'), tmp_path / "d", writer="another")
    assert len(numbers(home)) == 30


def test_output_topic_made_again_under_an_old_checkpoint_is_refused(
    spark: "SparkSession", home: Path, clicks: Topic, tmp_path: Path
) -> None:
    produce(clicks, range(10))
    to_end(stream(spark), tmp_path / "c")
    open_log(home).delete("copy")
    produce(clicks, range(10, 20))
    with pytest.raises(Exception, match="topic copy was deleted and made again since writer copier began"):
        to_end(stream(spark), tmp_path / "c")
    to_end(stream(spark), tmp_path / "new")  # with both new it starts over
    assert numbers(home) == list(range(20))


def test_source_topic_made_again_stops_the_stream(spark: "SparkSession", home: Path, clicks: Topic, tmp_path: Path) -> None:
    produce(clicks, range(10))
    to_end(stream(spark), tmp_path / "c")
    open_log(home).delete("clicks")
    produce(open_log(home).create(clicks.spec), range(100, 120))
    with pytest.raises(Exception, match="topic clicks was deleted and made again since this query began to read it"):
        to_end(stream(spark), tmp_path / "c")
    assert numbers(home) == list(range(10))


def test_live_stream_takes_what_comes(spark: "SparkSession", home: Path, clicks: Topic, tmp_path: Path) -> None:
    produce(clicks, range(10))
    frame = stream(spark, startingOffsets="latest")
    writing = frame.writeStream.format("penstock").options(topic="copy", writer="live", checkpointLocation=str(tmp_path / "c"))
    query = writing.start()
    try:
        query.processAllAvailable()
        produce(clicks, range(10, 20))
        query.processAllAvailable()
        produce(clicks, range(20, 25))
        query.processAllAvailable()
    finally:
        query.stop()
    assert numbers(home) == list(range(10, 25))


def test_stream_needs_a_writer_and_adds_only(spark: "SparkSession", home: Path, clicks: Topic, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r'needs the option "writer"'):
        to_end(stream(spark), tmp_path / "c", writer="")
    totals = stream(spark).groupBy("user").count()
    writing = totals.writeStream.format("penstock").options(topic="copy", writer="w", checkpointLocation=str(tmp_path / "d"))
    with pytest.raises(Exception, match="can only be added to, not overwritten"):
        writing.outputMode("complete").trigger(availableNow=True).start().awaitTermination(WAIT)
    assert "copy" not in open_log(home).topics()

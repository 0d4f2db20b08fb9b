"""df.write.format("penstock"): topics made and added to, and rows that are refused before anything is added."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.time import micros
from penstock.engine.datasource.format import register
from penstock.log.consumer import records
from penstock.log.open import open_log
from penstock.log.port import TopicSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def home(spark: "SparkSession", tmp_path: Path) -> Path:
    register(spark, tmp_path / "home")
    return tmp_path / "home"


def save(frame: "DataFrame", topic: str = "orders", **options: Any) -> None:
    frame.write.format("penstock").mode("append").options(**options).save(topic)


def sales(spark: "SparkSession", count: int = 20) -> "DataFrame":
    return spark.range(count).selectExpr("id", "id % 5 as user", "timestamp_seconds(1700000000 + id) as at")


def test_missing_topic_is_made_with_the_columns_and_settings_asked_for(spark: "SparkSession", home: Path) -> None:
    save(sales(spark), key="user", time="at", partitions="2", durability="os")
    topic = open_log(home).topic("orders")
    assert topic.spec.schema is not None
    assert topic.spec.schema.ddl() == "id long, user long, at timestamp"
    assert (topic.spec.partitions, topic.spec.key, topic.spec.time, topic.spec.durability) == (2, "user", "at", "os")
    found = sorted(records(topic), key=lambda r: r.value["id"])  # type: ignore[index]
    assert [r.value["id"] for r in found] == list(range(20))  # type: ignore[index]
    assert found[3].time == micros(datetime.fromtimestamp(1700000003, UTC))
    assert {r.partition for r in found if r.key == b"3"} == {found[3].partition}
    assert all(end.next for end in topic.ends().values())


def test_what_was_written_is_read_back(spark: "SparkSession", home: Path) -> None:
    frame = spark.sql(
        "select 1 as i, 'é' as s, cast(null as string) as nothing, array(1, 2) as many, map('a', 1.5D) as m, "
        "named_struct('x', 1, 'y', 'z') as st, cast(12.3 as decimal(10, 2)) as d, date'2024-02-29' as day, true as b, X'00' as raw"
    )
    save(frame)
    save(frame)
    back = spark.read.format("penstock").load("orders")
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert back.collect() == frame.collect() * 2


def test_raw_topic_takes_one_column_of_values(spark: "SparkSession", home: Path) -> None:
    open_log(home).create(TopicSpec("orders"))
    save(spark.range(3).selectExpr("to_json(struct(id)) as value"))
    assert [r.value for r in records(open_log(home).topic("orders"))] == [b'{"id":0}', b'{"id":1}', b'{"id":2}']
    with pytest.raises(Exception, match=r"topic orders is raw: it takes one column, 'value', not id\n.*to_json"):
        save(spark.range(3))


def test_rows_that_the_topic_refuses_add_nothing(spark: "SparkSession", home: Path) -> None:
    frame = sales(spark).selectExpr("id", "if(id = 13, null, at) as at")
    with pytest.raises(Exception, match=r"(?s)topic orders does not take a row of this query.*'at' wants timestamp, found null"):
        save(frame, time="at")
    assert list(records(open_log(home).topic("orders"))) == []
    assert [p for p in (home / "ingest").rglob("*") if p.is_file()] == []


def test_topic_that_is_otherwise_is_refused(spark: "SparkSession", home: Path) -> None:
    save(sales(spark, 1), key="user")
    with pytest.raises(Exception, match=r"topic orders is there already, with key 'user' and not 'id'"):
        save(sales(spark, 1), key="id")
    with pytest.raises(Exception, match=r"topic orders has no column 'extra'\n.*its columns are id, user, at"):
        save(sales(spark, 1).selectExpr("*", "1 as extra"))
    with pytest.raises(Exception, match="can only be added to, not overwritten"):
        sales(spark, 1).write.format("penstock").mode("overwrite").save("orders")
    open_log(home).create(TopicSpec("results", schema=open_log(home).topic("orders").spec.schema, writer="shop"))
    with pytest.raises(Exception, match="topic results is written by flow 'shop', which alone may write it"):
        save(sales(spark, 1), "results")
    assert len(list(records(open_log(home).topic("orders")))) == 1

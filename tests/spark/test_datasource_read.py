"""spark.read.format("penstock"): typed, raw and JSON topics, ranges of offsets, and options that are refused."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.schema import Schema
from penstock.engine.datasource.format import register
from penstock.engine.datasource.options import offsets_of, read_options
from penstock.errors import BadInput
from penstock.log.open import open_log
from penstock.log.port import Topic, TopicSpec
from penstock.log.producer import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = "order_id string, user_id long, amount double, at timestamp"


@pytest.fixture
def home(spark: "SparkSession", tmp_path: Path) -> Path:
    register(spark, tmp_path / "home")
    return tmp_path / "home"


def made(home: Path, rows: list[dict[str, Any]], batch_rows: int = 2, **settings: Any) -> Topic:
    topic = open_log(home).create(TopicSpec("orders", **settings))
    with Producer(topic, batch_rows=batch_rows, linger="1 hour") as producer:
        for row in rows:
            producer.send(row)
    return topic


def orders(count: int) -> list[dict[str, Any]]:
    return [{"order_id": f"o{i}", "user_id": i % 3, "amount": i / 2, "at": f"2024-01-15T10:00:{i:02}Z"} for i in range(count)]


def load(spark: "SparkSession", **options: Any) -> "DataFrame":
    return spark.read.format("penstock").options(**options).load("orders")


def ids(frame: "DataFrame") -> list[str]:
    return [row.order_id for row in frame.collect()]


def typed(home: Path, count: int, partitions: int = 1) -> Topic:
    return made(home, orders(count), schema=Schema.of(ORDERS), key="user_id", time="at", partitions=partitions)


def test_typed_topic_has_its_own_columns(spark: "SparkSession", home: Path) -> None:
    typed(home, 5)
    frame = load(spark)
    assert frame.schema.simpleString() == "struct<order_id:string,user_id:bigint,amount:double,at:timestamp>"
    assert [row.asDict() for row in frame.orderBy("order_id").collect()] == [
        row | {"at": datetime(2024, 1, 15, 10, 0, i)} for i, row in enumerate(orders(5))
    ]


def test_nested_columns_and_decimals_come_through(spark: "SparkSession", home: Path) -> None:
    schema = Schema.of(
        "id long not null, tags array<string>, props map<string,double>, price decimal(10,2), who struct<name:string>"
    )
    row = {"id": 1, "tags": ["a", None], "props": {"x": 1.5}, "price": "12.30", "who": {"name": "Ada"}}
    made(home, [row], schema=schema)
    found = load(spark).collect()[0].asDict(recursive=True)
    assert found == row | {"price": Decimal("12.30")}


def test_system_columns_stand_beside_the_rows(spark: "SparkSession", home: Path) -> None:
    typed(home, 6, partitions=2)
    rows = load(spark, includeSystemColumns="true").collect()
    topic = open_log(home).topic("orders")
    assert sorted((r.partition, r.offset) for r in rows) == [
        (number, offset) for number, end in topic.ends().items() for offset in range(end.next)
    ]
    assert all(r.key == str(r.user_id).encode() and r.time == r["at"] and r.append_time is not None for r in rows)
    assert len({r.partition for r in rows}) == 2


def test_raw_topic_is_bytes(spark: "SparkSession", home: Path) -> None:
    made(home, orders(3))
    assert [json.loads(row.value)["order_id"] for row in load(spark).collect()] == ["o0", "o1", "o2"]


def test_raw_topic_is_decoded_from_json_by_the_schema_of_the_query(spark: "SparkSession", home: Path) -> None:
    made(home, orders(3))
    frame = spark.read.format("penstock").schema("order_id string, at timestamp").load("orders")
    assert [(r.order_id, r.at) for r in frame.collect()] == [(f"o{i}", datetime(2024, 1, 15, 10, 0, i)) for i in range(3)]


def test_json_that_does_not_fit_names_its_offset(spark: "SparkSession", home: Path) -> None:
    made(home, [*orders(3), {"order_id": "o3", "amount": "much"}])
    frame = spark.read.format("penstock").schema("order_id string, amount double").load("orders")
    with pytest.raises(Exception, match=r"(?s)orders/0, offset 3, does not fit.*'amount' wants double.*hint: read `value`"):
        frame.collect()


def test_schema_of_the_query_may_leave_columns_out(spark: "SparkSession", home: Path) -> None:
    typed(home, 2)
    frame = spark.read.format("penstock").schema("amount double, order_id string").load("orders")
    assert [tuple(row) for row in frame.collect()] == [(0.0, "o0"), (0.5, "o1")]


def test_ranges_are_cut_within_frames(spark: "SparkSession", home: Path) -> None:
    typed(home, 10)
    assert ids(load(spark, startingOffsets='{"0": 3}', endingOffsets='{"0": 8}')) == [f"o{i}" for i in range(3, 8)]
    assert ids(load(spark, startingOffsets="latest")) == []
    assert len(ids(load(spark, startingOffsets="earliest", endingOffsets="latest"))) == 10


def test_partitions_left_out_of_the_offsets_are_read_whole(spark: "SparkSession", home: Path) -> None:
    topic = typed(home, 12, partitions=2)
    ends = {number: end.next for number, end in topic.ends().items()}
    found = load(spark, startingOffsets='{"1": 2}', includeSystemColumns="true").collect()
    assert {(r.partition, r.offset) for r in found} == {(n, o) for n, end in ends.items() for o in range(2 if n == 1 else 0, end)}


def test_large_partition_is_read_by_several_tasks(spark: "SparkSession", home: Path) -> None:
    typed(home, 10)
    frame = load(spark, rowsPerTask="4")
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(ids(frame)) == sorted(row["order_id"] for row in orders(10))


def test_empty_topic_has_no_rows(spark: "SparkSession", home: Path) -> None:
    typed(home, 0)
    assert load(spark).count() == 0


def test_every_session_can_have_the_format_and_a_home_of_its_own(spark: "SparkSession", home: Path, tmp_path: Path) -> None:
    typed(home, 2)
    typed(tmp_path / "other", 3)
    other = spark.newSession()
    register(other, tmp_path / "other")
    register(other, tmp_path / "other")
    assert (load(spark).count(), load(other).count()) == (2, 3)


def test_home_of_the_query_counts_before_that_of_the_session(spark: "SparkSession", home: Path, tmp_path: Path) -> None:
    typed(tmp_path / "other", 3)
    assert load(spark, home=str(tmp_path / "other")).count() == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "latest"}, r"no option 'startingoffset' in read\n.*endingOffsets.*startingOffsets, topic"),
        ({"startingOffsets": "yesterday"}, r"startingOffsets cannot be read: 'yesterday'"),
        ({"startingOffsets": '{"0": -1}'}, r"startingOffsets has an offset that is none"),
        ({"includeSystemColumns": "yes"}, r"includeSystemColumns is true or false, not 'yes'"),
        ({"rowsPerTask": "none"}, r"rowsPerTask is a whole number from 1 on, not 'none'"),
        ({"maxRowsPerBatch": "5"}, r"no option 'maxRowsPerBatch' in read"),
        ({"topic": "../orders"}, r"'../orders' cannot name a topic"),
        ({"topic": ""}, r"which topic\?\n.*hint: say"),
    ],
)
def test_bad_options_are_refused_in_words(tmp_path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_options({"topic": "orders", **options}, tmp_path, "read")


def test_offsets_that_are_not_there_are_refused(home: Path) -> None:
    topic = typed(home, 3)
    ends, wrong = topic.ends(), {"topic": "orders", "startingOffsets": '{"7": 1}'}
    with pytest.raises(BadInput, match=r"topic orders has no partition 7\n.*it has 0 to 0"):
        offsets_of(read_options(wrong, home, "read").starting, "orders", ends, {})
    wrong["startingOffsets"] = '{"0": 99}'
    with pytest.raises(BadInput, match=r"orders/0 has no offset 99\n.*ends before 3"):
        offsets_of(read_options(wrong, home, "read").starting, "orders", ends, {})


def test_refusals_reach_whoever_runs_the_query(spark: "SparkSession", home: Path) -> None:
    typed(home, 1)
    with pytest.raises(Exception, match=r"(?s)no topic.*oders.*orders"):
        load(spark, topic="oders")
    with pytest.raises(Exception, match=r"no option 'startingoffset' in read\n"):
        load(spark, startingOffset="latest")
    with pytest.raises(Exception, match=r"column 'amount' of topic orders is double, not string\n.*hint: leave"):
        spark.read.format("penstock").schema("amount string").load("orders").collect()
    with pytest.raises(Exception, match=r"topic orders has no column 'price'\n.*its columns are order_id string"):
        spark.read.format("penstock").schema("price double").load("orders").collect()


def test_times_are_instants_in_any_zone(spark: "SparkSession", home: Path) -> None:
    typed(home, 1)
    micros = load(spark).selectExpr("unix_micros(at) as us").collect()[0].us
    assert datetime.fromtimestamp(micros / 1e6, UTC) == datetime(2024, 1, 15, 10, tzinfo=UTC)

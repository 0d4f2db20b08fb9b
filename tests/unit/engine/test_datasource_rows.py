"""Records as Spark's reader gives them, without Spark: a delete is never taken for a row."""

import pyarrow as pa
import pytest

from penstock import Producer, Schema, TopicSpec
from penstock.engine.datasource.rows import Shape, default_schema
from penstock.errors import BadRow
from penstock.log.memory import MemoryLog
from penstock.log.port import Topic

SCHEMA = Schema.of("user_id long not null, name string not null")


def users(*, raw: bool = False) -> Topic:
    topic = MemoryLog().create(TopicSpec("users", schema=None if raw else SCHEMA, key="user_id"))
    with Producer(topic) as producer:
        producer.send({"user_id": 1, "name": "a"})
        producer.delete({"user_id": 1})
    return topic


def rows(topic: Topic, *, system: bool) -> list[dict[str, object]]:
    shape = Shape.of(topic.spec, default_schema(topic.spec, system), system)
    return [row for batch in shape.rows(topic, 0, 0, 2) for row in batch.to_pylist()]


def test_a_query_that_cannot_tell_deletes_from_rows_is_refused_at_the_first() -> None:
    with pytest.raises(BadRow, match="users/0, offset 1, is a delete") as refused:
        rows(users(), system=False)
    assert "includeSystemColumns" in str(refused.value)


def test_with_system_columns_a_delete_is_a_row_with_its_op() -> None:
    schema = default_schema(users().spec, True)
    assert schema.field("name").nullable
    assert schema.field("op").type == pa.string()
    found = [(row["user_id"], row["name"], row["op"]) for row in rows(users(), system=True)]
    assert found == [(1, "a", None), (1, None, "delete")]


def test_of_a_raw_topic_a_delete_is_a_record_without_value() -> None:
    assert [row["value"] is None for row in rows(users(raw=True), system=False)] == [False, True]

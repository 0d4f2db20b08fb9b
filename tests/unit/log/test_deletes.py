"""Deletes: how producers say that a row is gone, how it is stored and how it is read."""

import datetime as dt
from typing import Any

import pytest

from penstock.core.columns import KEY, OP
from penstock.core.schema import Schema
from penstock.core.time import FixedClock, micros
from penstock.errors import BadRow
from penstock.log.consumer import read, records
from penstock.log.memory import MemoryLog
from penstock.log.port import Topic, TopicSpec
from penstock.log.producer import Producer

NOW = micros(dt.datetime(2024, 1, 15, 12))
AT = "2024-01-15T10:30:00Z"
USERS = Schema.of("user_id long, country string not null, price decimal(10,2), at timestamp not null")


def topic(**settings: Any) -> Topic:
    return MemoryLog(FixedClock(NOW)).create(TopicSpec("users", **settings))


def typed(**settings: Any) -> Topic:
    return topic(**{"schema": USERS, "time": "at", "key": "user_id"} | settings)


def user(n: int) -> dict[str, Any]:
    return {"user_id": n, "country": "DE", "price": "1.25", "at": AT}


def stored(found: Topic) -> list[dict[str, Any]]:
    return [row for p in sorted(found.ends()) for chunk in found.read(p) for row in chunk.rows.to_pylist()]


def test_a_delete_stores_the_key_and_nothing_else() -> None:
    users = typed()
    with Producer(users) as producer:
        producer.send(user(1))
        receipt = producer.delete({"user_id": 1})
    assert receipt.position is not None
    assert receipt.position.offset == 1
    last = stored(users)[-1]
    assert last == {"user_id": 1, "country": None, "price": None, "at": None, KEY: b"1", OP: 3}


@pytest.mark.parametrize("key", [7, "7", {"user_id": 7}, {"user_id": "7", "country": "DE"}])
def test_a_key_can_be_given_by_its_value_or_by_its_columns(key: Any) -> None:
    users = typed(partitions=3)
    with Producer(users) as producer:
        put, taken = producer.send(user(7)), producer.delete(key)
    assert put.position is not None
    assert taken.position is not None
    assert put.position.partition == taken.position.partition
    assert [record.deleted for record in records(users)] == [False, True]


def test_a_delete_happens_when_it_is_said_to_or_when_the_log_takes_it() -> None:
    users = typed()
    with Producer(users) as producer:
        producer.delete(1)
        producer.delete(1, time=AT)
        producer.delete({"user_id": 1, "at": AT})
    assert [record.time for record in records(users)] == [NOW, *[micros(dt.datetime(2024, 1, 15, 10, 30))] * 2]
    loose = topic(schema=Schema.of("user_id long"), key="user_id")
    with Producer(loose) as producer:
        producer.delete(1, time=AT)
    assert [record.time for record in records(loose)] == [micros(dt.datetime(2024, 1, 15, 10, 30))]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ({"country": "DE"}, "a delete without 'user_id'"),
        ({"user_id": None}, "a delete without 'user_id'"),
        ({"user_id": "x"}, "column 'user_id' wants long"),
        ("x", "column 'user_id' wants long"),
    ],
)
def test_a_delete_that_names_no_row_is_refused(key: Any, reason: str) -> None:
    producer = Producer(typed())
    receipt = producer.delete(key)
    with pytest.raises(BadRow, match=reason):
        producer.flush()
    assert receipt.position is None
    assert receipt.reason is not None


def test_a_topic_without_a_key_takes_any_column_as_the_name_of_a_row_but_not_none() -> None:
    users = typed(key=None)
    with Producer(users) as producer:
        producer.delete({"country": "DE"})
    assert stored(users)[0]["country"] == "DE"
    producer = Producer(users)
    producer.delete({})
    with pytest.raises(BadRow, match="does not say which row"):
        producer.flush()


def test_in_a_raw_topic_a_delete_is_a_record_without_value_under_the_key_of_the_row() -> None:
    users = topic(key="user_id", partitions=3)
    with Producer(users) as producer:
        put, taken = producer.send({"user_id": 5, "name": "a"}), producer.delete({"user_id": 5})
        same = producer.delete(5)
    places = {r.position.partition for r in (put, taken, same) if r.position}
    assert len(places) == 1
    assert [(r.key, r.deleted, r.value is None) for r in records(users)] == [(b"5", False, False), *[(b"5", True, True)] * 2]


def test_a_raw_topic_without_key_fields_takes_the_bytes_of_a_key_or_an_object() -> None:
    users = topic()
    with Producer(users) as producer:
        producer.delete(b"\xff")
        producer.delete("u1")
        producer.delete({"user_id": 5})
    assert [r.key for r in records(users)] == [b"\xff", b"u1", b'{"user_id":5}']


def test_a_raw_topic_takes_the_time_of_a_delete_from_its_field_where_it_has_one() -> None:
    users = topic(key="user_id", time="at")
    with Producer(users) as producer:
        producer.delete({"user_id": 1, "at": AT})
        producer.delete({"user_id": 1})
    assert [record.time for record in records(users)] == [micros(dt.datetime(2024, 1, 15, 10, 30)), NOW]


def test_lines_that_say_so_are_deletes_among_rows() -> None:
    users = typed()
    lines = [
        b'{"user_id": 1, "country": "DE", "price": 12.30, "at": "2024-01-15T10:30:00Z"}',
        b'{"user_id": 1, "__op": "delete"}',
        b'{"user_id": 2, "country": "DE", "at": "2024-01-15T10:30:00Z", "__op": "d"}',
        b'{"user_id": 3, "__op": "other"}',
        b'{"__op": "delete"}',
    ]
    sent = Producer(users).send_lines(lines)
    assert [(r.index, r.reason) for r in sent.rejected] == [
        (3, "column 'country' wants string, found nothing: it must not be null"),
        (4, "a delete without 'user_id': it says which row is gone"),
    ]
    assert [(row["user_id"], row.get(OP)) for row in stored(users)] == [(1, None), (1, 3), (2, None)]
    assert str(stored(users)[0]["price"]) == "12.30"


def test_lines_of_a_raw_topic_are_deletes_only_where_lines_are_read_as_objects() -> None:
    line = b'{"__key":"7","__op":"delete"}'
    users = topic()
    Producer(users).send_lines([line])
    Producer(users).send_lines([line], objects=True)
    assert [(r.key, r.value) for r in records(users)] == [(None, line), (b"7", None)]


def test_every_table_that_is_read_tells_deletes_from_rows() -> None:
    users = typed()
    with Producer(users) as producer:
        producer.send(user(1))
        producer.delete(1)
    tables = list(read(users))
    assert [t.column("op").to_pylist() for t in tables] == [[None], ["delete"]]
    named = topic(schema=Schema.of("op string"), key="op")
    with Producer(named) as producer:
        producer.delete("x")
    assert next(iter(read(named))).select(["op", "_op"]).to_pylist() == [{"op": "x", "_op": "delete"}]


def test_a_raw_topic_tells_deletes_though_its_values_are_not_asked_for() -> None:
    users = topic()
    with Producer(users) as producer:
        producer.send({"user_id": 1})
        producer.delete("1")
    assert [row["op"] for table in read(users, columns=["op"]) for row in table.to_pylist()] == [None, "delete"]

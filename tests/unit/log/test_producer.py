"""The producer: rows and marks reach the log once, in the partition they belong to, or are refused with a reason."""

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.hashing import partition_of
from penstock.core.position import Position
from penstock.core.schema import Schema
from penstock.core.time import FOREVER, NEVER, FixedClock, micros
from penstock.errors import BadInput, BadRow, BadSchema, BadTime, Fenced, StorageError
from penstock.log.consumer import records
from penstock.log.intake.checked import CheckedRows
from penstock.log.memory import MemoryLog
from penstock.log.port import Appended, Sender, Topic, TopicSpec
from penstock.log.producer import Producer

NOW = micros(dt.datetime(2024, 1, 15, 12))
AT = "2024-01-15T10:30:00Z"
ORDERS = Schema.of("order_id string, user_id long, at timestamp")


def topic(**settings: Any) -> Topic:
    return MemoryLog(FixedClock(NOW)).create(TopicSpec(settings.pop("name", "orders"), **settings))


def typed(**settings: Any) -> Topic:
    return topic(**{"schema": ORDERS, "time": "at", "key": "user_id", "partitions": 3} | settings)


def order(n: int, **other: Any) -> dict[str, Any]:
    return {"order_id": f"o{n}", "user_id": n, "at": AT} | other


class Flaky:
    """A topic that fails in the middle of an append: before it is done, or after."""

    def __init__(self, inner: Topic, failures: Iterator[str]) -> None:
        self.inner, self.failures, self.spec, self.frames = inner, failures, inner.spec, inner.frames

    def append(
        self, partition: int, rows: pa.RecordBatch | CheckedRows | None, *, mark: int = NEVER, sender: Sender | None = None
    ) -> Appended:
        what = next(self.failures, "")
        if what == "before":
            raise StorageError("no answer")
        appended = self.inner.append(partition, rows, mark=mark, sender=sender)
        if what == "after":
            raise StorageError("no answer")
        return appended


def test_rows_go_to_the_partition_of_their_key_and_the_receipt_says_where() -> None:
    into = typed()
    with Producer(into) as producer:
        receipts = [producer.send(order(n)) for n in range(20)]
        assert receipts[0].position is None
    by_position = {r.position: r for r in records(into)}
    for n, receipt in enumerate(receipts):
        assert receipt.position is not None
        assert receipt.position.partition == partition_of(str(n).encode(), 3)
        stored = by_position[receipt.position]
        assert (stored.key, stored.value["order_id"], stored.time) == (
            str(n).encode(),
            f"o{n}",
            micros(dt.datetime(2024, 1, 15, 10, 30)),
        )


def test_a_partition_that_is_named_counts_before_the_key_and_no_key_means_partition_0() -> None:
    into = topic(partitions=3)
    with Producer(into) as producer:
        receipts = [producer.send({"a": 1}, key="k", partition=2), producer.send({"a": 2}), producer.send(b'{"a": 3}', key=b"k")]
    assert [r.position and r.position.partition for r in receipts] == [2, 0, partition_of(b"k", 3)]
    assert [r.value for r in records(into, partitions=[2])] == [b'{"a":1}'] + ([b'{"a": 3}'] if partition_of(b"k", 3) == 2 else [])


def test_headers_and_times_are_stored_beside_a_raw_row() -> None:
    into = topic()
    with Producer(into) as producer:
        producer.send({"a": 1}, headers={"h": "x", "g": b"\xff"}, time="2024-01-15T11:00:00Z")
    [record] = records(into)
    assert (record.headers, record.time) == ({"h": b"x", "g": b"\xff"}, micros(dt.datetime(2024, 1, 15, 11)))


def test_rows_with_and_without_a_time_of_their_own_may_follow_each_other() -> None:
    into = topic()
    with Producer(into) as producer:
        receipts = [producer.send({"n": n}, time=5 if n % 2 else None, partition=0 if n else None) for n in range(4)]
    assert [r.time for r in records(into)] == [NOW, 5, NOW, 5]
    assert [r.position and r.position.offset for r in receipts] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        (["a", None, ""], [b"a", None, b""]),
        ([1, -2, None], [b"1", b"-2", None]),
        (["a", 1, 1.5, True, [1, "x"], {"b": None}, None], [b"a", b"1", b"1.5", b"true", b'[1,"x"]', b'{"b":null}', None]),
    ],
)
def test_the_key_of_a_raw_row_is_the_text_of_its_field(values: list[Any], keys: list[bytes | None]) -> None:
    into = topic(key="k")
    with Producer(into) as producer:
        for value in values:
            producer.send({"k": value})
    assert [r.key for r in records(into)] == keys


def test_a_partition_said_for_some_rows_leaves_the_others_to_their_key() -> None:
    into = topic(partitions=3, key="k")
    with Producer(into) as producer:
        receipts = [producer.send({"k": "x"}, partition=n % 3 if n < 3 else None) for n in range(4)]
    assert [r.position and r.position.partition for r in receipts] == [0, 1, 2, partition_of(b"x", 3)]


def test_rows_too_large_because_of_what_is_nested_are_refused() -> None:
    into = topic(schema=Schema.of("l array<string>"), max_record=100)
    sent = Producer(into).send_arrow(pa.table({"l": [["x" * 20], ["x" * 200], ["y"]]}))
    assert [(r.index, r.reason) for r in sent.rejected] == [(1, "is larger than the record limit of the topic, 100 bytes")]


def test_a_raw_topic_takes_key_and_time_from_the_fields_of_its_json() -> None:
    into = topic(key="user, n", time="at")
    with Producer(into) as producer:
        producer.send({"user": "é", "n": 1, "at": dt.datetime(2024, 1, 15, 10), "x": decimal.Decimal("1.50"), "b": b"\x00"})
        producer.send(b'{"at": "2024-01-15T11:00:00+01:00"}')
    first, second = records(into)
    assert first.value == '{"user":"é","n":1,"at":"2024-01-15T10:00:00Z","x":"1.50","b":"AA=="}'.encode()
    assert (first.key, second.key) == ('["é",1]'.encode(), None)
    assert first.time == second.time == micros(dt.datetime(2024, 1, 15, 10))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"{}", "column 'at' wants timestamp, found null: it is the event time of the topic"),
        (b'{"at": 5}', "column 'at' wants timestamp, found the number 5"),
        (b"[]", "wants a JSON object, found a list"),
        (b'{"at": "2024-01-15T10:30:00Z", "x": "' + b"y" * 200 + b'"}', "is larger than the record limit of the topic, 100 bytes"),
        ({"at": AT, "x": object()}, "cannot be written as JSON: "),
    ],
)
def test_a_row_that_does_not_fit_is_told_and_the_others_are_in_the_log(row: Any, reason: str) -> None:
    into = topic(time="at", max_record=100)
    producer = Producer(into)
    receipts = [producer.send({"at": AT}), producer.send(row), producer.send({"at": AT})]
    with pytest.raises(BadRow, match="was refused"):
        producer.flush()
    assert str(receipts[1].reason).startswith(reason)
    assert [r.position for r in receipts] == [Position("orders", 0, 0), None, Position("orders", 0, 1)]
    assert len(list(records(into))) == 2


def test_refused_rows_go_to_whoever_asks_for_them() -> None:
    refused: list[tuple[Any, str]] = []
    with Producer(typed(), on_reject=lambda row, reason: refused.append((row, reason))) as producer:
        producer.send(order(1, user_id="x"))
    assert refused == [(order(1, user_id="x"), "column 'user_id' wants long, found the text 'x'")]


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("user_id % 3", [0, 1, 2, 0, 1]),
        ("(user_id + 1) * 2 % 3", [2, 1, 0, 2, 1]),
        ("user_id * 1000000007 * 1000000007 * 1000000007 % 3", [(n * 1000000007**3) % 3 for n in range(5)]),
        ("-user_id % 3", [-n % 3 for n in range(5)]),
    ],
)
@pytest.mark.parametrize("schema", [ORDERS, None])
def test_rows_go_where_the_expression_says(rule: str, wanted: list[int], schema: Schema | None) -> None:
    into = topic(schema=schema, partitions=3, partition_by=rule)
    with Producer(into) as producer:
        receipts = [producer.send(order(n)) for n in range(5)]
    assert [r.position and r.position.partition for r in receipts] == wanted


def test_rows_that_no_partition_fits_are_refused() -> None:
    refused: list[str] = []
    with Producer(typed(partition_by="user_id"), on_reject=lambda row, reason: refused.append(reason)) as producer:
        for user in (2, 3, -1, None):
            producer.send(order(0, user_id=user))
    assert refused == [
        "goes to partition 3; topic orders has 0 to 2",
        "goes to partition -1; topic orders has 0 to 2",
        "column 'user_id' wants long, found null: the partition depends on it",
    ]


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "user_id %",
        "user_id % 0",
        "user_id % x",
        "__import__('os')",
        "user_id; x",
        "(" * 200 + "user_id" + ")" * 200,
        "-" * 200 + "user_id",
        "7",
        "a b",
        "user_id ** 2",
        "9" * 30 + "*user_id",
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_before_anything_is_written(rule: str) -> None:
    with pytest.raises(BadInput, match="partition"):
        Producer(typed(partition_by=rule or " "))


def test_a_rule_or_key_over_a_column_that_cannot_serve_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot depend on 'order_id'"):
        Producer(typed(partition_by="order_id % 3"))
    with pytest.raises(BadSchema, match="no column 'nobody'"):
        Producer(typed(key="nobody"))


def test_an_unknown_outcome_is_tried_again_under_the_same_number_and_stored_once() -> None:
    inner = typed(partitions=1)
    producer = Producer(Flaky(inner, iter(["after", "before", "", "after"])))
    receipts = [producer.send(order(n)) for n in range(3)]
    for _ in range(2):
        with pytest.raises(StorageError):
            producer.flush()
    producer.flush()
    with pytest.raises(StorageError):
        producer.mark(AT)
    producer.flush()
    receipts.append(producer.send(order(3)))
    producer.flush()
    assert producer.acknowledged == 4
    assert [r.position and r.position.offset for r in receipts] == [0, 1, 2, 3]
    assert [r.value["order_id"] for r in records(inner)] == ["o0", "o1", "o2", "o3"]
    assert [(f.sender and f.sender.sequence, f.count) for f in inner.frames(0)] == [(0, 3), (1, 0), (2, 1)]


def test_a_producer_with_a_name_goes_on_where_it_ended_and_a_higher_epoch_shuts_it_out() -> None:
    into = typed(partitions=1)
    for n in range(2):
        with Producer(into, id="me") as producer:
            producer.send(order(n))
    assert [f.sender for f in into.frames(0)] == [Sender("me", 0, 0), Sender("me", 0, 1)]
    with Producer(into, id="me", epoch=1) as successor:
        successor.send(order(2))
    producer.send(order(3))
    with pytest.raises(Fenced):
        producer.flush()
    assert [r.value["order_id"] for r in records(into)] == ["o0", "o1", "o2"]


def test_marks_stand_behind_the_rows_sent_before_in_every_partition() -> None:
    into = typed()
    with Producer(into) as producer:
        producer.send(order(1))
        producer.mark(AT)
        producer.mark(FOREVER, partition=2)
    at = micros(dt.datetime(2024, 1, 15, 10, 30))
    assert {p: end.mark for p, end in into.ends().items()} == {0: at, 1: at, 2: FOREVER}
    assert sum(end.next for end in into.ends().values()) == 1


def test_a_mark_too_far_ahead_is_refused_and_does_not_stand_in_the_way() -> None:
    into = typed()
    producer = Producer(into)
    with pytest.raises(BadTime):
        producer.mark("2024-02-15T10:30:00Z")
    with pytest.raises(BadInput, match="no partition 3"):
        producer.mark(AT, partition=3)
    producer.send(order(1))
    producer.flush()
    assert sum(end.next for end in into.ends().values()) == 1


def test_rows_are_written_when_enough_are_there_or_they_waited_long_enough() -> None:
    into = topic()
    producer = Producer(into, batch_rows=3, linger="1 hour")
    receipts = [producer.send({"n": n}) for n in range(4)]
    assert [r.position is not None for r in receipts] == [True, True, True, False]
    assert Producer(into, linger=dt.timedelta(0)).send({"n": 9}).position is not None


def test_arrow_tables_are_written_in_frames_and_every_row_has_its_place() -> None:
    into = typed()
    table = pa.table({"user_id": pa.array(range(10), pa.int32()), "at": pa.array([1] * 10, pa.timestamp("ms"))})
    sent = Producer(into, batch_rows=4).send_arrow(table)
    assert (sent.rows, sent.rejected) == (10, [])
    stored = {(r.partition, r.offset): r.value for r in records(into)}
    assert [stored[p, o]["user_id"] for p, o in zip(sent.partitions.tolist(), sent.offsets.tolist(), strict=True)] == list(
        range(10)
    )
    assert stored[int(sent.partitions[0]), int(sent.offsets[0])]["order_id"] is None


def test_arrow_tables_that_do_not_fit_are_refused_whole() -> None:
    with pytest.raises(BadSchema, match="no column 'x'"):
        Producer(typed()).send_arrow(pa.table({"x": [1]}))
    with pytest.raises(BadSchema, match="cannot take these values"):
        Producer(typed()).send_arrow(pa.table({"user_id": ["x"]}))
    with pytest.raises(BadSchema, match="must not be null"):
        Producer(typed(schema=Schema.of("a int not null, user_id int, at timestamp"))).send_arrow(pa.table({"user_id": [1]}))
    with pytest.raises(BadSchema, match="is raw"):
        Producer(topic()).send_arrow(pa.table({"a": [1]}))
    with pytest.raises(BadSchema, match="must not be null, and 1 values are"):
        Producer(topic()).send_arrow(pa.table({"value": ["{}", None]}))
    raw = topic()
    assert Producer(raw).send_arrow(pa.table({"value": ['{"a": 1}']}), keys=[b"k"], partition=0).rows == 1
    assert [(r.key, r.value) for r in records(raw)] == [(b"k", b'{"a": 1}')]


def test_only_the_lines_before_the_first_refused_one_are_written_if_that_is_asked_for() -> None:
    into = topic()
    sent = Producer(into, batch_rows=3).send_lines(
        [b'{"n":1}', b'{"n":2}', b'{"n":3}', b'{"n":4}', b"x", b'{"n":6}', b"y"], objects=True, before_refused=True
    )
    assert (sent.rows, [r.index for r in sent.rejected]) == (4, [4])
    assert sent.offsets.tolist() == [0, 1, 2, 3, -1, -1, -1]
    assert len(list(records(into))) == 4


def test_raw_lines_need_not_be_json_if_they_are_kept_as_they_are() -> None:
    into = topic()
    assert Producer(into).send_lines([b"\xff\x00", b""]).rows == 2
    assert [r.value for r in records(into)] == [b"\xff\x00", b""]


def test_a_time_beside_a_row_is_refused_where_a_column_holds_it_or_it_is_none() -> None:
    with pytest.raises(BadInput, match="is its column 'at'"):
        Producer(typed()).send(order(1), time=AT)
    with pytest.raises(BadTime):
        Producer(topic()).send({"a": 1}, time=FOREVER)


def test_large_batches_are_cut_into_frames() -> None:
    into = topic(durability="memory")
    sent = Producer(into).send_lines([bytes(1 << 20)] * 40)
    assert sent.rows == 40
    assert len([f for f in into.frames(0) if f.count]) == 2
    assert sent.offsets.tolist() == list(range(40))

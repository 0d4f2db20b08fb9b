"""Envelopes of change data capture: recognised, declared, wrapped, typed; ordered as the database did it."""

import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Flow, FlowTest, Producer, Schema
from penstock.core.columns import POSITION, TIME
from penstock.core.position import position_text
from penstock.core.time import NEVER, moment
from penstock.engine.execute.program import lower
from penstock.engine.source.debezium import Envelopes, Unfit
from penstock.engine.source.read import Range, read
from penstock.engine.source.spec import topic_of
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer

Start = Callable[..., FlowTest]
COLUMNS = "user_id long, name string, at timestamp"
MS = 1_705_312_800_000  # 2024-01-15T10:00:00Z


def table(columns: str = COLUMNS, **how: Any) -> Flow:
    flow = Flow("shop")
    flow.table("users", columns, **{"key": "user_id"} | how).view("users")
    return flow


def envelope(op: str, row: dict[str, Any] | None, lsn: int | None = None, ms: int = MS, **more: Any) -> dict[str, Any]:
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {**sides, "op": op, "source": {"lsn": lsn, "ts_ms": ms, "table": "users"}, "ts_ms": ms + 9, **more}


def wrapped(record: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": []}, "payload": record}


class Captured:
    """A raw topic as a connector writes it: keys are JSON objects."""

    def __init__(self, t: FlowTest) -> None:
        self.t = t
        t.clock.set("2024-01-15T12:00:00Z")
        self.topic = t.topic("users", schema=None, key=None, time=None)
        self.producer = Producer(self.topic)

    def write(self, *records: Any, key: Any = 1, tombstone: bool = False) -> "Captured":
        name = orjson.dumps({"user_id": key})
        for record in records:
            self.producer.send(orjson.dumps(record), key=name)
        if tombstone:
            self.producer.delete(name)
        self.producer.flush()
        return self

    def names(self) -> dict[int, str]:
        self.t.catch_up()
        return {row["user_id"]: row["name"] for row in self.t.rows("users")}

    def reasons(self) -> list[str]:
        return [letter["reason"] for letter in self.t.rows("dead")]


@pytest.fixture(params=["detect", "debezium"])
def captured(request: pytest.FixtureRequest, flow_test: Start) -> Captured:
    return Captured(flow_test(table(changes=request.param)))


def test_creates_reads_updates_and_deletes_make_the_table(captured: Captured) -> None:
    captured.write(envelope("r", {"user_id": 1, "name": "a"}, 1), envelope("u", {"user_id": 1, "name": "b"}, 2, MS + 1))
    captured.write(envelope("c", {"user_id": 2, "name": "c"}, 3, MS + 2), key=2)
    assert captured.names() == {1: "b", 2: "c"}
    captured.write(envelope("d", {"user_id": 1, "name": ""}, 4, MS + 3), tombstone=True)
    assert captured.names() == {2: "c"}
    assert captured.reasons() == []


def test_envelopes_may_stand_beside_their_schema(captured: Captured) -> None:
    captured.write(wrapped(envelope("c", {"user_id": 1, "name": "a"}, 1)), wrapped(envelope("u", {"user_id": 1, "name": "b"}, 2)))
    assert captured.names() == {1: "b"}
    captured.write(wrapped(envelope("d", {"user_id": 1}, 3)), wrapped(None))
    assert captured.names() == {}


def test_a_delete_without_its_row_is_named_by_the_key_of_the_record(captured: Captured) -> None:
    captured.write(envelope("c", {"user_id": 1, "name": "a"}, 1), envelope("d", None, 2))
    assert captured.names() == {}
    captured.producer.send(orjson.dumps(envelope("d", None, 3)))
    captured.producer.flush()
    captured.names()
    assert captured.reasons() == ["a delete, and it has no key"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (envelope("t", None), "op 't': a truncate"),
        (envelope("m", None), "op 'm': a message"),
        (envelope("x", None), "op 'x': neither c, r, u nor d"),
        (envelope("c", None), "op 'c' without a row"),
        (envelope("c", {"user_id": None, "name": "a"}), "column 'user_id' is null: the key of the table"),
        (envelope("c", {"user_id": "x", "name": "a"}), "column 'user_id' wants long"),
        (envelope("u", {"user_id": 1, "name": "__debezium_unavailable_value"}), "large and unchanged"),
        (envelope("u", {"user_id": 1, "name": "a", "at": 2**62}), "column 'at': 4611686018427387904 is no time"),
        (wrapped([1]), '"payload" wants an object'),
    ],
)
def test_what_is_no_change_of_a_row_is_dead_with_the_reason(captured: Captured, record: Any, reason: str) -> None:
    captured.write(envelope("c", {"user_id": 2, "name": "b"}, 1), record)
    assert captured.names() == {2: "b"}
    (said,) = captured.reasons()
    assert reason in said


def test_rows_and_envelopes_are_told_apart_record_by_record(flow_test: Start) -> None:
    captured = Captured(flow_test(table()))
    captured.write(
        {"user_id": 1, "name": "row"}, envelope("c", {"user_id": 2, "name": "envelope"}), wrapped({"user_id": 3, "name": "flat"})
    )
    assert captured.names() == {1: "row", 2: "envelope", 3: "flat"}


def test_a_table_of_envelopes_alone_refuses_rows(flow_test: Start) -> None:
    captured = Captured(flow_test(table(changes="debezium")))
    captured.write({"user_id": 1, "name": "row"}, envelope("c", {"user_id": 2, "name": "b"}))
    assert captured.names() == {2: "b"}
    assert captured.reasons() == ['is no envelope: it has no "op" with "before" or "after"']


def test_rows_that_have_such_columns_themselves_are_rows(flow_test: Start) -> None:
    captured = Captured(flow_test(table("user_id long, name string, op string, after string")))
    captured.write({"user_id": 1, "name": "a", "op": "d", "after": "x"})
    assert captured.names() == {1: "a"}
    narrow = Flow("shop")
    users = narrow.table("users", "user_id long, name string, op string, after string", key="user_id")
    users.select("user_id", "name").view("narrow")
    other = Captured(t := flow_test(narrow))
    other.write({"user_id": 1, "name": "a", "op": "d", "after": "x"})
    t.catch_up()
    assert t.rows("narrow") == [{"user_id": 1, "name": "a"}], "though nobody reads these columns"
    rows = Captured(flow_test(table("user_id long, name string", changes="rows")))
    rows.write({"user_id": 1, "name": "a", "op": "d", "after": "x"})
    assert rows.names() == {1: "a"}


def test_times_days_and_numbers_are_taken_as_debezium_writes_them(flow_test: Start) -> None:
    columns = "user_id long, name string, at timestamp, day date, ok boolean, price decimal(12,4)"
    captured = Captured(flow_test(table(columns)))
    row = {"user_id": 1, "name": "a", "at": MS, "day": 19737, "ok": 1, "price": 12.3400}
    captured.write(envelope("c", row), envelope("c", row | {"user_id": 2, "at": MS * 1000 + 7, "ok": 0, "price": "0.1000"}))
    captured.write(envelope("c", row | {"user_id": 3, "at": "2024-01-15T10:00:00Z", "ok": True}))
    captured.names()
    ten = dt.datetime(2024, 1, 15, 10, tzinfo=dt.UTC)
    found = [(r["at"], r["day"], r["ok"], r["price"]) for r in captured.t.rows("users")]
    day = dt.date(2024, 1, 15)
    assert found == [
        (ten, day, True, Decimal("12.3400")),
        (ten + dt.timedelta(microseconds=7), day, False, Decimal("0.1000")),
        (ten, day, True, Decimal("12.3400")),
    ]


@pytest.mark.parametrize(
    ("kind", "number"),
    [("Timestamp", 5_000), ("MicroTimestamp", 5_000_000), ("NanoTimestamp", 5_000_000_000)],
)
def test_the_schema_beside_the_payload_says_what_a_number_counts(kind: str, number: int) -> None:
    fields = [{"field": "at", "type": "int64", "name": f"io.debezium.time.{kind}"}, {"field": "name", "type": "string"}]
    schema = {"type": "struct", "fields": [{"field": "after", "fields": fields}, {"field": "op"}]}
    change = Envelopes(Schema.of(COLUMNS)).change(envelope("c", {"user_id": 1, "at": number}), schema)
    assert change.row["at"] == moment(5_000_000)


def test_the_time_is_the_flows_column_else_when_the_database_did_it_else_when_it_was_captured(flow_test: Start) -> None:
    source = envelope("c", {"user_id": 1, "name": "a", "at": MS + 60_000}, 1)
    without = envelope("c", {"user_id": 2, "name": "b"}, 2) | {"source": {"lsn": 2}}
    nothing = {"op": "c", "after": {"user_id": 3, "name": "c"}}
    for how, times in ((dict[str, Any](), [MS, MS + 9, None]), ({"time": "at"}, [MS + 60_000])):
        captured = Captured(t := flow_test(table(**how)))
        captured.write(source, without, nothing)
        appended = t.log.topic("users").frames(0)[0].appended
        rows = versions(t, how)
        assert rows.column(TIME).to_pylist() == [appended if ms is None else ms * 1000 for ms in times]


def versions(t: FlowTest, how: dict[str, Any]) -> Any:
    program = lower(resolve(table(**how), NoAnalyzer()), {"users": t.log.topic("users")})
    spec = program.sources["users"]
    (piece,) = read(topic_of(spec, t.log), spec, Range("users", 0, 0, t.log.topic("users").ends()[0].next, NEVER, NEVER))
    return piece.rows


def test_the_place_in_the_database_stands_before_the_place_in_the_log(flow_test: Start) -> None:
    captured = Captured(t := flow_test(table()))
    mysql = {"source": {"file": "mysql-bin.000003", "pos": 154, "row": 1, "ts_ms": MS}}
    captured.write(envelope("c", {"user_id": 1}, 77), envelope("c", {"user_id": 1}) | mysql, {"user_id": 1})
    assert [position_text(p) for p in versions(t, {}).column(POSITION).to_pylist()] == [
        "users/0@0 (lsn 77)",
        "users/0@1 (mysql-bin.000003:154 row 1)",
        "users/0@2",
    ]


def test_of_changes_at_one_moment_the_later_place_in_the_database_holds(captured: Captured) -> None:
    """A connector that was started over writes older changes behind newer ones."""
    captured.write(envelope("u", {"user_id": 1, "name": "new"}, 20), envelope("c", {"user_id": 1, "name": "old"}, 10))
    captured.write(envelope("c", {"user_id": 2, "name": "one"}, 30), envelope("u", {"user_id": 2, "name": "same lsn"}, 30))
    assert captured.names() == {1: "new", 2: "same lsn"}


def test_the_place_in_the_database_counts_before_a_time_of_the_users_own(flow_test: Start) -> None:
    captured = Captured(flow_test(table(changes="debezium", time="at")))
    captured.write(envelope("c", {"user_id": 1, "name": "first", "at": MS + 60_000}, 1))
    captured.write(envelope("u", {"user_id": 1, "name": "second", "at": MS}, 2))
    assert captured.names() == {1: "second"}


def test_a_row_that_comes_back_is_not_hidden_by_the_record_without_value_behind_its_delete(captured: Captured) -> None:
    """That record is written long after the database did what follows: the connector was behind."""
    captured.write(envelope("c", {"user_id": 1, "name": "a"}, 1), envelope("d", {"user_id": 1}, 2, MS + 1), tombstone=True)
    captured.write(envelope("c", {"user_id": 1, "name": "back"}, 3, MS + 2))
    assert captured.names() == {1: "back"}


def test_a_record_without_value_that_follows_no_envelope_is_a_delete(flow_test: Start) -> None:
    captured = Captured(flow_test(table()))
    captured.write({"user_id": 1, "name": "a"}, tombstone=True)
    captured.write({"user_id": 2, "name": "b"}, key=2)
    assert captured.names() == {2: "b"}


operations = st.lists(st.tuples(st.sampled_from("cud"), st.integers(1, 2)), min_size=1, max_size=12)


@settings(max_examples=25)
@given(operations, st.lists(st.integers(0, 4), max_size=8), st.sampled_from(["detect", "debezium"]))
def test_wherever_epochs_are_cut_the_table_is_that_of_the_database(operations: list[Any], cuts: list[int], how: Any) -> None:
    held: dict[int, str] = {}
    with table(changes=how).test() as t:
        captured = Captured(t)
        for number, (op, key) in enumerate(operations):
            row = {"user_id": key, "name": f"n{number}"}
            captured.write(envelope(op, row, number // 2, MS + number), key=key, tombstone=op == "d")
            held.pop(key, None)
            held |= {} if op == "d" else {key: row["name"]}
        for cut in cuts:
            t.epoch(cut=cut)
        assert captured.names() == held


ENVELOPES = (
    "before struct<user_id:bigint,name:string>, after struct<user_id:bigint,name:string>, op string, "
    "source struct<lsn:bigint,ts_ms:bigint>, ts_ms bigint"
)


def typed(t: FlowTest, records: Iterable[dict[str, Any]]) -> None:
    t.clock.set("2024-01-15T12:00:00Z")
    t.topic("users", schema=Schema.of(ENVELOPES), key=None, time=None)
    with Producer(t.log.topic("users")) as producer:
        for record in records:
            producer.send(record, key=b"1")


@pytest.mark.parametrize("how", ["detect", "debezium"])
def test_a_typed_topic_may_hold_envelopes(flow_test: Start, how: str) -> None:
    t = flow_test(table("user_id long, name string", changes=how))
    first = envelope("c", {"user_id": 1, "name": "a"}, 1)
    second = envelope("u", {"user_id": 1, "name": "b"}, 2)
    older = envelope("u", {"user_id": 1, "name": "older"}, 0)
    bare = envelope("d", None, 3)
    other = envelope("c", {"user_id": 2, "name": "c"}, 4)
    typed(t, [first, second, older, other])
    t.epoch()
    assert [(r["user_id"], r["name"]) for r in t.rows("users")] == [(1, "b"), (2, "c")]
    with Producer(t.log.topic("users")) as producer:
        producer.send(bare, key=b"1")
        producer.send(envelope("t", None), key=b"1")
        producer.send(envelope("c", None), key=b"1")
    t.epoch()
    assert [(r["user_id"], r["name"]) for r in t.rows("users")] == [(2, "c")]
    assert [letter["reason"] for letter in t.rows("dead")] == [
        "op 't': a truncate: which rows it takes out stands nowhere; a table cannot follow it",
        'a row is put in, and "after" is null',
    ]


def test_an_op_that_is_no_text_is_unfit() -> None:
    for op in (None, 1, ["c"]):
        with pytest.raises(Unfit, match="neither c, r, u nor d"):
            Envelopes(Schema.of(COLUMNS)).change({"op": op, "after": {}})

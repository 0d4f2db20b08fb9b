"""Tables over topics: rows and deletes, as typed topics and raw ones hold them; what holds is the newest version of each key."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from penstock import Flow, FlowTest, Producer, Schema, TopicSpec, agg
from penstock.core.change import Op
from penstock.core.columns import APPEND_TIME, OP, POSITION, TIME, WATERMARK
from penstock.core.position import Position
from penstock.core.time import NEVER, micros, moment
from penstock.engine.execute.program import Program, lower
from penstock.engine.source.read import Range, positioned, read
from penstock.engine.source.spec import topic_of
from penstock.errors import BadFlow
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.log.consumer import records
from penstock.log.memory import MemoryLog

Start = Callable[..., FlowTest]
COLUMNS = "user_id long, name string not null, at timestamp"


def table(columns: str = COLUMNS, **settings: Any) -> Flow:
    flow = Flow("shop")
    flow.table("users", columns, **{"key": "user_id"} | settings).view("users")
    return flow


def at(minute: int) -> str:
    return f"2024-01-15T10:{minute:02}:00Z"


def user(n: int, name: str, minute: int = 0, **more: Any) -> dict[str, Any]:
    return {"user_id": n, "name": name, "at": at(minute), **more}


def names(t: FlowTest) -> dict[int, str]:
    return {row["user_id"]: row["name"] for row in t.rows("users")}


def reasons(t: FlowTest) -> list[str]:
    return [letter["reason"] for letter in t.rows("dead")]


@pytest.fixture(params=["typed", "raw"])
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of the topic: with a schema, or raw."""
    return {} if request.param == "typed" else {"schema": None}


def test_a_newer_row_replaces_the_row_of_its_key_and_a_delete_takes_it_out(flow_test: Start, kind: dict[str, Any]) -> None:
    t = flow_test(table(time="at"))
    t.topic("users", **kind)
    t.send("users", user(1, "a"), user(2, "b"), user(3, "c"))
    t.epoch()
    t.send("users", user(1, "A", 1))
    t.delete("users", user_id=2, at=at(1))
    t.epoch()
    assert names(t) == {1: "A", 3: "c"}
    t.send("users", user(2, "again", 2))
    t.epoch()
    assert names(t) == {1: "A", 2: "again", 3: "c"}
    assert t.fates("users") == {"in": 6, "dead": 0, "implausible": 0, "passed": 6}


def test_older_never_overwrites_newer_whatever_order_they_come_in(flow_test: Start, kind: dict[str, Any]) -> None:
    t = flow_test(table(time="at"))
    t.topic("users", **kind)
    t.send("users", user(1, "new", 30), user(2, "kept", 30), user(3, "x", 10))
    t.epoch()
    t.send("users", user(1, "old", 10))
    t.delete("users", user_id=2, at=at(10))
    t.delete("users", user_id=3, at=at(30))
    t.send("users", user(3, "before its delete", 20))
    t.epoch()
    assert names(t) == {1: "new", 2: "kept"}


def test_without_a_time_the_last_record_holds(flow_test: Start, kind: dict[str, Any]) -> None:
    t = flow_test(table())
    t.topic("users", time=None, **kind)
    t.send("users", user(1, "first", 30), user(1, "second", 10), user(2, "x"))
    t.delete("users", user_id=2)
    t.epoch()
    assert names(t) == {1: "second"}


def test_a_delete_without_a_time_happens_when_the_log_took_it(flow_test: Start, kind: dict[str, Any]) -> None:
    t = flow_test(table(time="at"))
    t.topic("users", **kind)
    t.clock.set(at(20))
    t.send("users", user(1, "a", 10), user(2, "b", 10))
    t.delete("users", user_id=1)
    t.delete("users", user_id=2)
    t.send("users", user(1, "before", 19), user(2, "after", 21))
    t.epoch()
    assert names(t) == {2: "after"}


def test_the_key_of_a_delete_may_stand_in_the_key_of_the_record_alone(flow_test: Start) -> None:
    t = flow_test(table("user_id long, country string, name string", key=["user_id", "country"]))
    t.topic("users", schema=None, key="user_id, country")
    t.send("users", {"user_id": 1, "country": "DE", "name": "a"}, {"user_id": 1, "country": "FR", "name": "b"})
    t.delete("users", user_id=1, country="DE")
    t.epoch()
    assert [row["country"] for row in t.rows("users")] == ["FR"]


@pytest.mark.parametrize("word", ["d", "D", "delete", "DELETE", " Delete "])
def test_an_op_column_says_that_a_row_is_gone(flow_test: Start, kind: dict[str, Any], word: str) -> None:
    t = flow_test(table("user_id long, name string, what string", op="what"))
    t.topic("users", **kind)
    t.send("users", {"user_id": 1, "name": "a"}, {"user_id": 2, "name": "b", "what": "c"})
    t.epoch()
    t.send("users", {"user_id": 1, "what": word})
    t.epoch()
    assert names(t) == {2: "b"}


@pytest.mark.parametrize("word", ["c", "r", "u", "I", "U", "insert", "Update", "UPSERT", None])
def test_an_op_column_says_that_a_row_is_put_in(flow_test: Start, kind: dict[str, Any], word: str | None) -> None:
    t = flow_test(table("user_id long, name string, what string", op="what"))
    t.topic("users", **kind)
    t.send("users", {"user_id": 1, "name": "a", "what": word})
    t.epoch()
    assert names(t) == {1: "a"}


def test_an_op_that_is_none_is_dead_with_the_reason_and_others_pass(flow_test: Start, kind: dict[str, Any]) -> None:
    t = flow_test(table("user_id long, name string, what string", op="what"))
    t.topic("users", **kind)
    t.send("users", {"user_id": 1, "name": "a", "what": "x"}, {"user_id": 2, "name": "b", "what": "u"})
    t.delete("users", user_id=2)
    t.epoch()
    assert names(t) == {}
    assert reasons(t) == ["column 'what' says 'x': neither insert, update, upsert nor delete, nor c, r, u, d"]
    assert t.fates("users") == {"in": 3, "dead": 1, "implausible": 0, "passed": 2}


def test_an_op_column_that_nobody_else_reads_is_read_all_the_same(flow_test: Start) -> None:
    flow = Flow("shop")
    flow.table("users", "user_id long, name string, what string", key="user_id", op="what").select("user_id", "name").view("v")
    t = flow_test(flow)
    t.topic("users", schema=Schema.of("user_id long, name string, what string"))
    t.send("users", {"user_id": 1, "name": "a"}, {"user_id": 2, "name": "b"}, {"user_id": 1, "what": "d"})
    t.epoch()
    assert t.rows("v") == [{"user_id": 2, "name": "b"}]


def test_a_row_without_its_key_or_without_what_it_must_have_is_dead(flow_test: Start) -> None:
    t = flow_test(table(time="at"))
    t.topic("users", schema=None, key=None, time=None)
    producer = Producer(t.log.topic("users"))
    producer.send({"name": "nobody", "at": at(1)})
    producer.send({"user_id": 1, "at": at(1)})
    producer.send({"user_id": 2, "name": "b"}, time=at(1))
    producer.send(b"nonsense", time=at(1))
    producer.delete(b"x")
    producer.delete(b"3")
    producer.flush()
    t.epoch()
    assert t.rows("users") == []
    assert reasons(t) == [
        "column 'user_id' is null: the key of the table",
        "column 'name' is null: it must not be null",
        "no event time in column 'at'",
        "not JSON: invalid literal, expected 'null' at column 1",
        "a delete, and its key does not fit: column 'user_id' wants long, found the text 'x'",
    ]
    assert [letter["row"] for letter in t.rows("dead")][-1] == "x"
    assert t.fates("users") == {"in": 6, "dead": 5, "implausible": 0, "passed": 1}


def test_a_version_far_ahead_of_its_append_time_is_implausible(flow_test: Start) -> None:
    t = flow_test(table(time="at"))
    t.clock.set(at(0))
    t.send("users", user(1, "a"), user(2, "b") | {"at": "2034-01-01T00:00:00Z"})
    t.epoch()
    assert names(t) == {1: "a"}
    assert t.fates("users")["implausible"] == 1


def test_a_stream_over_a_topic_with_deletes_counts_them_among_the_dead(flow_test: Start, kind: dict[str, Any]) -> None:
    flow = Flow("shop")
    flow.stream("users", COLUMNS, time="at", lateness="1 minute").view("users")
    t = flow_test(flow)
    t.topic("users", key="user_id", **kind)
    t.send("users", user(1, "a"))
    t.delete("users", user_id=1, at=at(1))
    t.delete("users", user_id=1)
    t.send("users", user(2, "b"))
    t.epoch()
    assert names(t) == {1: "a", 2: "b"}
    assert set(reasons(t)) == {"a delete: a stream takes rows that stay; flow.table reads the topic with its deletes"}
    assert t.fates("users") == {"in": 4, "dead": 2, "implausible": 0, "passed": 2}


# what the engine's steps are given


def lowered(flow: Flow, log: MemoryLog) -> Program:
    return lower(resolve(flow, NoAnalyzer()), {name: log.topic(name) for name in log.topics()})


def test_versions_carry_op_time_the_floor_and_where_they_come_from() -> None:
    log = MemoryLog()
    log.create(TopicSpec("users", 2, Schema.of(COLUMNS), "at", "user_id"))
    with Producer(log.topic("users")) as producer:
        producer.send(user(1, "a", 7), partition=1)
        producer.delete({"user_id": 1, "at": at(9)}, partition=1)
    spec = lowered(table(time="at"), log).sources["users"]
    (piece,) = read(topic_of(spec, log), spec, Range("users", 1, 0, 2, 42, NEVER))
    rows = positioned(piece.rows, "users")
    assert rows.column(OP).to_pylist() == [Op.INSERT, Op.DELETE]
    assert [moment(t).minute for t in rows.column(TIME).to_pylist()] == [7, 9]
    assert rows.column(WATERMARK).to_pylist() == [42, 42], "no row of a table moves its watermark"
    assert [Position.decode(p) for p in rows.column(POSITION).to_pylist()] == [Position("users", 1, 0), Position("users", 1, 1)]
    assert rows.column("name").to_pylist() == ["a", None]
    assert APPEND_TIME not in rows.column_names


def test_rows_carry_their_append_time_where_a_step_looks_at_it(flow_test: Start) -> None:
    flow = Flow("shop")
    users = flow.table("users", "user_id long, name string", key="user_id")
    orders = flow.stream("orders", "user_id long, n long")
    both = orders.union(flow.stream("more", "user_id long, n long"))
    both.where("n > 0").with_columns(m="n").enrich(users, on="user_id", as_of="now").view("enriched")
    t = flow_test(flow)
    t.clock.set(at(1))
    t.send("users", {"user_id": 1, "name": "early"})
    t.clock.set(at(2))
    t.send("orders", {"user_id": 1, "n": 1})
    t.clock.set(at(3))
    t.send("users", {"user_id": 1, "name": "late"})
    t.clock.set(at(4))
    t.send("more", {"user_id": 1, "n": 2})
    t.catch_up()
    assert sorted((row["n"], row["m"], row["name"]) for row in t.rows("enriched")) == [(1, 1, "early"), (2, 2, "late")]


# topics that flows write


def chained(t: FlowTest, flow: Flow) -> FlowTest:
    """Another flow over the same log."""
    other = FlowTest(flow)
    other.log, other.clock = t.log, t.clock
    return other


def copied(flow_test: Start) -> FlowTest:
    """A flow that copies rows in the order of the log, a newer one before an older one."""
    flow = Flow("first")
    flow.stream("users", COLUMNS, time="at", lateness="1 minute").to("copied", key="user_id")
    t = flow_test(flow)
    t.send("users", user(1, "new", 30), user(1, "old", 10), user(2, "b", 10))
    t.catch_up()
    return t


def test_a_flows_topic_of_rows_that_stay_is_a_table_of_what_it_said_last(flow_test: Start) -> None:
    t = copied(flow_test)
    second = Flow("second")
    second.table("copied", COLUMNS, key="user_id").view("users")
    with chained(t, second) as other:
        other.catch_up()
        assert names(other) == {1: "old", 2: "b"}


def test_the_newest_by_time_of_a_flows_topic_is_its_latest(flow_test: Start) -> None:
    t = copied(flow_test)
    second = Flow("second")
    second.stream("copied", COLUMNS).latest(by="user_id").view("users")
    with chained(t, second) as other:
        other.catch_up()
        assert names(other) == {1: "new", 2: "b"}


def counted() -> Flow:
    flow = Flow("first")
    flow.table("users", "user_id long, country string", key="user_id").group_by("country").agg(n=agg.count()).to(
        "counted", partitions=2
    )
    return flow


def countries(t: FlowTest) -> dict[str | None, int]:
    return {row["country"]: row["n"] for row in t.rows("countries")}


def reader() -> Flow:
    flow = Flow("second")
    flow.table("counted", "country string, n long", key="country").view("countries")
    return flow


def test_a_changelog_is_read_back_as_the_table_it_was_also_under_a_key_that_is_null(flow_test: Start) -> None:
    t = flow_test(counted())
    with chained(t, reader()) as other:
        t.send("users", *({"user_id": n, "country": ["DE", "FR", None][n % 3]} for n in range(7)))
        t.catch_up()
        other.catch_up()
        assert countries(other) == {"DE": 3, "FR": 2, None: 2}
        t.delete("users", {"user_id": 2}, {"user_id": 5}, {"user_id": 1})
        t.send("users", {"user_id": 0, "country": "IT"})
        t.catch_up()
        other.catch_up()
        assert countries(other) == {"DE": 2, "FR": 1, "IT": 1}
        assert other.fates("counted")["dead"] == 0


def test_of_a_changelog_the_last_record_holds_though_its_time_is_older(flow_test: Start) -> None:
    flow = Flow("first")
    flow.stream("users", COLUMNS).latest(by="user_id", order="name").to("copied")
    t = flow_test(flow)
    second = Flow("second")
    second.table("copied", COLUMNS, key="user_id").view("users")
    with chained(t, second) as other:
        t.send("users", user(1, "a"), at=at(30))
        t.catch_up()
        t.send("users", user(1, "b"), at=at(10))
        t.catch_up()
        written = [record.time for record in records(t.log.topic("copied"))]
        assert written == [micros(dt.datetime(2024, 1, 15, 10, minute)) for minute in (30, 10)]
        other.catch_up()
        assert names(other) == {1: "b"}


def test_a_changelog_is_no_stream_and_is_read_by_its_key(flow_test: Start) -> None:
    t = flow_test(counted())
    t.send("users", {"user_id": 1, "country": "DE"})
    t.catch_up()
    stream = Flow("second")
    stream.stream("counted", "country string, n long").view("v")
    with chained(t, stream) as other, pytest.raises(BadFlow, match="is a changelog and cannot be read as a stream") as refused:
        other.catch_up()
    assert "flow.table" in str(refused.value)
    wrong = Flow("second")
    wrong.table("counted", "country string, n long", key="n").view("v")
    with chained(t, wrong) as other, pytest.raises(BadFlow, match="is a changelog by country"):
        other.catch_up()


POINTS = ["after_open", "after_run", "after_decide", "topic.begun", "topic.appended", "topic.delivered", "after_sweep"]


@pytest.mark.parametrize("point", POINTS)
def test_a_changelog_is_the_same_after_a_crash_at_any_point(flow_test: Start, point: str) -> None:
    t = flow_test(counted())
    t.send("users", *({"user_id": n, "country": ["DE", "FR"][n % 2]} for n in range(6)))
    t.crash(point)
    t.catch_up()
    t.send("users", {"user_id": 1, "country": "DE"})
    t.delete("users", {"user_id": 3}, {"user_id": 5})
    t.crash(point)
    t.catch_up()
    told = sorted(t.rows("counted"), key=str)
    gone = {"country": "FR", "__op": "delete"}
    assert told == [{"country": "DE", "n": 3}, {"country": "DE", "n": 4}, gone, {"country": "FR", "n": 3}], "each change once"
    with chained(t, reader()) as other:
        other.catch_up()
        assert countries(other) == {"DE": 4}


def test_what_is_declared_must_be_in_the_topic() -> None:
    log = MemoryLog()
    log.create(TopicSpec("users", schema=Schema.of("user_id long, name string")))
    with pytest.raises(BadFlow, match="has no column 'at'"):
        lowered(table("user_id long, at timestamp"), log)
    with pytest.raises(BadFlow, match="has another type"):
        lowered(table("user_id string, name string"), log)
    with pytest.raises(BadFlow, match="holds no envelopes"):
        lowered(table("user_id long, name string", changes="debezium"), log)


def test_micros_of_a_letter_are_those_of_the_record(flow_test: Start) -> None:
    t = flow_test(table(time="at"))
    t.topic("users", schema=None, key=None, time=None)
    t.clock.set(at(3))
    with Producer(t.log.topic("users")) as producer:
        producer.send(orjson.dumps({"user_id": None, "name": "x", "at": at(1)}))
    t.epoch()
    (frame,) = t.log.topic("users").frames(0)
    assert frame.appended == micros(dt.datetime(2024, 1, 15, 10, 3))
    assert [(row["topic"], row["partition"], row["offset"]) for row in t.rows("dead")] == [("users", 0, 0)]

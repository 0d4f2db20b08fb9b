"""Enrich in a flow: what is answered stays answered, by marks that are decided with the answers."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Flow, FlowTest, agg
from penstock.core.time import FOREVER, NEVER, instant, micros
from penstock.engine.diagnose.trace import marks_of
from penstock.engine.execute.job import Job
from penstock.engine.execute.program import lower
from penstock.engine.run.epoch.open import EpochRequest
from penstock.engine.run.progress import balance
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer

ORDERS = "order_id string, user_id long, at timestamp"
USERS = "user_id long, name string, at timestamp"
Start = Callable[..., FlowTest]


def shop(**how: Any) -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    users = flow.table("users", USERS, key="user_id", time="at")
    orders.enrich(users, on="user_id", name="enriched", **how).view("enriched")
    return flow


def at(second: int) -> str:
    return f"2024-01-15T10:00:{second:02d}Z"


def us(second: int) -> int:
    return micros(instant(at(second)))


def order(t: FlowTest, number: int, second: int, user: int = 1) -> None:
    t.send("orders", {"order_id": f"O{number}", "user_id": user, "at": at(second)})


def user(t: FlowTest, name: str, second: int, number: int = 1, **where: Any) -> None:
    t.send("users", {"user_id": number, "name": name, "at": at(second)}, **where)


def names(t: FlowTest, view: str = "enriched") -> dict[str, str | None]:
    return {row["order_id"]: row["name"] for row in t.rows(view)}


def marks(t: FlowTest) -> list[tuple[str, int, int, int, str]]:
    return [tuple(mark[:5]) for mark in t.driver.last.marks if mark.step]  # type: ignore[union-attr]


def test_answers_mark_every_partition_of_the_table_behind_what_was_read(flow_test: Start) -> None:
    t = flow_test(shop())
    t.topic("users", partitions=2)
    user(t, "Ann", 0, partition=0)
    order(t, 1, 20)
    t.epoch()
    assert t.driver.last.answered == {"enriched": us(20) + 1}  # type: ignore[union-attr]
    assert marks(t) == [("users", p, 1 - p, us(20) + 1, "enriched") for p in (0, 1)]
    order(t, 2, 15)
    t.epoch()
    assert t.driver.last.answered == {"enriched": us(20) + 1}  # type: ignore[union-attr]
    assert marks(t) == []


def test_what_was_answered_stays_answered_over_crashes_restarts_and_other_buckets(flow_test: Start) -> None:
    t = flow_test(shop())
    user(t, "Ann", 0)
    order(t, 1, 20)
    t.epoch()
    t.restart(buckets=5)
    user(t, "Bea", 10)
    order(t, 2, 20)
    order(t, 3, 21)
    t.crash("before_decide")
    t.epoch()
    assert names(t) == {"O1": "Ann", "O2": "Ann", "O3": "Bea"}


def test_a_correction_changes_what_was_answered(flow_test: Start) -> None:
    t = flow_test(shop(late="correct", allowed="10 seconds"))
    user(t, "Ann", 0)
    order(t, 1, 9)
    order(t, 2, 20)
    t.epoch()
    user(t, "Bea", 5)
    t.epoch()
    assert names(t) == {"O1": "Ann", "O2": "Bea"}


def test_the_end_of_input_ends_the_table_too(flow_test: Start) -> None:
    t = flow_test(shop(wait="30 seconds", history=None))
    user(t, "Ann", 0)
    order(t, 1, 20)
    t.epoch()
    assert t.fates("enriched") == {"in": 2, "version": 1, "held": 1}
    t.end()
    assert t.driver.last.answered == {"enriched": FOREVER}  # type: ignore[union-attr]
    user(t, "Bea", 5)
    order(t, 2, 20)
    t.epoch()
    assert names(t) == {"O1": "Ann", "O2": "Ann"}


def test_two_steps_over_one_table_have_marks_of_their_own(flow_test: Start) -> None:
    flow = Flow("shop")
    users = flow.table("users", USERS, key="user_id", time="at")
    for topic, name in (("orders", "enriched"), ("returns", "taken_back")):
        stream = flow.stream(topic, ORDERS, time="at", lateness="10 seconds")
        stream.enrich(users, on="user_id", name=name).view(name)
    t = flow_test(flow)
    user(t, "Ann", 0)
    order(t, 1, 20)
    t.epoch()
    assert t.driver.last.answered == {"enriched": us(20) + 1, "taken_back": NEVER}  # type: ignore[union-attr]
    user(t, "Bea", 10)
    t.send("returns", {"order_id": "R1", "user_id": 1, "at": at(15)})
    order(t, 2, 15)
    t.epoch()
    assert (names(t)["O2"], names(t, "taken_back")["R1"]) == ("Ann", "Bea")


def test_a_stream_can_be_the_table_and_its_own_watermarks_stay_as_they_are(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    logins = flow.stream("logins", USERS, time="at", lateness="10 seconds")
    orders.enrich(logins.latest(by="user_id"), on="user_id", name="enriched").view("enriched")
    t = flow_test(flow)
    t.send("logins", {"user_id": 1, "name": "Ann", "at": at(0)})
    order(t, 1, 20)
    t.epoch()
    t.send("logins", {"user_id": 1, "name": "Bea", "at": at(5)})
    order(t, 2, 20)
    order(t, 3, 30)
    t.epoch()
    assert names(t) == {"O1": "Ann", "O2": "Ann", "O3": "Bea"}
    assert {mark.source for mark in marks_of(t.driver.decisions) if mark.step} == {"logins"}
    assert t.driver.last.sources["logins"].partitions[0].floor == NEVER  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["left", "inner"])
def test_the_books_balance(flow_test: Start, how: str) -> None:
    t = flow_test(shop(how=how, wait="1 second", history="5 seconds"))
    user(t, "Ann", 0)
    for number, second in enumerate((1, 40, 30, 31, 50)):
        order(t, number, second, user=1 + number % 2)
        t.epoch()
        assert all(rows == known for _, rows, known in balance(t.fates()))
    fates = t.fates("enriched")
    assert (fates["held"], fates.get("too old", 0), fates["in"]) == (2, 0, 6)


def test_a_table_that_is_filtered_loses_the_row(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    users = flow.table("users", USERS, key="user_id", time="at").where("name <> 'Bea'")
    orders.enrich(users, on="user_id", name="enriched").view("enriched")
    t = flow_test(flow)
    user(t, "Ann", 0)
    user(t, "Bea", 10)
    order(t, 1, 5)
    order(t, 2, 15)
    t.epoch()
    assert names(t) == {"O1": "Ann", "O2": None}


def test_tasks_are_told_the_mark() -> None:
    program = lower(resolve(shop(), NoAnalyzer()), {})
    given = {"program": program, "storage": None, "log": None, "epoch": 0, "segment": 0, "buckets": 1, "ranges": (), "carried": ()}
    job = Job(**given, state=(), inputs={}, before={}, answered={"enriched": 7})
    assert program.answering == {"enriched": frozenset({"users"})}
    assert pickle.loads(pickle.dumps(job)).answered == {"enriched": 7}  # noqa: S301  our own


def test_positions_of_rows_are_made_where_somebody_reads_them_alone() -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    users = flow.table("users", USERS, key="user_id", time="at")
    orders.enrich(users, on="user_id", name="enriched").group_by("name").agg(n=agg.count()).view("per_name")
    kernel = lower(resolve(flow, NoAnalyzer()), {}).kernels["enriched"]
    assert kernel.needs_position == (False, True)


def test_a_run_that_ends_marks_tables_before_they_are_read(flow_test: Start) -> None:
    t = flow_test(shop())
    user(t, "Ann", 0)
    order(t, 1, 20)
    t.driver.epoch(EpochRequest(end=True))
    assert names(t) == {"O1": None}

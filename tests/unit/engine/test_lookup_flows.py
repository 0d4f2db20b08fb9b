"""Lookups inside a flow: books, failures, segments, and tasks that run again."""

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from penstock import Flow, Tumbling, agg
from penstock.engine.execute import rowwise
from penstock.engine.execute.job import Job, Result
from penstock.engine.execute.placement import InProcess
from penstock.engine.execute.task import Task, split
from penstock.engine.run import loop, waiting
from penstock.engine.run.progress import Tally, balance
from penstock.errors import Unanswered
from penstock.plan import Lookup, Plan, Step
from unit.engine.test_lookups import Service


def shop(remote: Any, **other: Any) -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", "id long, amount long, at timestamp", time="at", lateness="0 seconds")
    who = orders.lookup(remote, on="id", schema="name string, age long", name="who", **other)
    who.view("rows")
    who.window(Tumbling("1 minute"), by="name").agg(n=agg.count(), ages=agg.sum("age"), name="sums").view("sums")
    return flow


def orders(*ids: int | None) -> list[dict[str, Any]]:
    return [{"id": id_, "amount": 1, "at": f"2024-01-15T10:00:{n:02}Z"} for n, id_ in enumerate(ids)]


def test_a_lookup_in_a_flow_balances_its_books_and_is_told_at_the_end() -> None:
    with shop(Service(), how="inner").test() as t:
        tally = Tally(t.driver)
        t.send("orders", *orders(1, 2, None, 1, 3))
        t.catch_up()
        t.send("orders", *orders(1, 2))
        t.end()
        assert sorted((row["id"], row["name"]) for row in t.rows("rows")) == [(1, "n1"), (1, "n1"), (1, "n1"), (3, "n3")]
        books = t.fates("who")
        assert books == {"in": 7, "answered": 4, "unmatched": 3, "keys": 5, "from cache": 2, "calls": 1}
        assert all(rows == known for _, rows, known in balance(t.fates()))
        assert "5 keys looked up in 1 call, 2 from cache" in tally.closing()


def test_an_epoch_without_answers_fails_and_the_next_one_asks_again() -> None:
    service = Service(fails=1)
    with shop(service, retries=0).test() as t:
        t.send("orders", *orders(1, 3))
        with pytest.raises(Unanswered):
            t.epoch()
        assert t.fates() == {}
        t.end()
        assert [(row["id"], row["name"]) for row in t.rows("rows")] == [(1, "n1"), (3, "n3")]


def test_what_follows_a_lookup_lies_in_the_next_segment() -> None:
    flow = Flow("shop")
    stream = flow.stream("orders", "id long, amount long, at timestamp", time="at", lateness="0 seconds")
    one = stream.lookup(Service(), on="id", schema="name string, age long", name="one")
    two = one.where("age > 1", name="old").lookup(lambda keys: [{"x": 1}] * len(keys), on="name", schema="x long", name="two")
    two.select("id", "at").union(stream.select("id", "at").where("id > 1", name="plain"), name="both").view("both")
    late = one.window(Tumbling("1 minute")).agg(n=agg.count(), name="counts")
    late.late.view("late")
    with flow.test() as t:
        places = {name: place.segment for name, place in t.driver.program.places.items()}
        assert (places["one"], places["old"], places["two"], places["both"], places["counts"]) == (0, 1, 1, 2, 1)
        assert places["plain"] == 0
        t.send("orders", *orders(1, 3, 5))
        t.end()
        assert sorted(row["id"] for row in t.rows("both")) == [3, 3, 5, 5]


class Again(InProcess):
    """The tasks that read run twice: steps behind them get the blocks of the first, the driver the files of the second."""

    def run(self, job: Job) -> Result:
        first, second = Task(job), Task(job)
        for task in (first, second):
            task.read(job.ranges, job.carried)
        second.blocks = first.blocks
        for level in job.levels():
            arrived = split(second.blocks, job.buckets)
            second.blocks = defaultdict(list)
            second.run_level(level, arrived, range(job.buckets))
        return second.finish()


@dataclass(frozen=True)
class Unstaged(Lookup):
    """What follows it gets the answers as they come."""

    staged = False


rowwise.register(Unstaged, lambda step, ordered: rowwise.LookedUp(step))


def unstaged(plan: Plan) -> Plan:
    def without(step: Step) -> Step:
        return replace(step, node=Unstaged(**vars(step.node))) if isinstance(step.node, Lookup) else step

    return replace(plan, steps=tuple(without(step) for step in plan.steps))


def told_twice(planned: Callable[[Plan], Plan] = lambda plan: plan) -> tuple[list[int], list[int], int]:
    """Calls, ages in a view, and the sum a window made of them, where answers differ from call to call and tasks run twice."""
    calls: list[int] = []

    def another(keys: list[dict[str, Any]]) -> Any:
        calls.append(len(keys))
        return [{"name": "all", "age": 1000 * len(calls) + key["id"]} for key in keys]

    with shop(another, cache=None).test() as t:
        t.plan = planned(t.plan)
        t.driver.context.place = lambda rows: Again()
        t.send("orders", *orders(1, 2, 3, 1))
        t.end()
        (sums,) = t.rows("sums")
        return calls, [row["age"] for row in t.rows("rows")], sums["ages"]


def test_a_task_that_runs_again_gives_one_answer_everywhere() -> None:
    calls, ages, total = told_twice()
    assert calls == [3, 3], "those behind it, which ran twice too, asked nobody"
    assert sorted(ages) == [2001, 2001, 2002, 2003]
    assert total == sum(ages)


def test_without_the_files_behind_a_lookup_two_answers_would_be_noticed() -> None:
    _, ages, total = told_twice(unstaged)
    assert total != sum(ages)


def test_answers_are_forgotten_when_the_process_is() -> None:
    service = Service()
    with shop(service).test() as t:
        t.send("orders", *orders(1))
        t.crash("after_run")
        t.end()
        assert len(service.asked) == 2
        assert len(t.rows("rows")) == 1


def test_a_run_goes_on_when_somebody_does_not_answer_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST", 0.001)
    service, stop, told = Service(fails=2), threading.Event(), list[str]()
    with shop(service, retries=0).test() as t:
        t.send("orders", *orders(1, 3))
        loop.run(t.driver, stop, lambda report: stop.set(), messages=waiting.WaitMessages(told.append, told.append))
        assert [line.splitlines()[0].partition(": ")[2] for line in told[:2]] == [
            "Service did not answer: 1 call failed in a row",
            "Service did not answer: 2 calls failed in a row",
        ]
        assert told[2:] == ["shop goes on after 0 s"]
        assert len(t.rows("rows")) == 2
        service.fails = 1
        t.send("orders", *orders(5))
        with pytest.raises(Unanswered):
            loop.run(t.driver, threading.Event(), lambda report: None)


def test_another_function_is_the_same_flow_and_another_key_is_not() -> None:
    with shop(Service()).test() as t:
        mine = t.driver.program.fingerprint()
    with shop(lambda keys: [None] * len(keys), cache=None).test() as t:
        assert t.driver.program.fingerprint() == mine
    with shop(Service(), how="inner").test() as t:
        assert t.driver.program.fingerprint() != mine

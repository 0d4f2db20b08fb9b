"""A flow that was drained and reopened: what it gives is what it had given behind a mark of that time instead of the end."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from amount import cases
from penstock import Count, Flow, FlowTest, Hopping, Session, Sliding, Tumbling, agg, plan
from penstock.core.time import moment
from penstock.engine.flows.reopening import reopen
from penstock.engine.run.epoch.decision import Decisions
from penstock.errors import BadInput
from unit.engine.homes import ORDERS, Home

START = datetime(2024, 1, 15, 10, tzinfo=UTC)
EVENTS = "k long, v long, at timestamp"
Build = Callable[[Flow, Any, Any], Any]


def flow_of(build: Build) -> Flow:
    flow = Flow("shop")
    left = flow.stream("left", EVENTS, time="at", lateness="20 seconds")
    right = flow.stream("right", EVENTS, time="at", lateness="20 seconds")
    build(flow, left, right)
    return flow


def windows(kind: Any, **settings: Any) -> Build:
    def build(flow: Flow, left: Any, right: Any) -> None:
        made = left.union(right).window(kind, by="k", **settings)
        made.agg(n=agg.count(), total=agg.sum("v")).view("out")

    return build


def enriched(**settings: Any) -> Build:
    def build(flow: Flow, left: Any, right: Any) -> None:
        users = flow.table("users", "k long, name string, since timestamp", key="k", time="since")
        right.view("unused")
        left.enrich(users, on="k", history="1 minute", **settings).view("out", key=("k", "v"))

    return build


def chained(flow: Flow, left: Any, right: Any) -> None:
    minutes = left.window(Tumbling("1 minute"), by="k").agg(n=agg.count())
    minutes.window(Tumbling("7 minutes"), by="k").agg(total=agg.sum("n")).view("out")
    right.view("unused")


BUILDS: dict[str, Build] = {
    "tumbling": windows(kind=Tumbling("1 minute")),
    "hopping, corrected": windows(kind=Hopping("2 minutes", every="30 seconds"), late="correct", allowed="1 minute"),
    "session": windows(kind=Session("40 seconds")),
    "session, corrected": windows(kind=Session("40 seconds"), late="correct", allowed="1 minute"),
    "count": windows(kind=Count(3)),
    "sliding": windows(kind=Sliding("50 seconds")),
    "join": lambda flow, left, right: left.join(right, on="k", within="30 seconds", how="full").view("out"),
    "pairs": lambda flow, left, right: left.join(right, on="k", within="30 seconds", how="left").view("out"),
    "running": lambda flow, left, right: left.union(right).group_by("k").agg(n=agg.count(), total=agg.sum("v")).view("out"),
    "running, kept": lambda flow, left, right: (
        left.union(right).group_by("k", keep="30 seconds").agg(n=agg.count(), total=agg.sum("v")).view("out")
    ),
    "last": lambda flow, left, right: left.union(right).last("45 seconds").group_by("k").agg(n=agg.count()).view("out"),
    "enriched": enriched(),
    "enriched, waiting": enriched(wait="30 seconds"),
    "chained": chained,
}


def rows_of(rng: random.Random, begin: datetime, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Rows of both streams and versions of the table, up to a minute out of order, some far behind."""
    out = []
    for n in range(count):
        at = begin + timedelta(seconds=5 * n + rng.randint(-60, 10) - (rng.random() < 0.1) * 300)
        topic = rng.choice(["left", "left", "right", "users"])
        k = rng.randint(0, 3)
        out.append((topic, {"k": k, "name": f"u{n}", "since": at} if topic == "users" else {"k": k, "v": n, "at": at}))
    return out


def send(t: FlowTest, rows: list[tuple[str, dict[str, Any]]], rng: random.Random) -> None:
    read = {step.node.topic for step in t.plan.steps if hasattr(step.node, "topic")}
    for topic, row in rows:
        if topic in read:
            t.send(topic, row)
        if rng.random() < 0.2:
            t.epoch()


def results(t: FlowTest) -> tuple[Any, Any]:
    """Rows and fates; not what the last correction was told to be for, which depends on the cut."""
    return sorted(repr(row | {"cause": None}) for row in t.rows("out")), t.fates()


def before_and_after_the_end(t: FlowTest) -> tuple[Any, Any]:
    t.catch_up()
    open_ = results(t)
    t.end()
    return open_, results(t)


def both(name: str, seed: int) -> tuple[Any, Any]:
    """What a flow gives that is drained, reopened at R and drained, and one that finds marks of R in its place."""
    rng = random.Random(seed)
    first = rows_of(rng, START, 30)
    with flow_of(BUILDS[name]).test() as drained, flow_of(BUILDS[name]).test() as marked:
        send(drained, first, random.Random(seed))
        drained.end()
        ended = results(drained)
        noted = Decisions(drained.driver.context.storage, "shop").last()
        assert noted
        at = moment(noted.horizon["time"])
        drained.reopen()
        assert results(drained) == ended  # reopening itself gives nothing and takes nothing back
        second = rows_of(rng, at - timedelta(minutes=1), 30)
        send(drained, second, random.Random(seed + 7))
        send(marked, first, random.Random(seed))
        marked.catch_up()
        for topic in marked.log.topics():
            if not marked.log.topic(topic).spec.writer:
                marked.mark(topic, at)
        marked.catch_up()  # rows that wait for an answer get it now, as they did at the end
        send(marked, second, random.Random(seed + 7))
        return before_and_after_the_end(drained), before_and_after_the_end(marked)


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 2 + cases(4)))])
def test_it_gives_what_it_had_given_behind_a_mark_of_that_time(name: str, seed: int) -> None:
    drained, marked = both(name, seed)
    assert drained == marked


@pytest.mark.parametrize("name", ["tumbling", "session", "sliding", "join", "last"])
def test_an_earlier_time_would_be_told_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for node in (plan.Window, plan.Session, plan.Sliding, plan.Join, plan.Last):
        monkeypatch.setattr(node, "closed", lambda self, newest, end: max(newest) + 1)
    assert any(drained != marked for drained, marked in (both(name, seed) for seed in range(1, 6)))


def test_rows_before_that_time_are_late_and_the_first_window_behind_it_is_on_time() -> None:
    flow = flow_of(windows(kind=Tumbling("1 minute")))
    with flow.test() as t:
        t.send("left", {"k": 1, "v": 5, "at": "2024-01-15T10:00:10"})
        t.end()
        t.send("left", {"k": 1, "v": 6, "at": "2024-01-15T10:00:59"})
        t.catch_up()
        assert [row["total"] for row in t.rows("out")] == [5]  # behind the end everything is late
        t.reopen()
        t.send("left", {"k": 1, "v": 7, "at": "2024-01-15T10:00:50"}, {"k": 1, "v": 8, "at": "2024-01-15T10:01:00"})
        t.end()
        assert [row["total"] for row in t.rows("out")] == [5, 8]
        assert t.fates("out")["diverted"] == 2


def test_what_was_answered_before_the_end_is_not_corrected_behind_it() -> None:
    with flow_of(enriched(late="correct", allowed="1 hour")).test() as t:
        t.send("users", {"k": 1, "name": "Ann", "since": "2024-01-15T10:00:00"})
        t.send("left", {"k": 1, "v": 1, "at": "2024-01-15T10:10:00"})
        t.end()
        t.reopen()
        t.send("users", {"k": 1, "name": "Bea", "since": "2024-01-15T10:05:00"})
        t.send("left", {"k": 1, "v": 2, "at": "2024-01-15T11:20:00"})
        t.end()
        assert [(row["v"], row["name"]) for row in t.rows("out")] == [(1, "Ann"), (2, "Bea")]


def test_a_flow_that_was_not_ended_has_nothing_to_lift() -> None:
    with flow_of(windows(kind=Tumbling("1 minute"))).test() as t:
        t.send("left", {"k": 1, "v": 5, "at": "2024-01-15T10:00:10"})
        t.catch_up()
        t.driver.release()
        with pytest.raises(BadInput, match="was not ended"):
            reopen(Decisions(t.driver.context.storage, "shop"))


def test_behind_the_end_of_a_topic_rows_that_a_flow_derived_are_late_too(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first, second = Flow("first"), Flow("second")
    orders = first.stream("orders", ORDERS, time="at", lateness="1 second")
    orders.window(Tumbling("1 minute"), by="amount").agg(n=agg.count()).to("minutes")
    minutes = second.stream("minutes", "amount long, window_start timestamp, n long")
    minutes.window(Tumbling("1 hour"), by="amount").agg(total=agg.sum("n"), name="hours").view("hours")
    for minute in (1, 2, 5):
        home.send("orders", {"id": minute, "amount": 7, "at": f"2024-01-15T10:0{minute}:00"})
    home.run(first)
    home.run(second, drain=True)
    assert [row["total"] for row in home.rows("hours")] == [2]
    for minute in (6, 7, 8):  # its first hour was given as final, and is not given again for each of these
        home.send("orders", {"id": minute, "amount": 7, "at": f"2024-01-15T10:0{minute}:00"})
        home.run(first)
        done = home.run(second)
    assert [row["total"] for row in home.rows("hours")] == [2]
    assert done.last
    assert done.last.fates["hours"]["diverted"] == 2

"""What if: stored rows judged once more, on the side, are judged as the engine would judge them."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Flow, FlowTest, Tumbling, agg
from penstock.core.time import duration, micros
from penstock.engine.diagnose.trace import marks_of
from penstock.engine.diagnose.whatif import Tried, what_if

Start = Callable[..., FlowTest]
START = datetime(2024, 1, 15, 10, tzinfo=UTC)
PAGES = "page string, ms long, at timestamp"


def pages(lateness: str) -> Flow:
    """A window behind a filter, and a join behind a union."""
    flow = Flow("pages")
    views = flow.stream("views", PAGES, time="at", lateness=lateness, idle="20 seconds")
    clicks = flow.stream("clicks", PAGES, time="at", lateness=lateness, idle="20 seconds")
    views.where("ms > 10").window(Tumbling("10 seconds"), by="page").agg(n=agg.count(), name="per_page").view("per_page")
    views.select("page", "ms", "at").union(clicks, name="both").join(clicks, on="page", within="5 seconds", name="pairs").view(
        "pairs"
    )
    return flow


def fill(t: FlowTest, seed: int = 3, rows: int = 150) -> None:
    """Disorder, two partitions of which one falls idle, a producer's mark, a time far in the future."""
    rng = random.Random(seed)
    t.topic("views", partitions=2)
    t.topic("clicks", partitions=2)
    t.clock.set("2024-01-15T10:00:00Z")
    for n in range(rows):
        t.clock.advance("1 second")
        at = timedelta(seconds=n - rng.choice([0, 0, 1, 3, 8, 25]), microseconds=n)
        topic, partition = rng.choice(["views", "clicks"]), n % 2 if n < 70 else 0
        t.send(topic, {"page": rng.choice("ab"), "ms": rng.randrange(40), "at": clock(at)}, partition=partition)
        if n % 40 == 30:
            t.mark("views", clock(at), partition=0)
        if n == 90:
            t.send("views", {"page": "a", "ms": 1, "at": "2033-01-01T00:00:00Z"}, partition=0)
            t.send("views", {"page": "a", "ms": 20, "at": "2024-01-15T10:00:01Z"}, partition=1)
        if n % 10 == 9:
            t.epoch()
    t.catch_up()


def clock(at: timedelta) -> str:
    return (START + at).isoformat()


def tried(t: FlowTest, lateness: str) -> dict[str, Tried]:
    driver = t.driver
    topics = {name: t.log.topic(name) for name in ("views", "clicks")}
    found = what_if(driver.program, topics, marks_of(t.driver.decisions), micros(duration(lateness)))
    return {step.step: step for step in found}


def told(fates: Any) -> tuple[int, int]:
    return fates.get("on time", 0), fates.get("late", 0) + fates.get("diverted", 0)


def test_under_the_flows_own_lateness_it_is_what_the_books_say(flow_test: Start) -> None:
    t = flow_test(pages("2 seconds"))
    fill(t)
    found = tried(t, "2 seconds")
    assert set(found) == {"per_page", "pairs"}
    for name, step in found.items():
        assert told(step.own) == told(step.other) == told(t.fates(name))
        assert told(step.own)[1] > 5, "rows are late"
    assert any(mark.partition == 1 for mark in marks_of(t.driver.decisions)), "a partition fell idle"


@pytest.mark.parametrize("lateness", ["0 seconds", "4 seconds", "1 minute"])
def test_under_another_lateness_it_is_what_a_run_with_that_lateness_would_say(lateness: str, flow_test: Start) -> None:
    mine, other = flow_test(pages("2 seconds")), flow_test(pages(lateness))
    fill(mine)
    fill(other)
    found = tried(mine, lateness)
    assert told(found["per_page"].other) == told(other.fates("per_page"))
    assert told(found["pairs"].other) == told(other.fates("pairs"))


@pytest.mark.parametrize("share", [0.9, 0.99, 1.0])
def test_the_least_lateness_keeps_what_it_says_and_a_little_less_does_not(share: float, flow_test: Start) -> None:
    t = flow_test(pages("2 seconds"))
    fill(t)
    for name, step in tried(t, "2 seconds").items():
        least = step.keeping(share)
        can = step.pairs - step.late_by_mark
        assert least > 0
        assert tried(t, f"{least} us")[name].other["on time"] >= can * share
        assert tried(t, f"{least - 1} us")[name].other["on time"] < can * share


def test_rows_that_a_mark_calls_late_are_late_under_every_lateness(flow_test: Start) -> None:
    t = flow_test(pages("1 minute"))
    t.send("views", {"page": "a", "ms": 20, "at": "2024-01-15T10:00:09Z"})
    t.mark("views", "2024-01-15T10:00:10Z")
    t.send("views", {"page": "a", "ms": 20, "at": "2024-01-15T10:00:08Z"})
    t.catch_up()
    step = tried(t, "1 day")["per_page"]
    assert (step.other["late"], step.late_by_mark, step.keeping(1.0)) == (1, 1, 0)


def test_nothing_is_decided_and_nothing_is_written(flow_test: Start) -> None:
    t = flow_test(pages("2 seconds"))
    fill(t)
    before = (t.driver.decisions.epochs(), t.fates(), t.rows("late"), t.log.topics())
    tried(t, "1 hour")
    assert before == (t.driver.decisions.epochs(), t.fates(), t.rows("late"), t.log.topics())


def test_rows_that_nobody_has_read_yet_are_counted_too(flow_test: Start) -> None:
    t = flow_test(pages("2 seconds"))
    t.send("views", {"page": "a", "ms": 20, "at": "2024-01-15T10:01:00Z"}, {"page": "a", "ms": 20, "at": "2024-01-15T10:00:00Z"})
    assert told(tried(t, "2 minutes")["per_page"].own) == (1, 1)
    assert told(tried(t, "2 minutes")["per_page"].other) == (2, 0)

"""A recomputation that differs leaves no torn result (G8); one event a hundred years ahead harms nobody else (G7)."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faults.engine_shop import SparkFree, last_decision, topic_rows, view
from penstock import Flow, Schema, Tumbling, agg
from penstock.engine.run import loop, runtime
from penstock.engine.run.progress import balance
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.view import POINTS as VIEW_POINTS

pytestmark = pytest.mark.faults

ORDERS = "user string, amount long, at timestamp"
START = datetime(2024, 1, 15, 10, tzinfo=UTC)
POINTS = ("after_open", "after_run", "before_decide", "after_decide", "after_sweep", *VIEW_POINTS, *TOPIC_POINTS)


class Crash(BaseException):
    """The process is gone."""


class Draws:
    """A function that gives another result each time, which no flow should have: every row gets a random amount."""

    def __init__(self, seed: int) -> None:
        self.rng, self.rows = random.Random(seed), 0

    def __call__(self, rows: pa.Table) -> pa.Table:
        self.rows += rows.num_rows
        drawn = [self.rng.randrange(10**9) for _ in range(rows.num_rows)]
        return rows.set_column(1, "amount", pa.array(drawn, pa.int64()))


def shop(draws: Callable[[pa.Table], pa.Table]) -> Flow:
    """Two readers of the random column: windows to a view and a topic, and all rows to a view."""
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds", idle="1 hour")
    drawn = orders.map_arrow(draws, ORDERS, name="drawn")
    drawn.view("rows").to("rows_topic")
    drawn.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), total=agg.sum("amount"), name="sales").view("sales")
    return flow


def fill(home: Path, rows: int = 120) -> None:
    spec = TopicSpec("orders", 1, Schema.of(ORDERS), "at", durability="os")
    with Producer(SparkFree(home).log.create(spec), batch_rows=20, linger="1 day") as producer:
        for n in range(rows):
            producer.send({"user": f"u{n % 3}", "amount": n, "at": START + timedelta(seconds=3 * n)})


def drain(home: Path, flow: Flow) -> None:
    here = SparkFree(home)
    driver = here.driver(here.plan(flow))
    driver.start()
    try:
        loop.drain(driver, threading.Event(), lambda report: None, 50)
    finally:
        driver.release()


def crashing(monkeypatch: pytest.MonkeyPatch, point: str, hit: int) -> list[str]:
    """Arms one crash; what was reached is told."""
    reached: list[str] = []

    def fail(name: str) -> None:
        reached.append(name)
        if name == point and reached.count(point) == hit:
            raise Crash

    monkeypatch.setattr(runtime, "armed", lambda setting, flow: fail)
    return reached


def agree(home: Path) -> None:
    """The views, the topic and the books tell of one and the same draw."""
    rows = Counter((r["user"], r["amount"], r["at"]) for r in view(home, "rows"))
    assert rows == Counter((r["user"], r["amount"], r["at"]) for r in topic_rows(SparkFree(home).log, "rows_topic"))
    sums: Counter[tuple[Any, ...]] = Counter()
    for user, amount, at in rows.elements():
        sums[user, at.replace(second=0)] += amount
    assert {(r["user"], r["window_start"]): r["total"] for r in view(home, "sales")} == sums
    fates = last_decision(home, "shop").fates
    assert fates["drawn"] == {"in": 120, "passed": 120}
    assert all(rows == known for _, rows, known in balance(fates))


@pytest.mark.parametrize("point", POINTS)
def test_views_topic_and_books_tell_of_one_draw_wherever_it_crashes(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    with monkeypatch.context() as armed:
        crashing(armed, point, 2)
        with pytest.raises(Crash):
            drain(tmp_path, shop(Draws(1)))
    drain(tmp_path, shop(Draws(2)))
    agree(tmp_path)


def test_every_row_is_evaluated_once_when_nothing_fails(tmp_path: Path) -> None:
    fill(tmp_path)
    draws = Draws(1)
    drain(tmp_path, shop(draws))
    assert draws.rows == 120, "two steps and two outputs read it"
    agree(tmp_path)


def test_one_event_a_hundred_years_ahead_among_ten_thousand_harms_no_other() -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), total=agg.sum("amount"), name="sales").view("sales")
    rows = [{"user": f"u{n % 7}", "amount": n, "at": START + timedelta(milliseconds=500 * n)} for n in range(10_000)]
    rows[5_000] |= {"at": rows[5_000]["at"] + timedelta(days=36_525)}
    with flow.test() as t:
        t.clock.set(START + timedelta(hours=2))
        for first in range(0, len(rows), 1_000):
            t.send("orders", *rows[first : first + 1_000])
        for cut in (4_999, 2, 1_000):
            t.epoch(cut)
        t.end()
        expected: Counter[tuple[str, datetime]] = Counter()
        for row in rows[:5_000] + rows[5_001:]:
            expected[row["user"], row["at"].replace(second=0, microsecond=0)] += row["amount"]
        assert {(r["user"], r["window_start"]): r["total"] for r in t.rows("sales")} == expected
        assert t.fates("orders") == {"in": 10_000, "passed": 9_999, "implausible": 1, "dead": 0}
        assert t.fates("sales")["on time"] == 9_999
        (dead,) = t.rows("dead")
        assert (dead["topic"], dead["partition"], dead["offset"]) == ("orders", 0, 5_000)
        assert "beyond its append time" in dead["reason"]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z"])
def test_a_time_at_the_edge_of_the_calendar_has_a_fate_and_stops_nothing(at: str) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="5 seconds")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), name="sales").view("sales")
    with flow.test() as t:
        t.clock.set("2024-01-15T12:00:00Z")
        for when in ("2024-01-15T10:00:00Z", at, "2024-01-15T10:00:01Z"):
            t.send("orders", {"user": "a", "amount": 1, "at": when})
            t.epoch()
        t.end()
        assert {r["n"] for r in t.rows("sales")} == {2}
        fates = t.fates("orders") | t.fates("sales")
        assert fates.get("implausible", 0) + fates.get("diverted", 0) == 1
        assert len(t.rows("dead")) + len(t.rows("late")) == 1

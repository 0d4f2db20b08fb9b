"""Where a stream's time comes from: append times, a delay, idle partitions, producers' marks."""

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from faults.engine_shop import SparkFree
from penstock import Flow, FlowTest, Producer, Schema, TopicSpec, Tumbling, View, agg
from penstock.core.time import instant, micros
from penstock.engine.run import loop
from penstock.engine.run.epoch.report import Report
from penstock.errors import BadFlow

ORDERS = "user string, amount long, at timestamp"
Start = Callable[..., FlowTest]
DAY = "2024-01-15T10:"


def shop(size: str = "1 minute", topic: str | None = None, late: Any = "divert", allowed: Any = None, **stream: Any) -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, **stream)
    extra = {"allowed": allowed} if late == "correct" else {}
    sales = orders.window(Tumbling(size), by="user", late=late, **extra).agg(n=agg.count(), total=agg.sum("amount"), name="sales")
    sales.view("sales")
    if topic:
        sales.to(topic)
    return flow


def order(user: str, amount: int, at: str | None = None) -> dict[str, Any]:
    return {"user": user, "amount": amount, "at": f"{DAY}{at}Z" if at else None}


def at(time: str) -> datetime:
    return instant(f"{DAY}{time}Z")


def totals(t: FlowTest) -> list[tuple[str, str, int]]:
    return sorted((row["user"], f"{row['window_start']:%H:%M:%S}", row["total"]) for row in t.rows("sales"))


def marks(t: FlowTest) -> list[tuple[int, int, int]]:
    last = t.driver.last
    return [(m.partition, m.offset, m.time) for m in last.marks] if last else []


# append time


def test_the_append_time_is_the_event_time_and_needs_no_lateness(flow_test: Start) -> None:
    t = flow_test(shop(time="append"))
    for when, amount in (("00:15", 1), ("00:59", 2), ("01:00", 4)):
        t.clock.set(at(when))
        t.send("orders", order("a", amount, "30:00"))
    t.epoch()
    assert totals(t) == [("a", "10:00:00", 3)]
    t.end()
    assert totals(t) == [("a", "10:00:00", 3), ("a", "10:01:00", 4)]
    assert t.fates("sales") == {"in": 3, "on time": 3}


@pytest.mark.parametrize("settings", [{"time": "at"}, {"schema": None, "time": "at"}, {"schema": None, "time": None}])
def test_append_time_is_taken_whatever_time_the_topic_has(flow_test: Start, settings: dict[str, Any]) -> None:
    t = flow_test(shop(time="append"))
    t.topic("orders", **settings)
    t.clock.set(at("00:15"))
    t.send("orders", order("a", 1, "07:00"), order("b", 2, "03:00"))
    t.clock.set(at("01:15"))
    t.send("orders", order("a", 4, "01:00"))
    t.epoch()
    assert totals(t) == [("a", "10:00:00", 1), ("b", "10:00:00", 2)], "frames say it before their rows are read"
    t.end()
    assert totals(t)[1] == ("a", "10:01:00", 4)


@pytest.mark.parametrize("cut", [1, 2, 3, 5])
def test_any_cut_of_append_times_gives_the_same(flow_test: Start, cut: int) -> None:
    t = flow_test(shop(time="append", lateness="20 seconds"))
    t.topic("orders", partitions=2, time="at")
    for n in range(12):
        t.clock.set(at(f"{n // 4:02d}:{n % 4 * 15:02d}"))
        t.send("orders", order("a", n, "00:00"), order("b", n, "00:30"), partition=n % 2)
    while t.epoch(cut):
        t.restart()
    t.end()
    sums = [("10:00:00", 0 + 1 + 2 + 3), ("10:01:00", 4 + 5 + 6 + 7), ("10:02:00", 8 + 9 + 10 + 11)]
    assert totals(t) == [(user, start, total) for user in ("a", "b") for start, total in sums]
    assert t.fates("sales") == {"in": 24, "on time": 24}


def test_unreadable_records_have_an_append_time_too(flow_test: Start) -> None:
    t = flow_test(shop(time="append"))
    t.topic("orders", schema=None)
    t.clock.set(at("00:15"))
    t.send("orders", order("a", 1))
    t.clock.set(at("01:00"))
    with Producer(t.log.topic("orders")) as producer:
        producer.send(b"nonsense")
    t.epoch()
    assert totals(t) == [("a", "10:00:00", 1)]
    assert t.fates("orders") == {"in": 2, "dead": 1, "implausible": 0, "passed": 1}


def test_the_append_time_can_be_a_column(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds", append_time="stored")
    orders.where("stored > at").select("user", "stored").view("slow")
    t = flow_test(flow)
    t.clock.set(at("00:30"))
    t.send("orders", order("a", 1, "00:10"), order("b", 1, "00:50"))
    t.end()
    assert t.rows("slow") == [{"user": "a", "stored": at("00:30")}]


# a delay


def test_with_a_delay_time_passes_when_nothing_arrives(flow_test: Start) -> None:
    t = flow_test(shop(time="at", lateness="10 seconds", delay="30 seconds"))
    t.clock.set(at("00:50"))
    t.send("orders", order("a", 5, "00:40"))
    t.epoch()
    assert totals(t) == []
    t.clock.set(at("01:29"))
    t.epoch()
    assert totals(t) == [], "by the clock less its delay it is 10:00:59"
    t.clock.set(at("01:30"))
    t.epoch()
    assert totals(t) == [("a", "10:00:00", 5)]
    assert marks(t) == [(0, 1, micros(at("01:00")))]
    assert t.frontier("orders") == micros(at("01:00"))


def test_a_row_older_than_the_clock_less_the_delay_is_late_from_then_on(flow_test: Start) -> None:
    t = flow_test(shop(time="at", lateness="1 hour", delay="30 seconds"))
    t.clock.set(at("00:50"))
    t.send("orders", order("a", 5, "00:40"))
    t.epoch()
    t.send("orders", order("a", 1, "00:41"))
    t.clock.set(at("01:30"))
    t.epoch()
    t.restart()
    t.send("orders", order("a", 7, "00:42"))
    t.end()
    assert totals(t) == [("a", "10:00:00", 6)]
    assert [row["offset"] for row in t.rows("late")] == [2], "it came behind the mark"


def test_the_delay_counts_for_every_partition_and_for_empty_ones(flow_test: Start) -> None:
    t = flow_test(shop(time="at", lateness="10 seconds", delay="0 seconds", idle="1 day"))
    t.topic("orders", partitions=3)
    t.clock.set(at("00:50"))
    t.send("orders", order("a", 5, "00:40"), partition=1)
    t.epoch()
    t.clock.set(at("01:10"))
    t.epoch()
    assert totals(t) == [("a", "10:00:00", 5)]
    assert marks(t) == [(p, n, micros(at("01:10"))) for p, n in ((0, 0), (1, 1), (2, 0))]


def test_time_alone_is_worth_an_epoch_once_a_second_and_only_while_something_waits(flow_test: Start) -> None:
    t = flow_test(shop(time="append", delay="1 second"))
    t.clock.set(at("00:50"))
    assert t.epoch() is None, "nothing waits"
    t.send("orders", order("a", 5))
    assert t.epoch()
    t.clock.set(at("00:50.999"))
    assert t.epoch() is None, "the clock has gone on, but not by a second"
    t.clock.set(at("00:51.001"))
    assert t.epoch()
    assert t.epoch() is None
    t.clock.set(at("01:10"))
    assert t.epoch()
    assert totals(t) == [("a", "10:00:00", 5)]
    t.clock.set(at("05:00"))
    assert t.epoch() is None, "every window is complete"


def test_those_who_read_the_flows_topic_are_told_that_time_passes(flow_test: Start) -> None:
    t = flow_test(shop(time="append", delay="1 second", topic="sales_topic"))
    t.clock.set(at("00:50"))
    t.send("orders", order("a", 5))
    for when, told in (("00:50", "00:50"), ("05:00", "04:59"), ("06:00", "05:59")):
        t.clock.set(at(when))
        assert t.epoch()
        assert t.log.topic("sales_topic").ends()[0].mark == micros(at(told))


def test_a_bounded_run_does_not_wait_for_time_to_pass(flow_test: Start) -> None:
    t = flow_test(shop(time="at", lateness="10 seconds", delay="10 seconds"))
    t.clock.set(at("00:50"))
    t.send("orders", order("a", 5, "00:40"))
    t.catch_up()
    assert t.frontier("orders") == micros(at("00:40"))
    t.clock.set(at("05:00"))
    t.catch_up()
    assert t.frontier("orders") == micros(at("00:40"))
    t.end()
    assert totals(t) == [("a", "10:00:00", 5)]


def test_a_clock_that_goes_back_takes_nothing_back(flow_test: Start) -> None:
    t = flow_test(shop(time="at", lateness="10 seconds", delay="10 seconds"))
    t.clock.set(at("00:50"))
    t.send("orders", order("a", 5, "00:40"))
    t.epoch()
    t.clock.set(at("00:20"))
    t.send("orders", order("a", 5, "00:41"))
    t.epoch()
    assert t.frontier("orders") == micros(at("00:40"))
    assert marks(t) == []


def test_a_live_run_closes_its_last_window_by_itself(tmp_path: Path) -> None:
    runtime = SparkFree(tmp_path)
    with Producer(runtime.log.create(TopicSpec("orders", schema=Schema.of(ORDERS)))) as producer:
        producer.send(order("a", 5))
    driver = runtime.driver(runtime.plan(shop("1 second", time="append", delay="0 seconds")), threaded=False)
    driver.start()
    enough = threading.Event()
    deadline = threading.Timer(30, enough.set)
    deadline.start()

    def closed(report: Report) -> None:
        if report.decision.fates["sales"]["on time"] and not any(r.step == "sales" for r in report.decision.state):
            enough.set()

    loop.run(driver, enough, closed)
    deadline.cancel()
    driver.stop()
    with View(tmp_path / "views", "sales") as view:
        assert view.rows()["total"].to_pylist() == [5]


# idle partitions


def idle_shop(**more: Any) -> Flow:
    return shop(**{"time": "at", "lateness": "10 seconds", "idle": "30 seconds", **more})


def test_an_idle_partition_is_excused_by_the_lowest_watermark_of_the_busy(flow_test: Start) -> None:
    t = flow_test(idle_shop())
    t.topic("orders", partitions=3)
    t.clock.set(at("00:10"))
    for partition in range(3):
        t.send("orders", order("a", 1, "00:10"), partition=partition)
    t.epoch()
    t.clock.set(at("00:41"))
    t.send("orders", order("b", 2, "03:00"), partition=0)
    t.send("orders", order("c", 4, "02:00"), partition=1)
    t.epoch()
    assert totals(t) == [], "the mark of the idle one is what the busy were known to have when the epoch opened"
    t.epoch()
    assert marks(t) == [(2, 1, micros(at("01:50")))]
    assert totals(t) == [("a", "10:00:00", 3)]


def test_where_none_is_busy_none_is_excused(flow_test: Start) -> None:
    t = flow_test(idle_shop())
    t.topic("orders", partitions=2)
    t.clock.set(at("00:10"))
    t.send("orders", order("a", 1, "00:10"), partition=0)
    t.send("orders", order("a", 1, "05:00"), partition=1)
    t.epoch()
    t.clock.set(at("09:00"))
    assert t.epoch() is None
    assert totals(t) == []


def test_with_a_delay_it_does_not_matter_that_all_are_idle(flow_test: Start) -> None:
    t = flow_test(idle_shop(delay="1 minute"))
    t.topic("orders", partitions=2)
    t.clock.set(at("00:10"))
    t.send("orders", order("a", 1, "00:10"), partition=0)
    t.send("orders", order("a", 1, "05:00"), partition=1)
    t.epoch()
    t.clock.set(at("02:00"))
    t.epoch()
    assert marks(t) == [(0, 1, micros(at("01:00")))], "the other one has come further by itself"
    assert totals(t) == [("a", "10:00:00", 1)]


def test_an_idle_partition_holds_append_times_up_no_longer_than_idle(flow_test: Start) -> None:
    t = flow_test(idle_shop(time="append", lateness=None))
    t.topic("orders", partitions=2)
    t.clock.set(at("00:10"))
    t.send("orders", order("a", 1), partition=0)
    t.send("orders", order("a", 1), partition=1)
    t.epoch()
    t.clock.set(at("01:10"))
    t.send("orders", order("b", 2), partition=0)
    t.epoch()
    t.epoch()
    assert totals(t) == [("a", "10:00:00", 2)]


# producers' marks


@pytest.mark.parametrize(("late", "fate"), [("divert", "diverted"), ("ignore", "ignored"), ("correct", "corrected")])
def test_a_row_behind_a_watermark_written_into_the_stream_is_late(flow_test: Start, late: Any, fate: str) -> None:
    """Watermark 10:00:10, then a row of 10:00:08, over windows of 5 seconds."""
    t = flow_test(shop("5 seconds", late=late, allowed="1 minute", time="at", lateness="1 hour"))
    t.send("orders", order("a", 1, "00:07"))
    t.mark("orders", at("00:10"))
    t.epoch()
    assert totals(t) == [("a", "10:00:05", 1)]
    t.send("orders", order("a", 2, "00:08"), order("a", 4, "00:11"))
    t.end()
    assert totals(t) == [("a", "10:00:05", 3 if late == "correct" else 1), ("a", "10:00:10", 4)]
    assert t.fates("sales") == {"in": 3, "on time": 2, fate: 1}
    assert [row["offset"] for row in t.rows("late")] == ([1] if late == "divert" else [])


# what a flow's own topic is read by


@pytest.mark.parametrize("stream", [{"time": "append"}, {"delay": "1 second"}])
def test_a_topic_that_a_flow_writes_is_read_by_its_marks_alone(flow_test: Start, stream: dict[str, Any]) -> None:
    t = flow_test(shop(**stream))
    t.log.create(TopicSpec("orders", schema=t.plan.step("orders").schema, writer="other"))
    if "delay" in stream:
        assert t.driver.program.sources["orders"].delay is None
    else:
        with pytest.raises(BadFlow, match="flow other gave its rows their time"):
            t.epoch()

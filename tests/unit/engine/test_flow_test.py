"""flow.test(): time, marks, partitions, cuts and crashes in the test's hands; every promise of a real run holds."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import Flow, FlowTest, Tumbling, agg
from penstock.errors import BadFlow, NotFound, PenstockError
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.view import POINTS as VIEW_POINTS
from penstock.testing.driver import CRASH_POINTS

ORDERS = "user string, amount long, at timestamp"
Start = Callable[..., FlowTest]


def shop(**settings: Any) -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, **{"time": "at", "lateness": "10 seconds", **settings})
    sales = orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), total=agg.sum("amount"), name="sales")
    sales.view("sales").to("sales_topic")
    return flow


def order(user: str, amount: int, at: str) -> dict[str, Any]:
    return {"user": user, "amount": amount, "at": f"2024-01-15T10:{at}Z"}


def totals(t: FlowTest, name: str = "sales") -> list[tuple[str, int]]:
    return sorted((row["user"], row["total"]) for row in t.rows(name))


def test_nothing_comes_out_before_its_window_is_complete(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("a", 5, "00:10"), order("b", 7, "00:50"))
    t.epoch()
    assert t.rows("sales") == []
    state = t.state("sales")
    assert state is not None
    assert sorted(state["total"].to_pylist()) == [5, 7]
    t.send("orders", order("a", 1, "01:10"))
    t.epoch()
    assert totals(t) == totals(t, "sales_topic") == [("a", 5), ("b", 7)]


def test_the_end_closes_everything(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("a", 5, "00:10"))
    t.end()
    assert totals(t) == [("a", 5)]
    assert t.state("sales") is None


def test_a_producers_mark_closes_a_window(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("a", 5, "00:10"))
    t.mark("orders", "2024-01-15T10:01:00Z")
    t.epoch()
    assert totals(t) == [("a", 5)]


def test_late_rows_are_in_the_flows_own_topic_and_in_the_books(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("a", 5, "05:00"), order("b", 9, "01:00"))
    t.end()
    assert totals(t) == [("a", 5)]
    (late,) = t.rows("late")
    assert (late["step"], late["topic"], late["offset"]) == ("sales", "orders", 1)
    assert t.fates("sales") == {"in": 2, "on time": 1, "diverted": 1}
    assert t.rows("dead") == []


def test_partitions_are_judged_each_by_itself(flow_test: Start) -> None:
    t = flow_test(shop())
    t.topic("orders", partitions=2)
    t.send("orders", order("a", 5, "05:00"), partition=0)
    t.send("orders", order("b", 9, "01:00"), partition=1)
    t.end()
    assert totals(t) == [("a", 5), ("b", 9)]


def test_the_clock_follows_events_until_the_test_turns_it(flow_test: Start) -> None:
    t = flow_test(shop(idle="30 seconds"))
    t.topic("orders", partitions=2)
    t.send("orders", order("a", 1, "00:10"), partition=0)
    t.send("orders", order("b", 2, "00:10"), partition=1)
    t.epoch()
    t.clock.advance("1 minute")
    t.send("orders", order("a", 1, "02:00"), partition=0)
    t.epoch()
    t.epoch()
    assert totals(t) == [("a", 1), ("b", 2)], "partition 1 has been idle for a minute"


def test_an_epoch_can_be_cut_anywhere(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", *(order("a", n, f"00:{n:02d}") for n in range(10)))
    report = t.epoch(cut=3)
    assert report
    assert (report.rows, report.behind) == (3, 7)
    t.epoch(cut=lambda source, partition, there: there - 1)
    assert t.reports[-1].rows == 6
    t.end()
    assert totals(t) == [("a", 45)]


POINTS = (*CRASH_POINTS, "after_deliver:view.sales", "after_deliver:topic.sales_topic", *VIEW_POINTS, *TOPIC_POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_changes_nothing(point: str, flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("a", 5, "00:10"), order("b", 7, "01:30"))
    t.crash(point)
    t.send("orders", order("a", 1, "02:40"))
    t.crash(point)
    t.end()
    assert totals(t) == totals(t, "sales_topic") == [("a", 1), ("a", 5), ("b", 7)]
    assert t.fates("sales")["on time"] == 3


def test_a_crash_that_never_comes_is_an_error(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("a", 5, "00:10"))
    with pytest.raises(PenstockError, match="never came to the point 'after_lunch'"):
        t.crash("after_lunch")


@pytest.mark.parametrize("buckets", [1, 3])
def test_a_restart_with_another_number_of_buckets_changes_nothing(buckets: int, flow_test: Start) -> None:
    t = flow_test(shop(), buckets=2)
    t.send("orders", *(order(f"u{n}", n, "00:10") for n in range(20)))
    t.epoch()
    t.restart(buckets=buckets)
    t.send("orders", *(order(f"u{n}", 100, "00:20") for n in range(20)))
    t.epoch()
    t.restart(buckets=2)
    t.end()
    assert totals(t) == sorted((f"u{n}", n + 100) for n in range(20))


def test_a_topic_that_the_flow_does_not_read_is_not_found(flow_test: Start) -> None:
    with pytest.raises(NotFound, match="it reads: orders"):
        flow_test(shop()).send("payments", {})


def test_a_start_that_is_refused_leaves_a_test_that_can_be_closed(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("a", 5, "00:10"))
    t.epoch()
    (t.directory / "flow" / "incarnation").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(PenstockError, match="incarnation"):
            t.restart()


def mapped(function: Callable[[pa.Table], pa.Table], schema: str = ORDERS) -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    orders.map_arrow(function, schema, name="mapped").view("out")
    return flow


def tried(flow: Flow, flow_test: Start) -> FlowTest:
    t = flow_test(flow)
    t.send("orders", order("a", 5, "00:10"), order("b", 7, "00:20"))
    t.epoch()
    return t


def doubled(rows: pa.Table) -> pa.Table:
    return rows.set_column(1, "amount", pc.multiply(rows["amount"], 2))


def test_a_function_of_rows_is_applied(flow_test: Start) -> None:
    assert sorted(row["amount"] for row in tried(mapped(doubled), flow_test).rows("out")) == [10, 14]


def numbered(rows: pa.Table) -> pa.Table:
    return rows.set_column(1, "amount", pa.array(range(rows.num_rows), pa.int64()))


WRONG: dict[str, tuple[Callable[[pa.Table], Any], str]] = {
    "looks across rows": (numbered, "another result when its batch is cut in two"),
    "drops rows": (lambda rows: rows.slice(1), "one row for each row it got: 2 rows in, 1 rows out"),
    "gives no table": (lambda rows: None, "2 rows in, NoneType out"),
    "lacks a column": (lambda rows: rows.drop_columns(["amount"]), "other columns than its schema"),
    "gives another type": (lambda rows: rows.set_column(1, "amount", rows["user"]), "other columns than its schema"),
    "gives lists": (lambda rows: rows.set_column(1, "amount", pa.array([[1]] * rows.num_rows)), "other columns than its schema"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_function_is_refused_with_its_step_and_line(wrong: str, flow_test: Start) -> None:
    function, said = WRONG[wrong]
    with pytest.raises(BadFlow, match=said) as refused:
        tried(mapped(function), flow_test)
    assert 'step "mapped"' in str(refused.value)
    assert "test_flow_test.py:" in str(refused.value)

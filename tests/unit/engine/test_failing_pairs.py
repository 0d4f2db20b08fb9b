"""Joins whose condition only Spark SQL can evaluate, and which fails on some pairs: letters, books, late rows, what waits (G26)."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from laws.evaluated import InPython
from laws.test_failing_pairs import CONDITION, shares
from penstock import Flow, FlowTest, agg
from penstock.engine.diagnose.describe import decode, describe
from penstock.engine.execute.program import lower
from penstock.engine.run.progress import balance
from penstock.errors import FailedRow
from penstock.flow.explain import as_text
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.plan import How, OnError

Start = Callable[..., FlowTest]


def order(k: str | None, n: int, second: int = 0) -> dict[str, Any]:
    return {"k": k, "n": n, "at": f"2024-01-15T10:00:{second:02d}Z"}


def payment(k: str, m: int, second: int = 0) -> dict[str, Any]:
    return {"k": k, "m": m, "paid_at": f"2024-01-15T10:00:{second:02d}Z"}


def both(flow: Flow) -> tuple[Any, Any]:
    orders = flow.stream("orders", "k string, n long, at timestamp", time="at", lateness="0 seconds")
    return orders, flow.stream("payments", "k string, m long, paid_at timestamp", time="paid_at", lateness="0 seconds")


def joined(how: How, on_error: OnError = "dead", where: str = CONDITION) -> tuple[Flow, Any]:
    flow = Flow("shop")
    orders, payments = both(flow)
    rows = orders.join(payments, on="k", within="10 seconds", how=how, where=where, on_error=on_error, name="settled")
    rows.view("settled")
    return flow, rows


@pytest.fixture
def started(flow_test: Start) -> Start:
    return lambda flow: flow_test(flow, analyzer=InPython({CONDITION: shares}))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_pair_on_which_the_condition_fails_is_a_letter_with_both_sides(how: How, started: Start) -> None:
    t = started(joined(how)[0])
    t.send("orders", order("a", 5), order("b", 7, 1), order("c", 9, 2))
    t.send("payments", payment("a", 4, 1), payment("b", 7, 2), payment("c", 1, 3), payment("c", 9, 4))
    t.end()
    first, second = t.rows("dead")
    assert (first["step"], first["expression"]) == ("settled.where", CONDITION)
    assert first["reason"].startswith("ZeroDivisionError: ")
    assert orjson.loads(first["row"]) == order("b", 7, 1) | payment("b", 7, 2)
    assert (first["topic"], first["offset"]) == (None, None), "it was made from two records"
    assert orjson.loads(second["row"])["k"] == "c"
    alone = [("b", None), ("c", None)] if how == "left" else []
    assert sorted((row["k"], row["m"]) for row in t.rows("settled")) == [("a", 4), *alone]
    assert t.fates("settled.where") == {"in": 4, "passed": 1, "filtered": 1, "dead": 2}
    assert all(rows == known for _, rows, known in balance(t.fates()))


def test_stop_says_condition_cause_and_pair(started: Start) -> None:
    t = started(joined("anti", "stop")[0])
    t.send("orders", order("b", 7))
    t.send("payments", payment("b", 7))
    with pytest.raises(FailedRow) as stopped:
        t.epoch()
    text = str(stopped.value)
    assert text.startswith(f'step "settled.where" fails on a row: {CONDITION}: ZeroDivisionError')
    assert '{"k":"b","n":7,' in text
    assert "test_failing_pairs.py:" in text


def test_under_null_the_pair_does_not_match_and_leaves_no_letter(started: Start) -> None:
    t = started(joined("anti", "null")[0])
    t.send("orders", order("b", 7))
    t.send("payments", payment("b", 7))
    t.end()
    assert [row["k"] for row in t.rows("settled")] == ["b"]
    assert t.rows("dead") == []
    assert t.fates("settled.where") == {"in": 1, "passed": 0, "filtered": 1}


def test_a_condition_that_cannot_fail_takes_on_error_and_stays_what_it_was() -> None:
    plans = [resolve(joined("left", on_error, "m >= n")[0], NoAnalyzer()) for on_error in ("dead", "stop")]
    assert [step.name for step in plans[0].steps] == ["orders", "payments", "settled"]
    prints = {lower(plan, {}).fingerprint() for plan in plans}
    assert len(prints) == 1


@pytest.mark.parametrize("how", ["inner", "full"])
def test_late_rows_can_be_counted_in_a_step_with_state(how: How, started: Start) -> None:
    """They come out where the join takes rows up, behind Spark SQL, and what follows has to be there too."""
    flow, rows = joined(how)
    rows.late.group_by("k").agg(n=agg.count()).view("too_late")
    t = started(flow)
    t.send("orders", order("a", 5, 30), order("b", 7, 1), order("b", 7, 2))
    t.send("payments", payment("a", 4, 30), payment("c", 7, 2))
    t.end()
    assert sorted((row["k"], row["n"]) for row in t.rows("too_late")) == [("b", 2), ("c", 1)]


def test_late_rows_of_a_side_that_waited_for_the_other_ones_sql_can_be_counted(started: Start) -> None:
    flow = Flow("shop")
    orders, payments = both(flow)
    some = payments.with_columns(n="m - 1").named("some").where(CONDITION)
    rows = orders.join(some.select("k", "paid_at"), on="k", within="10 seconds", name="settled")
    rows.view("settled")
    rows.late.group_by("k").agg(n=agg.count()).view("too_late")
    t = started(flow)
    t.send("orders", order("a", 5, 30), order("b", 7, 1))
    t.end()
    assert [(row["k"], row["n"]) for row in t.rows("too_late")] == [("b", 1)]


def test_rows_that_wait_can_be_seen_and_made_again_from_what_is_kept_of_the_step(started: Start) -> None:
    t = started(joined("left")[0])
    t.send("orders", order("a", 5), order("b", 7, 1), order(None, 7, 1))
    t.send("payments", payment("a", 4), payment("b", 7, 1))
    t.epoch()
    waiting = t.state("settled")
    assert waiting is not None
    assert sorted(waiting["k"].to_pylist(), key=str) == [None, "b"]
    (described,) = [step for step in describe(t.plan) if step["name"] == "settled"]
    assert decode(described["definition"]) == t.plan.step("settled").node


def test_a_flow_that_was_ended_can_go_on(started: Start) -> None:
    t = started(joined("left")[0])
    t.send("orders", order("a", 5))
    t.end()
    t.reopen()
    t.send("orders", order("a", 5, 50), order("b", 7, 51))
    t.send("payments", payment("a", 4, 50), payment("b", 7, 51))
    t.end()
    assert sorted((row["k"], row["m"] or 0) for row in t.rows("settled")) == [("a", 0), ("a", 4), ("b", 0)]


def test_a_plan_shows_where_the_condition_runs() -> None:
    flow, _ = joined("left", "null")
    text = as_text(resolve(flow, InPython({})))
    assert "settled.where  (where, test_failing_pairs.py" in text.replace("tests/unit/engine/", "")
    assert f"  keeps    {CONDITION}  [spark]\n  on error null\n" in text
    assert "settled  (join, " in text

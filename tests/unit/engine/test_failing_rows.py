"""A row on which a step fails stops no flow: it is a dead letter, once, and all others are as they would be without it (G26)."""

from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import Flow, FlowTest, Sliding, Tumbling, agg
from penstock.engine.execute.program import late_schema
from penstock.engine.run.progress import Tally, balance
from penstock.errors import BadFlow, FailedRow
from penstock.flow.explain import as_text
from penstock.log.port import TopicSpec
from penstock.plan import OnError

Start = Callable[..., FlowTest]
ORDERS = "user string, amount long, at timestamp"


def order(user: str, amount: int, second: int = 0) -> dict[str, Any]:
    return {"user": user, "amount": amount, "at": f"2024-01-15T10:00:{second:02d}Z"}


def shares(rows: pa.Table) -> pa.Table:
    """100 / amount, which fails where it is 0."""
    return pa.table({"user": rows["user"], "share": pc.divide(pa.scalar(100, pa.int64()), rows["amount"])})


def mapped(on_error: OnError = "dead", **settings: Any) -> Flow:
    flow = Flow("shop", **settings)
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    orders.map_arrow(shares, "user string, share long", name="shares", on_error=on_error).view("shares")
    return flow


def multiplied(state: int, rows: pa.Table) -> int:
    for value in rows["amount"].to_pylist():
        if value < 0:
            raise ValueError(f"{value} is negative")
        state *= value
    return state


def product(on_error: str = "dead") -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    own = agg.own("amount", init=lambda: 1, add=multiplied, merge=lambda a, b: a * b, type="long")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), product=own, name="sales", on_error=on_error).view("sales")
    return flow


def balanced(t: FlowTest) -> bool:
    return all(rows == known for _, rows, known in balance(t.fates()))


def test_rows_on_which_a_function_fails_are_dead_and_all_others_pass(flow_test: Start) -> None:
    t = flow_test(mapped())
    t.send("orders", *(order("a", n % 4, n) for n in range(40)))
    t.end()
    assert sorted(row["share"] for row in t.rows("shares")) == sorted(100 // (n % 4) for n in range(40) if n % 4)
    dead = t.rows("dead")
    assert [row["offset"] for row in dead] == list(range(0, 40, 4))
    assert {(row["step"], row["topic"], row["partition"]) for row in dead} == {("shares", "orders", 0)}
    assert {row["expression"] for row in dead} == {"shares"}
    assert "divide by zero" in dead[0]["reason"]
    assert orjson.loads(dead[1]["row"]) == {"user": "a", "amount": 0, "at": "2024-01-15T10:00:04Z"}
    assert t.fates("shares") == {"in": 40, "passed": 30, "dead": 10}
    assert balanced(t)


@pytest.mark.parametrize("cut", [1, 7, None])
def test_the_cut_changes_nothing_and_neither_does_a_crash(cut: int | None, flow_test: Start) -> None:
    t = flow_test(mapped())
    t.send("orders", *(order("a", n % 3, n) for n in range(20)))
    t.crash("after_run", cut)
    t.crash("after_decide", cut)
    while t.epoch(cut):
        pass
    t.end()
    assert sorted(row["share"] for row in t.rows("shares")) == sorted(100 // (n % 3) for n in range(20) if n % 3)
    assert sorted(row["offset"] for row in t.rows("dead")) == list(range(0, 20, 3))


def test_null_leaves_the_row_in_its_place_without_values(flow_test: Start) -> None:
    t = flow_test(mapped("null"))
    t.send("orders", order("a", 5), order("b", 0, 1), order("c", 4, 2))
    t.end()
    assert [(row["user"], row["share"]) for row in t.rows("shares")] == [("a", 20), (None, None), ("c", 25)]
    assert t.rows("dead") == []
    assert t.fates("shares") == {"in": 3, "passed": 3}


def test_null_is_refused_where_a_column_must_not_be_null() -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at")
    orders.map_arrow(shares, "user string not null, share long", on_error="null").view("shares")
    with pytest.raises(BadFlow, match="would leave column 'user' null"):
        flow.test()


def test_stop_names_step_expression_cause_and_row_in_one_paragraph(flow_test: Start) -> None:
    t = flow_test(mapped("stop"))
    t.send("orders", order("a", 5), order("b", 0, 1))
    with pytest.raises(FailedRow) as stopped:
        t.epoch()
    text = str(stopped.value)
    assert text.startswith('step "shares" fails on a row: shares: ArrowInvalid: divide by zero\n')
    assert "test_failing_rows.py:" in text
    assert 'row orders/0@1: {"user":"b","amount":0,' in text
    assert "run again" not in text


def test_another_on_error_can_be_chosen_after_a_stop(flow_test: Start) -> None:
    before = flow_test(mapped("stop")).driver.program.fingerprint()
    assert flow_test(mapped("dead")).driver.program.fingerprint() == before


def without_memory(*given: Any) -> Any:
    raise MemoryError("none left")


@pytest.mark.parametrize("how", ["map_arrow", "agg.own"])
def test_too_little_memory_is_no_rows_fault(how: str, flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    if how == "map_arrow":
        orders.map_arrow(without_memory, ORDERS, name="mapped").view("out")
    else:
        own = agg.own("amount", init=lambda: 1, add=without_memory, merge=lambda a, b: a * b, type="long")
        orders.window(Tumbling("1 minute"), by="user").agg(product=own).view("out")
    t = flow_test(flow)
    t.send("orders", order("ann", 1))
    with pytest.raises(MemoryError):
        t.epoch()


def test_what_breaks_the_contract_of_map_arrow_is_no_rows_fault(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at")
    orders.map_arrow(lambda rows: rows.slice(0, 1), ORDERS, name="first").view("first")
    t = flow_test(flow)
    t.send("orders", order("a", 1), order("b", 2))
    with pytest.raises(BadFlow, match="one row for each row"):
        t.epoch()


def test_a_value_that_does_not_fit_its_column_is_dead(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at")
    orders.map_arrow(lambda rows: rows.select(["user", "amount"]), "user string, amount tinyint", name="small").view("small")
    t = flow_test(flow)
    t.send("orders", order("a", 1), order("b", 1_000, 1))
    t.end()
    assert [row["user"] for row in t.rows("small")] == ["a"]
    assert [row["offset"] for row in t.rows("dead")] == [1]


def test_several_readers_of_a_step_leave_one_letter(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at")
    made = orders.map_arrow(shares, "user string, share long", name="shares")
    made.view("all")
    made.where("share > 20").view("large")
    t = flow_test(flow)
    t.send("orders", order("a", 0), order("b", 4, 1))
    t.end()
    assert len(t.rows("dead")) == 1
    assert len(t.rows("all")) == len(t.rows("large")) == 1


@pytest.mark.parametrize("cut", [1, None])
def test_a_row_that_an_own_aggregate_cannot_add_is_in_no_aggregate_of_its_step(cut: int | None, flow_test: Start) -> None:
    t = flow_test(product())
    t.send("orders", order("a", 2), order("a", -1, 1), order("a", 3, 2), order("b", -5, 3), order("b", 7, 4))
    while t.epoch(cut):
        pass
    t.end()
    assert sorted((r["user"], r["n"], r["product"]) for r in t.rows("sales")) == [("a", 2, 6), ("b", 1, 7)]
    assert sorted(row["offset"] for row in t.rows("dead")) == [1, 3]
    assert "-1 is negative" in min(row["reason"] for row in t.rows("dead"))
    assert (t.fates("sales")["in"], t.fates("sales")["dead"], t.fates("sales")["on time"]) == (5, 2, 3)
    assert balanced(t)


@pytest.mark.parametrize("cut", [1, None])
def test_a_row_that_is_late_and_cannot_be_added_is_dead_whatever_comes_with_it(cut: int | None, flow_test: Start) -> None:
    t = flow_test(product())
    t.send("orders", {"user": "a", "amount": 2, "at": "2024-01-15T11:00:00Z"}, order("a", -1), order("a", 3))
    while t.epoch(cut):
        pass
    t.end()
    assert [row["offset"] for row in t.rows("dead")] == [1]
    assert [row["offset"] for row in t.rows("late")] == [2]


def test_null_passes_over_what_cannot_be_added_and_counts_it_all_the_same(flow_test: Start) -> None:
    t = flow_test(product("null"))
    t.send("orders", order("a", 2), order("a", -1, 1), order("a", 3, 2), order("b", -5, 3))
    t.end()
    assert sorted((r["user"], r["n"], r["product"]) for r in t.rows("sales")) == [("a", 3, 6), ("b", 1, 1)]
    assert t.rows("dead") == []


def test_sliding_windows_do_not_meet_a_dead_row_again(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    own = agg.own("amount", init=lambda: 1, add=multiplied, merge=lambda a, b: a * b, type="long")
    orders.window(Sliding("1 minute"), by="user").agg(product=own, name="recent").view("recent")
    t = flow_test(flow)
    t.send("orders", order("a", 2), order("a", -1, 1), order("a", 3, 2))
    t.end()
    assert sorted(row["product"] for row in t.rows("recent")) == [2, 6]
    assert [row["offset"] for row in t.rows("dead")] == [1]


def answers(keys: list[dict[str, Any]]) -> list[Any]:
    known: dict[str, Any] = {"a": {"age": 30}, "b": {"age": "old"}, "c": ValueError("no such account"), "d": None, "e": 7}
    return [known[key["user"]] for key in keys]


def looked_up(on_error: OnError = "dead") -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at")
    orders.lookup(answers, on="user", schema="age int", name="ages", on_error=on_error).view("ages")
    return flow


def test_rows_whose_answer_cannot_be_used_are_dead(flow_test: Start) -> None:
    t = flow_test(looked_up())
    t.send("orders", *(order(user, 1, i) for i, user in enumerate("abcdeb")))
    t.end()
    assert [(row["user"], row["age"]) for row in t.rows("ages")] == [("a", 30), ("d", None)]
    dead = {row["offset"]: row["reason"] for row in t.rows("dead")}
    assert sorted(dead) == [1, 2, 4, 5]
    assert "'old'" in dead[1]
    assert "ValueError: no such account" in dead[2]
    assert (t.fates("ages")["in"], t.fates("ages")["dead"]) == (6, 4)
    assert balanced(t)


def test_with_null_an_unusable_answer_is_none(flow_test: Start) -> None:
    t = flow_test(looked_up("null"))
    t.send("orders", order("a", 1), order("b", 1, 1), order("c", 1, 2))
    t.end()
    assert [(row["user"], row["age"]) for row in t.rows("ages")] == [("a", 30), ("b", None), ("c", None)]
    assert t.rows("dead") == []


def test_a_flow_stops_when_most_of_its_rows_fail(flow_test: Start) -> None:
    t = flow_test(mapped())
    t.send("orders", *(order("a", n % 3 % 2, n % 60) for n in range(2_100)))
    with pytest.raises(FailedRow, match='1,400 of the last 2,100 rows of step "shares" failed'):
        t.epoch()
    assert t.rows("dead") == []


def test_the_limit_is_found_in_small_epochs_too(flow_test: Start) -> None:
    t = flow_test(mapped())
    t.send("orders", *(order("a", 0, n % 60) for n in range(2_100)))
    with pytest.raises(FailedRow, match="the last 1,050 rows"):
        t.epoch(350), t.epoch(350), t.epoch(350)


def test_without_a_limit_every_row_may_fail(flow_test: Start) -> None:
    t = flow_test(mapped(dead_limit=None))
    t.send("orders", *(order("a", 0, n % 60) for n in range(1_500)))
    t.end()
    assert len(t.rows("dead")) == 1_500


def test_few_dead_rows_are_below_any_limit(flow_test: Start) -> None:
    t = flow_test(mapped())
    t.send("orders", *(order("a", 0, n % 60) for n in range(900)))
    t.end()
    assert len(t.rows("dead")) == 900


@pytest.mark.parametrize("verb", ["where", "select", "with_columns", "map_arrow", "lookup", "agg"])
def test_an_unknown_on_error_is_refused_where_it_stands(verb: str) -> None:
    flow = Flow("shop")
    orders: Any = flow.stream("orders", ORDERS, time="at")
    calls: dict[str, Callable[[], Any]] = {
        "where": lambda: orders.where("amount > 1", on_error="ignore"),
        "select": lambda: orders.select("user", on_error="ignore"),
        "with_columns": lambda: orders.with_columns(a="amount", on_error="ignore"),
        "map_arrow": lambda: orders.map_arrow(shares, ORDERS, on_error="ignore"),
        "lookup": lambda: orders.lookup(answers, on="user", schema="age int", on_error="ignore"),
        "agg": lambda: orders.group_by("user").agg(n=agg.count(), on_error="ignore"),
    }
    with pytest.raises(BadFlow, match="on_error='ignore' is not known"):
        calls[verb]()


def test_the_dead_topic_of_an_earlier_version_gains_the_column_of_the_expression(flow_test: Start) -> None:
    t = flow_test(mapped())
    t.log.create(TopicSpec("shop.dead", 1, late_schema(), writer="shop"))
    t.send("orders", order("a", 0))
    t.end()
    assert [(row["offset"], row["expression"]) for row in t.rows("dead")] == [(0, "shares")]


@pytest.mark.parametrize("text", ["x" * 900_000, "ä" * 400_000, '"' * 500_000])
def test_a_row_that_is_too_long_for_a_letter_is_cut_and_stops_nobody(text: str, flow_test: Start) -> None:
    t = flow_test(mapped())
    t.send("orders", order(text, 0), order("b", 5, 1))
    t.end()
    assert [row["share"] for row in t.rows("shares")] == [20]
    (letter,) = t.rows("dead")
    assert letter["offset"] == 0
    assert letter["row"].endswith("…")


def test_a_record_that_cannot_be_read_and_is_long_stops_nobody(flow_test: Start) -> None:
    t = flow_test(mapped())
    t.topic("orders", schema=None, time=None)
    t.log.topic("orders").append(0, pa.record_batch({"value": pa.array([b"\xff" * 1_000_000], pa.binary())}))
    t.end()
    assert [row["offset"] for row in t.rows("dead")] == [0]


def test_dead_rows_stand_in_the_closing_line_with_where_to_look(flow_test: Start) -> None:
    t = flow_test(mapped())
    tally = Tally(t.driver)
    t.send("orders", order("a", 0), order("b", 5, 1))
    t.end()
    assert " · 1 dead (penstock dead list shop) · " in tally.closing()


def test_a_row_behind_a_union_is_found_by_its_record(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at")
    both = orders.where("amount < 5", name="small").union(orders.where("amount >= 5", name="large"), name="both")
    both.map_arrow(shares, "user string, share long", name="shares").view("shares")
    t = flow_test(flow)
    t.send("orders", order("a", 9), order("b", 0, 1))
    t.end()
    assert [(row["topic"], row["offset"]) for row in t.rows("dead")] == [("orders", 1)]


def test_a_result_that_fails_behind_a_window_is_dead_without_a_record(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    totals = orders.window(Tumbling("1 minute"), by="user").agg(amount=agg.sum("amount"), name="totals")
    totals.map_arrow(shares, "user string, share long", name="shares").view("shares")
    t = flow_test(flow)
    t.send("orders", order("a", 4), order("b", 0, 1))
    t.end()
    assert [row["share"] for row in t.rows("shares")] == [25]
    (letter,) = t.rows("dead")
    assert (letter["topic"], letter["offset"]) == (None, None)
    assert orjson.loads(letter["row"])["user"] == "b"


def test_a_plan_says_what_becomes_of_failing_rows_unless_they_are_dead(flow_test: Start) -> None:
    assert "  on error null\n" in as_text(flow_test(mapped("null")).plan)
    assert "on error" not in as_text(flow_test(mapped()).plan)


def judged(result: Callable[[int], Any], on_error: str = "dead", merge: Callable[[int, int], int] | None = None) -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", ORDERS, time="at", lateness="10 seconds")
    given: dict[str, Any] = {"init": lambda: 1, "add": multiplied, "merge": merge or (lambda a, b: a * b), "type": "long"}
    own = agg.own("amount", result=result, **given)
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), product=own, name="sales", on_error=on_error).view("sales")
    return flow


def test_a_group_whose_result_fails_is_dead_with_key_window_and_cause(flow_test: Start) -> None:
    t = flow_test(judged(lambda product: 100 // (product - 6)))
    t.send("orders", order("a", 2), order("b", 8, 1), order("a", 3, 2))
    t.end()
    assert [(row["user"], row["n"], row["product"]) for row in t.rows("sales")] == [("b", 1, 50)]
    (letter,) = t.rows("dead")
    assert (letter["step"], letter["expression"], letter["topic"]) == ("sales.result", "agg.own product", None)
    assert letter["reason"].startswith("aggregate product: result failed; ZeroDivisionError: ")
    row = orjson.loads(letter["row"])
    assert (row["user"], row["window_start"], row["n"], row["product"]) == ("a", "2024-01-15T10:00:00Z", 2, None)
    assert t.fates("sales.result") == {"in": 2, "passed": 1, "dead": 1}
    assert t.fates("sales")["on time"] == 3
    assert balanced(t)


def test_a_result_that_fails_stops_the_flow_where_that_is_wanted(flow_test: Start) -> None:
    t = flow_test(judged(lambda product: 100 // (product - 6), "stop"))
    t.send("orders", order("a", 2), order("a", 3, 2))
    with pytest.raises(FailedRow) as stopped:
        t.end()
    text = str(stopped.value)
    assert text.startswith(
        'step "sales.result" fails on a row: agg.own product: aggregate product: result failed; ZeroDivisionError'
    )
    assert '{"user":"a","window_start":"2024-01-15T10:00:00Z"' in text


def test_a_flow_most_of_whose_results_fail_stops(flow_test: Start) -> None:
    t = flow_test(judged(lambda product: 1 // 0))
    t.send("orders", *(order(f"u{n}", 2) for n in range(1_000)))
    with pytest.raises(FailedRow, match=r'1,000 of the last 1,000 rows of step "sales.result" failed'):
        t.end()


def test_a_merge_that_fails_stops_the_flow_and_names_step_aggregate_group_and_cause(flow_test: Start) -> None:
    def merge(a: int, b: int) -> int:
        raise OverflowError("too much")

    t = flow_test(judged(lambda product: product, merge=merge))
    t.send("orders", order("a", 2))
    t.epoch()
    t.send("orders", order("a", 3, 1), order("b", 3, 1))
    with pytest.raises(FailedRow) as stopped:
        t.end()
    lines = str(stopped.value).splitlines()
    assert lines[0] == 'step "sales" fails: aggregate product: merge failed'
    assert lines[1].startswith('  flow shop, step "sales" (')
    assert lines[2:4] == ["  OverflowError: too much", "  group user='a', window_start=2024-01-15T10:00:00Z"]
    assert lines[4].startswith("  hint: which rows are added and merged together is chance")

"""What aggregates and count windows give where opinions differ; compared with DuckDB, which has the same definitions."""

import random
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from penstock import Count, Flow, Tumbling, agg
from penstock.flow.steps.aggregates import Agg
from penstock.flow.stream import Stream

AT = "2024-01-15T10:00:15Z"


def events(flow: Flow, columns: str) -> Stream:
    return flow.stream("events", f"{columns}, at timestamp", time="at", lateness="0 seconds")


def in_a_window(columns: str, rows: list[dict[str, Any]], **aggregates: Agg) -> dict[str, Any]:
    """The aggregates of all rows: of a window, and those of a running group are the same."""
    flow = Flow("definitions")
    stream = events(flow, columns)
    stream.window(Tumbling("1 minute")).agg(**aggregates).view("windows")
    stream.with_columns(g="1").group_by("g").agg(**aggregates).view("groups")
    with flow.test() as t:
        t.send("events", *({"at": AT} | row for row in rows))
        t.end()
        (window,), (group,) = t.rows("windows"), t.rows("groups")
    found = {name: window[name] for name in aggregates}
    assert found == {name: group[name] for name in aggregates}
    return found


def test_a_ratio_divides_by_all_rows_also_those_whose_condition_is_null() -> None:
    rows = [{"ok": True}, {"ok": None}, {"ok": False}, {"ok": None}]
    assert in_a_window("ok boolean", rows, r=agg.ratio("ok")) == {"r": 0.25}
    sql = "select avg(case when ok then 1.0 else 0.0 end) from (values (true), (null), (false), (null)) t(ok)"
    assert duckdb.execute(sql).fetchone() == (0.25,)


def test_without_values_arrays_are_empty_counts_are_0_and_all_else_is_null() -> None:
    given = {
        "top": agg.top(2, "x", by="y"),
        "greatest": agg.top(2, "x"),
        "all": agg.collect("x"),
        "n": agg.count("x"),
        "different": agg.distinct("x"),
        "total": agg.sum("x"),
        "mean": agg.avg("x"),
        "median": agg.quantile("x", 0.5),
        "share": agg.ratio("x > 1"),
    }
    found = in_a_window("x double, y long", [{}, {}], **given)
    assert found == {
        "top": [],
        "greatest": [],
        "all": [],
        "n": 0,
        "different": 0,
        "total": None,
        "mean": None,
        "median": None,
        "share": 0.0,
    }


def test_a_top_row_whose_value_is_null_is_there_as_null() -> None:
    assert in_a_window("x double, y long", [{"y": 1}, {"x": 5.0}], t=agg.top(2, "x", by="y")) == {"t": [None]}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 10, 99])
def test_a_quantile_is_the_value_of_rank_q_times_n_as_in_quantile_disc(n: int) -> None:
    rng = random.Random(n)
    values = [rng.choice((-1, 1)) * rng.uniform(0.001, 1e6) for _ in range(n)]
    shares = {f"q{int(q * 100)}": q for q in (0.0, 0.1, 0.25, 0.5, 0.75, 0.95, 1.0)}
    found = in_a_window("x double", [{"x": x} for x in values], **{name: agg.quantile("x", q) for name, q in shares.items()})
    for name, q in shares.items():
        (exact,) = duckdb.execute(f"select quantile_disc(x, {q}) from (select unnest(?) x)", [values]).fetchone() or (None,)
        assert found[name] == pytest.approx(exact, rel=0.01)


def test_the_mean_of_decimals_is_exact_and_has_four_more_digits() -> None:
    rows = [{"x": x} for x in ("1.00", "0.00", None, "-0.50")]
    assert in_a_window("x decimal(10,2)", rows, m=agg.avg("x")) == {"m": Decimal("0.166667")}
    rows = [{"x": x} for x in ("-0.01", "-0.02")]
    assert in_a_window("x decimal(10,2)", rows, m=agg.avg("x")) == {"m": Decimal("-0.015000")}
    large = [{"x": "9" * 34}, {"x": "9" * 33 + "8"}]
    assert in_a_window("x decimal(34,0)", large, m=agg.avg("x")) == {"m": Decimal("9" * 33 + "8.5000")}


def test_a_mean_of_decimals_that_does_not_fit_is_null_and_never_another_number() -> None:
    assert in_a_window("x decimal(38,0)", [{"x": "9" * 38}], m=agg.avg("x")) == {"m": None}


def test_a_count_window_that_is_not_full_is_not_given_at_the_end_and_stays_open() -> None:
    flow = Flow("counts")
    events(flow, "k string").window(Count(2), by="k").agg(n=agg.count()).view("pairs")
    with flow.test() as t:
        t.send("events", *({"k": k, "at": AT} for k in "aabbb"))
        t.end()
        assert [(row["k"], row["n"]) for row in t.rows("pairs")] == [("a", 2), ("b", 2)]
        assert t.fates("pairs") == {"in": 5, "on time": 5}, "the fifth row is in a window, which is not full"
        kept = t.state("pairs")
        assert kept is not None
        assert [(row["k"], row["n"]) for row in kept.to_pylist()] == [("b", 1)]

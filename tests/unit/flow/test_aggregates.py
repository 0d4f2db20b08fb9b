"""Aggregates as they are written: what is asked of the kernels, of which type, and what is refused."""

import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock import plan
from penstock.core.schema import Schema, type_text
from penstock.errors import BadFlow, BadInput
from penstock.flow.place import At
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.flow.steps.aggregates import Agg, agg, output_field, resolve, resolve_all

SCHEMA = Schema.of(
    "shop string, n int, big long, x double, f float, price decimal(10,2), wide decimal(30,4), at timestamp, ok boolean, "
    "tags array<string>, attributes map<string,int>"
)
AT = At("shop", plan.Origin("shop.py", 7), "sales", chosen=True, analyzer=NoAnalyzer())


def resolved(given: Agg, **how: Any) -> plan.Aggregate:
    return resolve("a", given, SCHEMA, AT, **how)[0]


def product(**other: Any) -> Agg:
    its = {"init": lambda: 1.0, "add": lambda state, rows: state, "merge": operator.mul, "type": "double"}
    return agg.own("x", **(its | other))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (agg.count(), "long"),
        (agg.count("tags"), "long"),
        (agg.count_if("ok"), "long"),
        (agg.count_if("x > 2 and ok"), "long"),
        (agg.ratio("ok"), "double"),
        (agg.rate(), "double"),
        (agg.sum("n"), "long"),
        (agg.sum("wide"), "decimal(38,4)"),
        (agg.avg("f"), "double"),
        (agg.avg("price"), "decimal(14,6)"),
        (agg.avg("wide"), "decimal(34,8)"),
        (agg.var("price"), "double"),
        (agg.stddev("n"), "double"),
        (agg.min("at"), "timestamp"),
        (agg.max("shop"), "string"),
        (agg.first("attributes"), "map<string,int>"),
        (agg.last("price"), "decimal(10,2)"),
        (agg.collect("tags"), "array<array<string>>"),
        (agg.distinct("wide"), "long"),
        (agg.distinct("shop", approx=True), "long"),
        (agg.quantile("price", 0.5), "double"),
        (agg.top(3, "shop", by="x"), "array<string>"),
        (agg.top(3, "n"), "array<int>"),
        (product(), "double"),
        (product(type=pa.list_(pa.large_string()), state="struct<n:long>"), "array<string>"),
    ],
    ids=lambda value: f"{value.function}({value.column})" if isinstance(value, Agg) else None,
)
def test_types_are_those_of_spark(given: Agg, expected: str) -> None:
    assert type_text(resolved(given).type) == expected


@pytest.mark.parametrize(
    ("given", "column", "others", "options"),
    [
        (agg.count(), None, (), ()),
        (agg.var("N"), "n", (), (1,)),
        (agg.stddev("n", population=True), "n", (), (0,)),
        (agg.first("x"), "x", (), (True,)),
        (agg.last("x", skip_nulls=True), "x", (), (False,)),
        (agg.distinct("x"), "x", (), ()),
        (agg.distinct("x", approx=True), "x", (), (0.02,)),
        (agg.distinct("x", approx=True, error=0.01), "x", (), (0.01,)),
        (agg.quantile("x", 1), "x", (), (1.0, 0.01)),
        (agg.quantile("x", 0.95, error=0.001), "x", (), (0.95, 0.001)),
        (agg.top(2, "shop", by="x"), "shop", ("x",), (2,)),
        (agg.top(2, "x"), "x", ("x",), (2,)),
    ],
)
def test_kernels_are_told_columns_and_options(given: Agg, column: str | None, others: Any, options: Any) -> None:
    made = resolved(given)
    assert (made.function, made.column, made.others, made.options) == (given.function, column, others, options)


def test_an_aggregate_of_ones_own_carries_its_functions_and_the_type_of_its_state() -> None:
    def add(state: Any, rows: pa.Table) -> Any:
        return state

    given = agg.own(["x", "x + 1"], init=int, add=add, merge=operator.add, type="double", state="long", result=float)
    made, hidden = resolve("a", given, SCHEMA, AT)
    assert (made.column, made.others) == ("x", ("__in1_a",))
    assert made.options == (("x", "x + 1"), pa.int64(), int, add, operator.add, float)
    assert [(name, e.text) for name, e in hidden] == [("__in1_a", "x + 1")]


def test_expressions_become_columns_of_their_own_once() -> None:
    named = [
        ("mean", agg.avg("x * 2")),
        ("median", agg.quantile("x * 2", 0.5)),
        ("best", agg.top(3, "x + 1", by="x * 2")),
        ("plain", agg.max("x")),
        ("most", agg.top(1, "x + 2")),
    ]
    aggregates, hidden = resolve_all(named, SCHEMA, AT)
    assert [(a.column, *a.others) for a in aggregates] == [
        ("__in_mean",),
        ("__in_mean",),
        ("__in_best", "__in_mean"),
        ("x",),
        ("__in_most", "__in_most"),
    ]
    assert [(name, e.text) for name, e in hidden] == [("__in_mean", "x * 2"), ("__in_best", "x + 1"), ("__in_most", "x + 2")]


def test_the_names_of_made_columns_never_meet() -> None:
    named = [("a", agg.top(1, "x + 1", by="x + 2")), ("a_1", agg.sum("x + 3")), ("1_a", agg.sum("x + 4"))]
    _, hidden = resolve_all(named[:2], SCHEMA, AT)
    assert [name for name, _ in hidden] == ["__in_a", "__in1_a", "__in_a_1"]
    with pytest.raises(BadInput, match="cannot name a column"):
        resolve_all(named, SCHEMA, AT)


def test_what_is_told_of_every_group_cannot_be_null() -> None:
    never = [agg.count(), agg.count_if("ok"), agg.ratio("ok"), agg.rate(), agg.distinct("x"), agg.collect("x"), agg.top(1, "x")]
    assert not any(output_field(resolved(given)).nullable for given in never)
    assert all(output_field(resolved(given)).nullable for given in (agg.sum("x"), agg.first("x"), agg.var("x"), product()))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (agg.var("shop"), "cannot take var of 'shop', which is string: it takes numbers"),
        (agg.quantile("at", 0.5), "cannot take quantile of 'at', which is timestamp: it takes numbers"),
        (agg.sum("ok"), "cannot take sum of 'ok', which is boolean: it takes numbers"),
        (agg.count_if("n"), "cannot take count_if of 'n', which is int: it takes a condition"),
        (agg.ratio("x * 2"), "cannot take ratio of 'x * 2', which is double: it takes a condition"),
        (agg.distinct("tags"), "cannot take distinct of 'tags', which is array<string>: its values cannot be told apart"),
        (agg.top(2, "shop", by="tags"), "cannot take top of 'tags', which is array<string>: its values have no order"),
        (agg.top(2, "tags"), "cannot take top of 'tags', which is array<string>: its values have no order"),
        (agg.first("shoop"), "cannot evaluate 'shoop': there is no column 'shoop'"),
    ],
)
def test_values_that_an_aggregate_cannot_take_are_refused(given: Agg, what: str) -> None:
    with pytest.raises(BadFlow) as caught:
        resolved(given)
    assert caught.value.what == what
    assert caught.value.detail[0] == 'flow shop, step "sales" (shop.py:7)'
    assert caught.value.hint


def test_a_rate_needs_a_stretch_of_time() -> None:
    with pytest.raises(BadFlow, match="cannot tell a: there is no stretch of time to divide by"):
        resolved(agg.rate(), lasting=False)
    assert resolved(agg.count(), lasting=False).function == "count"


def unchecked(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: agg.sum(unchecked(3)), "cannot take sum of 3"),
        (lambda: agg.count_if(" "), "cannot take count_if of ' '"),
        (lambda: agg.first("x", skip_nulls=unchecked("yes")), "skip_nulls='yes' is neither True nor False"),
        (lambda: agg.var("x", population=unchecked(1)), "population=1 is neither True nor False"),
        (lambda: agg.quantile("x", 95), "q=95 is out of range"),
        (lambda: agg.quantile("x", float("nan")), "q=nan is out of range"),
        (lambda: agg.quantile("x", 0.5, error=0), "error=0 is out of range"),
        (lambda: agg.distinct("x", approx=True, error=0.001), "error=0.001 is out of range"),
        (lambda: agg.distinct("x", error=0.01), "cannot count exactly with an error"),
        (lambda: agg.top(0, "x"), "cannot take the top 0"),
        (lambda: agg.top(unchecked("3"), "x"), "cannot take the top '3'"),
        (lambda: agg.top(3, "x", by=unchecked(1)), "cannot take top of 1"),
        (lambda: product(init=1.0), "init=1.0 is no function"),
        (lambda: product(result="x"), "result='x' is no function"),
        (lambda: product(type="number"), "type='number' is no type that a column can have"),
        (lambda: product(state=pa.duration("s")), "state=DurationType(duration[s]) is no type that a column can have"),
        (lambda: agg.own([], init=int, add=max, merge=max, type="long"), "cannot make an aggregate of no column"),
        (
            lambda: agg.own(["x", "x"], init=int, add=max, merge=max, type="long"),
            "cannot make an aggregate that reads a column twice",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused_where_they_are_written(call: Callable[[], Agg], what: str) -> None:
    with pytest.raises(BadFlow) as caught:
        call()
    assert caught.value.what == what
    assert "test_aggregates.py" in caught.value.detail[0]
    assert caught.value.hint

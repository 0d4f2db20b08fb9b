"""Every aggregate, however its rows are cut into pieces and the pieces put together, is what its definition says of all rows."""

import dataclasses
import functools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.columns import POSITION, TIME
from penstock.kernels.aggregates.partials import Aggregation
from penstock.plan import Aggregate

START = "__start"
LONG, DOUBLE, TEXT = pa.int64(), pa.float64(), pa.string()
NAN = math.nan


@dataclass(frozen=True)
class Row:
    """Of one group: its value, what it is ranked by, whether a condition holds, and where it stands."""

    group: tuple[str | None, int]
    value: Any
    by: Any
    holds: bool | None
    place: tuple[int, bytes]


Naive = Callable[[list[Row]], Any]


@dataclass(frozen=True)
class Case:
    """Aggregates over values of one type, each with its naive definition over the rows of a group."""

    name: str
    type: pa.DataType
    values: st.SearchStrategy[Any]
    naive: dict[Aggregate, Naive]

    @property
    def aggregates(self) -> list[Aggregate]:
        """Called a0, a1, …"""
        return [dataclasses.replace(one, name=f"a{i}") for i, one in enumerate(self.naive)]


def folded(case: Case, rows: list[Row], seed: int) -> dict[Any, list[Any]]:
    """The results by group, over rows in any order, cut anyhow, put together anyhow; every group has 10 seconds."""
    chance, aggregation = random.Random(seed), Aggregation(case.aggregates, schema(case.type))
    rows = chance.sample(rows, len(rows))
    cuts = sorted(chance.choices(range(len(rows) + 1), k=chance.randrange(5)))
    pieces = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    partials = [partial(aggregation, case.type, piece) for piece in pieces]
    while len(partials) > 1:
        some = [partials.pop(chance.randrange(len(partials))) for _ in range(chance.randint(2, min(4, len(partials))))]
        partials.append(aggregation.fold(pa.concat_tables(some), ["k", START]))
    (last,) = partials
    results = aggregation.results(last, np.full(last.num_rows, 10.0))
    assert [array.type for array in results.values()] == [one.type for one in case.aggregates]
    groups = zip(last["k"].to_pylist(), last[START].to_pylist(), strict=True)
    columns = [array.to_pylist() for array in results.values()]
    return {group: [column[i] for column in columns] for i, group in enumerate(groups)}


def schema(t: pa.DataType) -> pa.Schema:
    return pa.schema([("k", TEXT), ("v", t), ("by", DOUBLE), ("holds", pa.bool_())])


def partial(aggregation: Aggregation, t: pa.DataType, rows: list[Row]) -> pa.Table:
    columns = {
        "k": pa.array([r.group[0] for r in rows], TEXT),
        "v": pa.array([r.value for r in rows], t),
        "by": pa.array([r.by for r in rows], DOUBLE),
        "holds": pa.array([r.holds for r in rows], pa.bool_()),
        TIME: pa.array([r.place[0] for r in rows], LONG),
        POSITION: pa.array([r.place[1] for r in rows], pa.binary()),
    }
    return aggregation.partial(pa.table(columns), ["k"], {START: np.array([r.group[1] for r in rows], np.int64)})


DOUBLES = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0])
WILD = DOUBLES | st.sampled_from([math.inf, -math.inf, NAN])
LONGS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
DECIMALS = st.decimals(-(10**8 - 1), 10**8 - 1, places=2)
WIDE = st.integers(-(10**30) + 1, 10**30 - 1).map(lambda n: Decimal(n).scaleb(-2, Context(prec=40)))
TEXTS = st.sampled_from(["", "a", "b", "ab", "é", "z"])


def known(rows: list[Row]) -> list[Any]:
    return [r.value for r in rows if r.value is not None]


def rank(x: Any) -> Any:
    """NaN is the greatest."""
    return (x != x, 0 if x != x else x)


def summed(rows: list[Row]) -> Any:
    """A fraction where it must be exact: Python's decimals round."""
    values = known(rows)
    exact = sum(map(Fraction, values)) if not values or isinstance(values[0], Decimal | int) else math.fsum(values)
    return exact if values else None


def mean(rows: list[Row]) -> Any:
    return float(Fraction(sum(map(Fraction, known(rows))), len(known(rows)))) if known(rows) else None


def variance(rows: list[Row], off: int, root: bool = False) -> Any:
    x = [Fraction(v) for v in known(rows)]
    if len(x) <= off:
        return None
    middle = sum(x) / len(x)
    var = float(sum((v - middle) ** 2 for v in x) / (len(x) - off))
    return math.sqrt(var) if root else var


def least(rows: list[Row]) -> Any:
    return min(known(rows), key=rank, default=None)


def greatest(rows: list[Row]) -> Any:
    return max(known(rows), key=rank, default=None)


def edge(rows: list[Row], last: bool, nulls: bool) -> Any:
    some = sorted((r for r in rows if nulls or r.value is not None), key=lambda r: r.place)
    return some[-1 if last else 0].value if some else None


def collected(rows: list[Row]) -> Any:
    return [r.value for r in sorted(rows, key=lambda r: r.place) if r.value is not None]


def different(rows: list[Row]) -> int:
    return len({"NaN" if v != v else v for v in known(rows)})


def top(rows: list[Row], n: int) -> Any:
    some = sorted((r for r in rows if r.by is not None), key=lambda r: r.place)
    return [r.value for r in sorted(some, key=lambda r: (r.by == r.by, 0 if r.by != r.by else -r.by))][:n]


def greatest_two(rows: list[Row]) -> Any:
    return sorted(known(rows), key=rank, reverse=True)[:2]


def a(function: str, column: str | None, t: pa.DataType, *options: Any, by: tuple[str, ...] = ()) -> Aggregate:
    return Aggregate("", function, column, t, by, options)


P = functools.partial
D10, D30, BOOL, LISTS, MAP = pa.decimal128(10, 2), pa.decimal128(30, 2), pa.bool_(), pa.list_(LONG), pa.map_(TEXT, LONG)


def placed(t: pa.DataType) -> dict[Aggregate, Naive]:
    """What takes values of any type."""
    return {
        a("count", "v", LONG): lambda rows: len(known(rows)),
        a("first", "v", t, True): P(edge, last=False, nulls=True),
        a("first", "v", t, False): P(edge, last=False, nulls=False),
        a("last", "v", t, True): P(edge, last=True, nulls=True),
        a("last", "v", t, False): P(edge, last=True, nulls=False),
        a("collect", "v", pa.list_(t)): collected,
        a("top", "v", pa.list_(t), 1, by=("by",)): P(top, n=1),
        a("top", "v", pa.list_(t), 3, by=("by",)): P(top, n=3),
    }


def compared(t: pa.DataType) -> dict[Aggregate, Naive]:
    return {a("min", "v", t): least, a("max", "v", t): greatest, a("distinct", "v", LONG): different}


def spread() -> dict[Aggregate, Naive]:
    return {
        a("var", "v", DOUBLE, 1): P(variance, off=1),
        a("var", "v", DOUBLE, 0): P(variance, off=0),
        a("stddev", "v", DOUBLE, 1): P(variance, off=1, root=True),
    }


OF_ROWS: dict[Aggregate, Naive] = {
    a("count", None, LONG): len,
    a("rate", None, DOUBLE): lambda rows: len(rows) / 10,
    a("count_if", "holds", LONG): lambda rows: sum(r.holds is True for r in rows),
    a("ratio", "holds", DOUBLE): lambda rows: sum(r.holds is True for r in rows) / len(rows),
}
MEAN: dict[Aggregate, Naive] = {a("avg", "v", DOUBLE): mean}
CASES = [
    Case("rows", LONG, LONGS, OF_ROWS),
    Case("long", LONG, LONGS, placed(LONG) | compared(LONG) | spread() | MEAN),
    Case("tinyint", pa.int8(), st.integers(-128, 127), spread() | MEAN | {a("sum", "v", LONG): summed}),
    Case("double", DOUBLE, DOUBLES, spread() | MEAN | {a("sum", "v", DOUBLE): summed}),
    Case("float", pa.float32(), WILD, compared(pa.float32()) | placed(pa.float32())),
    Case("any double", DOUBLE, WILD, compared(DOUBLE) | {a("top", "v", pa.list_(DOUBLE), 2, by=("v",)): greatest_two}),
    Case("decimal", D10, DECIMALS, compared(D10) | spread() | {a("sum", "v", pa.decimal128(20, 2)): summed}),
    Case("wide decimal", D30, WIDE, compared(D30) | placed(D30) | {a("sum", "v", pa.decimal128(38, 2)): summed}),
    Case("modest wide decimal", D30, st.decimals(-1000, 1000, places=2), spread()),
    Case("text", TEXT, TEXTS, compared(TEXT) | placed(TEXT) | OF_ROWS),
    Case("boolean", BOOL, st.booleans(), compared(BOOL)),
    Case("array", LISTS, st.lists(LONGS, max_size=2), placed(LISTS)),
    Case("map", MAP, st.lists(st.tuples(TEXTS, st.integers(0, 3)), max_size=2), placed(MAP)),
]


def rows_of(case: Case) -> st.SearchStrategy[list[Row]]:
    groups = st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([0, 10]))
    bys = st.sampled_from([None, 0.0, -0.0, 1.0, 2.0, NAN, -math.inf])
    fields = st.tuples(groups, st.none() | case.values, bys, st.sampled_from([None, True, False]), st.integers(-2, 3))
    return st.lists(fields, max_size=25).map(
        lambda found: [Row(g, v, by, holds, (t, i.to_bytes(1))) for i, (g, v, by, holds, t) in enumerate(found)]
    )


def same(mine: Any, naive: Any) -> bool:
    if isinstance(naive, list):
        return len(mine) == len(naive) and all(map(same, mine, naive))
    if isinstance(naive, float) and mine is not None:
        return (mine != mine and naive != naive) or math.isclose(mine, naive, rel_tol=1e-9, abs_tol=1e-9)
    return bool(mine == naive) and (mine is None) == (naive is None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=30)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_cut_and_any_order_of_folding_is_the_definition_over_all_rows(case: Case, data: st.DataObject, seed: int) -> None:
    rows = data.draw(rows_of(case))
    groups = {r.group: [other for other in rows if other.group == r.group] for r in rows}
    found = folded(case, rows, seed)
    assert found.keys() == groups.keys()
    for group, values in found.items():
        for (aggregate, naive), mine in zip(case.naive.items(), values, strict=True):
            assert same(mine, naive(groups[group])), (group, aggregate)


@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_sum_of_longs_is_exact_or_null_for_any_cut(data: st.DataObject, seed: int) -> None:
    case = Case("long", LONG, LONGS, {a("sum", "v", LONG): summed})
    rows = data.draw(rows_of(case))
    groups = {r.group: summed([other for other in rows if other.group == r.group]) for r in rows}
    fitting = {group: total if total is not None and -(2**63) <= total < 2**63 else None for group, total in groups.items()}
    assert folded(case, rows, seed) == {group: [total] for group, total in fitting.items()}


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=12))
def test_the_variance_of_integers_is_rounded_once(values: list[int]) -> None:
    case = Case("long", LONG, LONGS, {a("var", "v", DOUBLE, 1): P(variance, off=1)})
    rows = [Row((None, 0), v, None, None, (0, bytes([i]))) for i, v in enumerate(values)]
    assert folded(case, rows, 0) == {(None, 0): [variance(rows, 1)]}


def test_infinity_and_nan_have_no_variance() -> None:
    case = Case("double", DOUBLE, WILD, {a("var", "v", DOUBLE, 0): P(variance, off=0)})
    for odd in (math.inf, NAN):
        rows = [Row((None, 0), v, None, None, (0, bytes([i]))) for i, v in enumerate([1.0, odd, 2.0])]
        assert math.isnan(folded(case, rows, 3)[None, 0][0])


def test_without_keys_all_rows_are_one_group_and_no_rows_are_none() -> None:
    aggregates = [Aggregate("n", "count", None, LONG), Aggregate("d", "distinct", "v", LONG), Aggregate("s", "sum", "v", LONG)]
    for some in (aggregates, aggregates[:1], aggregates[1:2]):
        aggregation = Aggregation(some, pa.schema([("v", LONG)]))
        rows = pa.table({"v": [1, 1, 2]})
        once = aggregation.partial(rows, [], {})
        results = aggregation.results(aggregation.fold(pa.concat_tables([once, once]), []))
        assert {name: array.to_pylist() for name, array in results.items()} == {
            name: [value] for name, value in {"n": 6, "d": 2, "s": 8}.items() if name in results
        }
        assert aggregation.partial(rows.slice(0, 0), [], {}).num_rows == 0
        assert aggregation.fold(once.slice(0, 0), []).num_rows == 0


def test_aggregates_share_what_they_have_in_common() -> None:
    s = pa.schema([("v", DOUBLE)])
    some = [Aggregate(str(q), "quantile", "v", DOUBLE, (), (q, 0.01)) for q in (0.5, 0.95)]
    assert len(Aggregation(some, s).fields) == 1
    others = [Aggregate("n", "count", "v", LONG), Aggregate("x", "avg", "v", DOUBLE), Aggregate("y", "var", "v", DOUBLE, (), (1,))]
    assert len(Aggregation(others, s).fields) == 4  # count, sum, mean, distances from it


def test_only_what_has_to_know_the_order_asks_for_positions() -> None:
    s = pa.schema([("v", DOUBLE), ("by", DOUBLE)])
    asks = {one.function: Aggregation([one], schema(c.type)).needs_position for c in CASES for one in c.aggregates}
    assert {f for f, position in asks.items() if position} == {"first", "last", "collect", "top"}
    assert not Aggregation([Aggregate("q", "quantile", "v", DOUBLE, (), (0.5, 0.01))], s).needs_position

"""Sketches: within their stated error, and the same for any order and any pieces."""

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.aggregates.distinct import precision_for
from penstock.kernels.aggregates.partials import Aggregation
from penstock.plan import Aggregate

DOUBLE, LONG = pa.float64(), pa.int64()
DOUBLES = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
SPECIAL = st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, None, 5e-324, -1.7976931348623157e308])


def told(aggregate: Aggregate, pieces: Sequence[pa.Array]) -> Any:
    """The aggregate over one group that came in these pieces."""
    aggregation = Aggregation([aggregate], pa.schema([("v", pieces[0].type)]))
    partials = [aggregation.partial(pa.table({"v": piece}), [], {}) for piece in pieces]
    (result,) = aggregation.results(aggregation.fold(pa.concat_tables(partials), []))["a"].to_pylist()
    return result


def quantile(q: float, error: float = 0.01) -> Aggregate:
    return Aggregate("a", "quantile", "v", DOUBLE, (), (q, error))


def estimated(error: float = 0.02) -> Aggregate:
    return Aggregate("a", "distinct", "v", LONG, (), (error,))


def true_quantile(values: list[float], share: Fraction) -> float:
    ordered = sorted(values, key=lambda v: (v != v, 0 if v != v else v))
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


@settings(max_examples=150)
@given(
    st.lists(DOUBLES | SPECIAL | st.floats(-100, 100), min_size=1, max_size=60),
    st.sampled_from(["0", "0.07", "0.25", "0.5", "0.95", "0.999", "1"]),
    st.sampled_from([0.2, 0.01, 0.00001]),
    st.integers(0, 60),
)
def test_a_quantile_is_within_the_stated_error_of_the_true_one(values: list[Any], q: str, error: float, cut: int) -> None:
    mine = told(quantile(float(q), error), [pa.array(values[cut:], DOUBLE), pa.array(values[:cut], DOUBLE)])
    known = [v for v in values if v is not None]
    if not known:
        assert mine is None
        return
    true = true_quantile(known, Fraction(q))
    if math.isnan(true) or math.isinf(true) or true == 0:
        assert mine == true or (math.isnan(mine) and math.isnan(true))
    else:
        assert abs(mine - true) <= error * abs(true) + 5e-324


@pytest.mark.parametrize("t", [pa.int8(), pa.int64(), pa.float32(), pa.decimal128(10, 2), pa.decimal128(38, 0)])
def test_quantiles_take_every_kind_of_number(t: pa.DataType) -> None:
    values = pa.array([Decimal(i) if pa.types.is_decimal(t) else i for i in range(101)], t)
    assert told(quantile(0.95), [values]) == pytest.approx(95, rel=0.01)


def test_the_greatest_longs_and_decimals_are_near_enough() -> None:
    assert told(quantile(1.0), [pa.array([2**63 - 1, 5])]) == pytest.approx(2**63, rel=0.01)
    assert told(quantile(1.0), [pa.array([Decimal(10**37)], pa.decimal128(38, 0))]) == pytest.approx(10**37, rel=0.01)


@given(st.lists(st.floats() | SPECIAL, max_size=60), st.lists(st.integers(0, 60), max_size=4), st.randoms())
def test_sketches_are_the_same_for_any_cut_and_order(values: list[Any], cuts: list[int], chance: Any) -> None:
    array, shuffled = pa.array(values, DOUBLE), pa.array(chance.sample(values, len(values)), DOUBLE)
    ends = sorted(min(c, len(values)) for c in cuts)
    pieces = [shuffled.slice(a, b - a) for a, b in zip([0, *ends], [*ends, len(values)], strict=True)]
    for aggregate in (quantile(0.5), quantile(0.9), estimated()):
        if len(values):
            assert repr(told(aggregate, [array])) == repr(told(aggregate, pieces))


@pytest.mark.parametrize("error", [0.1, 0.02, 0.005])
@pytest.mark.parametrize("count", [0, 1, 10, 1_000, 30_000, 400_000])
def test_an_estimate_of_different_values_is_within_four_standard_errors(count: int, error: float) -> None:
    chance = np.random.default_rng(count)
    values = pa.array(chance.permutation(np.concatenate([np.arange(count)] * 2)) * 7919)
    cut = count // 3
    mine = told(estimated(error), [values.slice(cut), values.slice(0, cut)] if count else [pa.array([None], LONG)])
    assert abs(mine - count) <= 4 * error * count


@given(st.sets(st.integers(-(2**63), 2**63 - 1), max_size=300))
@settings(max_examples=30)
def test_few_different_values_are_hardly_estimated(values: set[int]) -> None:
    mine = told(estimated(0.005), [pa.array([*values, *values, None], LONG)])
    assert abs(mine - len(values)) <= 3


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b", "a", None, ""]),
        pa.array([Decimal("1.00"), Decimal("-1.00"), Decimal("1.00"), None, Decimal("0.00")], pa.decimal128(30, 2)),
        pa.array([0.0, -0.0, math.nan, math.nan, 1.0, None], pa.float32()),
        pa.array([b"", b"\x00", b"\x00\x00", None]),
    ],
    ids=lambda values: str(values.type),
)
def test_values_of_every_type_are_told_apart_as_exact_counting_does(values: pa.Array) -> None:
    assert told(estimated(), [values]) == told(Aggregate("a", "distinct", "v", LONG), [values]) == 3
    assert told(estimated(), [values.slice(1)]) == told(Aggregate("a", "distinct", "v", LONG), [values.slice(1)])


def test_nans_of_different_bits_are_one_value() -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF8000000000000], np.uint64).view(np.float64)
    for aggregate in (estimated(), Aggregate("a", "distinct", "v", LONG)):
        assert told(aggregate, [pa.array(odd), pa.array(odd)]) == 1


def test_many_groups_are_estimated_each_for_itself() -> None:
    count = 40_000
    keys = np.repeat(np.arange(count), 3)
    rows = pa.table({"k": keys, "v": np.where(keys % 2, np.arange(3 * count), keys)})
    aggregation = Aggregation([estimated()], rows.schema)
    partials = aggregation.partial(rows, ["k"], {})
    expected = np.where(partials["k"].to_numpy() % 2, 3, 1)
    assert (aggregation.results(partials)["a"].to_numpy() == expected).mean() > 0.99


def test_the_precision_follows_the_error() -> None:
    assert [precision_for(error) for error in (0.5, 0.025, 0.02, 0.01, 0.0021)] == [11, 11, 12, 14, 18]
    assert all(1.04 / math.sqrt(2 ** precision_for(error)) <= error for error in (0.5, 0.023, 0.02, 0.01, 0.0021))

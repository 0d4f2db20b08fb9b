"""Sums that neither round nor wrap."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.aggregates import exact

LONGS = st.integers(-(2**63), 2**63 - 1)


def limbs_of(column: pa.Array) -> list[np.ndarray]:
    added = exact.addends(column)
    sums = [np.array([part.sum()], np.int64) for part in added]
    return exact.split(sums[0]) if len(sums) == 1 else sums


@given(st.lists(LONGS, max_size=20))
def test_limbs_hold_any_sum_of_longs(values: list[int]) -> None:
    assert exact.integers(limbs_of(pa.array(values, pa.int64()))) == [sum(values)]


@given(st.lists(LONGS, max_size=20))
def test_limbs_hold_any_sum_of_squares_of_longs(values: list[int]) -> None:
    added = exact.square_addends(pa.array(values, pa.int64()))
    sums = [np.array([part.sum()], np.int64) for part in added]
    limbs = exact.split(sums[0], exact.SQUARE_LIMBS) if len(sums) == 1 else exact.carried(sums)
    assert len(limbs) == exact.SQUARE_LIMBS
    assert exact.integers(limbs) == [sum(v * v for v in values)]


@given(st.lists(LONGS, max_size=6))
def test_a_sum_is_a_long_or_null_and_never_wraps(values: list[int]) -> None:
    limbs = limbs_of(pa.array(values, pa.int64()))
    assert exact.longs(limbs).to_pylist() == [sum(values) if -(2**63) <= sum(values) < 2**63 else None]


@given(st.lists(st.integers(-(10**30), 10**30), max_size=20), st.booleans())
def test_decimals_are_added_exactly(values: list[int], null: bool) -> None:
    cells = [Decimal(f"{v}e-2") for v in values] + ([None] if null else [])
    limbs = limbs_of(pa.array(cells, pa.decimal128(34, 2)))
    assert exact.decimals(limbs, pa.decimal128(38, 2)).to_pylist() == [Decimal(f"{sum(values)}e-2")]


def test_a_decimal_sum_that_needs_more_digits_is_null() -> None:
    limbs = limbs_of(pa.array([Decimal("99.9"), Decimal("0.1")], pa.decimal128(3, 1)))
    assert exact.decimals(limbs, pa.decimal128(3, 1)).to_pylist() == [None]
    assert exact.decimals(limbs, pa.decimal128(4, 1)).to_pylist() == [Decimal("100.0")]


def test_a_sum_of_the_widest_decimals_that_does_not_fit_is_null_too() -> None:
    limbs = limbs_of(pa.array([Decimal(10**38 - 1)] * 4, pa.decimal128(38, 0)))
    assert exact.decimals(limbs, pa.decimal128(38, 0)).to_pylist() == [None]

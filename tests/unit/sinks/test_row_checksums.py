"""G27. No flipped bit of a value leaves the checksum of its row as it was."""

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sinks.row_checksums import checksums, factors, reaches_upper_half

LENGTHS = [0, 1, 7, 8, 9, 16, 63, 64, 65, 200]


def of(*columns: pa.Array) -> list[int]:
    return checksums(columns, len(columns[0])).tolist()


def flipped(value: bytes) -> list[bytes]:
    """The value itself, then with each of its bits flipped."""
    whole = int.from_bytes(value, "little")
    return [value, *((whole ^ 1 << bit).to_bytes(len(value), "little") for bit in range(8 * len(value)))]


def alone(found: list[int]) -> bool:
    """Whether no other row has the checksum of the first."""
    return found.count(found[0]) == 1


def test_no_factor_lets_a_flipped_bit_vanish_in_any_sum() -> None:
    for column in range(60):
        assert all(reaches_upper_half(bit, int(factor)) for factor in factors(column) for bit in range(64))


@given(value=st.binary(min_size=8, max_size=8), column=st.integers(0, 9))
def test_every_flipped_bit_of_a_number_is_noticed_in_any_column(value: bytes, column: int) -> None:
    words = pa.array(np.frombuffer(b"".join(flipped(value)), "<i8"))
    others = [pa.array([7] * len(words))] * column
    assert alone(of(*others, words, *others))


@pytest.mark.parametrize("length", LENGTHS)
def test_every_flipped_bit_of_text_or_bytes_is_noticed(length: int) -> None:
    texts = pa.array(flipped(bytes(i * 37 % 251 for i in range(length))), pa.binary())
    assert alone(of(texts))


def test_every_flipped_bit_of_a_decimal_is_noticed() -> None:
    words = b"".join(flipped((-12345).to_bytes(16, "little", signed=True)))
    assert alone(of(pa.Array.from_buffers(pa.decimal128(38, 2), len(words) // 16, [None, pa.py_buffer(words)])))


def test_null_nothing_zero_and_their_kin_are_all_different() -> None:
    assert len(set(of(pa.array([None, 0, 1, -1, 2**63 - 1, -(2**63)], pa.int64())))) == 6
    assert len(set(of(pa.array([None, 0.0, -0.0, float("nan"), float("inf"), float("-inf")])))) == 6
    assert len(set(of(pa.array([None, b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 80], pa.binary())))) == 6


def test_two_signs_that_change_and_two_values_that_change_places_are_noticed() -> None:
    a, b = pa.array([1.5, -1.5, 2.5]), pa.array([2.5, -2.5, 1.5])
    assert len(set(of(a, b))) == 3


def test_columns_that_are_null_at_the_end_change_nothing() -> None:
    a = pa.array(["x", "yy", None])
    assert of(a) == of(a, pa.nulls(3, pa.int64()), pa.nulls(3, pa.string()))


@given(values=st.lists(st.none() | st.binary(max_size=90), min_size=1, max_size=12), first=st.integers(0, 11))
def test_a_row_has_the_same_checksum_wherever_a_batch_is_cut(values: list[Any], first: int) -> None:
    columns = [pa.array(values, pa.binary()), pa.array([None if v is None else len(v) for v in values], pa.int64())]
    assert of(*columns)[first:] == of(*(column.slice(first) for column in columns))


def test_the_numbers_are_those_of_the_file_format() -> None:
    columns = [
        pa.array([1, None]),
        pa.array([1.5, float("nan")]),
        pa.array(["Penstock", "a text that is longer than sixty-four bytes, so that its end counts as a CRC"]),
        pa.array([decimal.Decimal("12.50"), None], pa.decimal128(12, 2)),
        pa.array([dt.date(2024, 1, 15), None]).cast(pa.int32()).cast(pa.int64()),
    ]
    assert of(*columns) == [532415170, 3003714478]

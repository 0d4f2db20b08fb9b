"""Positions of derived rows compare as the tuples they stand for."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.position import Position, pair_positions, source_positions, union_positions, window_positions

TEXT = st.one_of(st.none(), st.text(st.sampled_from("\x00\x01\x02aé"), max_size=4))
KEYS = st.lists(st.tuples(TEXT, st.one_of(st.none(), st.integers(-3, 3)), st.integers(-5, 5)), min_size=1, max_size=12)


def ranked(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(ranked, value))
    return (0, 0) if value is None else (1, value.encode() if isinstance(value, str) else value)


def windows_of(keys: list[tuple[Any, ...]]) -> list[bytes]:
    by = [pa.array([k[0] for k in keys], pa.string()), pa.array([k[1] for k in keys], pa.int32())]
    return window_positions(by, np.array([k[2] for k in keys], np.int64)).to_pylist()


@given(KEYS)
def test_windows_are_ordered_by_their_keys_and_start(keys: list[tuple[Any, ...]]) -> None:
    by_bytes = [k for _, k in sorted(zip(windows_of(keys), map(ranked, keys), strict=True))]
    assert by_bytes == sorted(map(ranked, keys))


@given(KEYS, st.data())
def test_pairs_are_ordered_by_the_left_then_the_right_side(keys: list[tuple[Any, ...]], data: st.DataObject) -> None:
    choice = st.lists(st.integers(0, len(keys) - 1), min_size=3, max_size=3)
    li, ri = (np.array(data.draw(choice), np.int64) for _ in range(2))
    sides = pa.array(windows_of(keys), pa.binary())
    alone = pair_positions(sides, li, None, None).to_pylist() + pair_positions(None, None, sides, ri).to_pylist()
    pairs = pair_positions(sides, li, sides, ri).to_pylist() + alone
    meant = [((1, ranked(keys[a])), (1, ranked(keys[b]))) for a, b in zip(li, ri, strict=True)]
    meant += [((1, ranked(keys[a])), (0,)) for a in li] + [((0,), (1, ranked(keys[b]))) for b in ri]
    assert [m for _, m in sorted(zip(pairs, meant, strict=True))] == sorted(meant)


@pytest.mark.parametrize(
    ("t", "values"),
    [
        (pa.float64(), [float("-inf"), -1.5, 0.0, 1e-9, 2.0, float("inf")]),
        (pa.decimal128(20, 2), [Decimal("-10.00"), Decimal("-0.01"), Decimal("0.00"), Decimal("99.99")]),
        (pa.bool_(), [False, True]),
        (pa.date32(), [-3, 0, 7]),
        (pa.binary(), [b"", b"\x00", b"\x00\x00", b"\x01", b"a"]),
        (pa.list_(pa.int64()), [[1], [2], [3, 4]]),
    ],
)
def test_every_type_of_key_keeps_its_order_and_null_comes_first(t: pa.DataType, values: list[Any]) -> None:
    column = pa.array([None, *values], pa.int32() if pa.types.is_date32(t) else t).cast(t)
    positions = window_positions([column], np.zeros(len(column), np.int64)).to_pylist()
    assert positions == sorted(positions)
    assert len(set(positions)) == len(positions)


def test_pairs_of_source_rows_are_fixed_in_width_and_right() -> None:
    left, right = source_positions("orders", 1, np.arange(300)), source_positions("payments", 0, np.arange(300))
    (pair,) = pair_positions(left.slice(7), np.array([250]), right, np.array([3])).to_pylist()
    assert pair == b"p" + Position("orders", 1, 257).encode() + Position("payments", 0, 3).encode()
    assert Position.decode(pair) is None


def test_a_row_alone_has_another_position_on_either_side() -> None:
    rows, one = source_positions("orders", 0, np.arange(3)), np.array([1])
    of_left, of_right = pair_positions(rows, one, None, None), pair_positions(None, None, rows, one)
    assert of_left.to_pylist() == [b"p" + Position("orders", 0, 1).encode() + b"\x00"]
    assert of_right.to_pylist() == [b"p\x00" + Position("orders", 0, 1).encode()]


def test_a_union_adds_the_number_of_its_input_behind_the_position() -> None:
    given = source_positions("t", 0, np.array([5]))
    assert union_positions(given, 3).to_pylist() == [b"u" + Position("t", 0, 5).encode() + b"\x00\x00\x00\x03"]


def test_no_rows_have_no_positions() -> None:
    none = pa.array([], pa.binary())
    assert union_positions(none, 0).to_pylist() == []
    assert pair_positions(none, np.zeros(0, np.int64), none, np.zeros(0, np.int64)).to_pylist() == []
    assert window_positions([], np.zeros(0, np.int64)).to_pylist() == []

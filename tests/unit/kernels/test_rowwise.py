"""Steps without state keep time, watermark and position."""

import pyarrow as pa

from penstock.core.columns import POSITION, TIME, WATERMARK
from penstock.kernels.rowwise import as_input, keep_where, with_columns

ROWS = pa.table(
    {
        "a": pa.array([1, 2, 3]),
        TIME: pa.array([10, 20, 30]),
        WATERMARK: pa.array([5, 6, 7]),
        POSITION: pa.array([b"s1", b"s2", b"s3"], pa.binary()),
    }
)


def test_false_and_null_are_filtered_and_counted() -> None:
    kept, fates = keep_where(ROWS, pa.array([True, False, None]))
    assert kept.to_pylist() == ROWS.slice(0, 1).to_pylist()
    assert fates == {"passed": 1, "filtered": 2}


def test_a_selected_row_keeps_what_the_system_knows_of_it() -> None:
    selected = with_columns(ROWS, [("b", pa.array(["x", "y", "z"]))])
    assert selected.column_names == ["b", TIME, WATERMARK, POSITION]
    assert selected.slice(2).to_pylist() == [{"b": "z", TIME: 30, WATERMARK: 7, POSITION: b"s3"}]


def test_a_row_may_come_into_a_union_by_two_ways() -> None:
    first, second = (as_input(ROWS, i)[POSITION].to_pylist() for i in (0, 1))
    assert not set(first) & set(second)
    assert sorted(first + second) == [p for pair in zip(first, second, strict=True) for p in pair]


def test_rows_without_a_position_go_through_a_union_as_they_are() -> None:
    assert as_input(ROWS.drop_columns([POSITION]), 1).equals(ROWS.drop_columns([POSITION]))

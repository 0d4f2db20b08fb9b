"""Positions compare as the order of ties."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.position import Position, escape, position_text, source_positions, union_positions, window_positions

topics = st.text("abc.-_XYZ019", min_size=1, max_size=6)
positions = st.builds(Position, topics, st.integers(0, 1000), st.integers(0, 2**40))


@given(positions, positions)
def test_bytes_compare_as_topic_partition_offset(a: Position, b: Position) -> None:
    assert (a.encode() < b.encode()) == (a < b)
    assert Position.decode(a.encode()) == a


@given(st.lists(st.integers(0, 2**43), min_size=1), st.integers(0, 99))
def test_many_positions_are_those_of_each(offsets: list[int], partition: int) -> None:
    made = source_positions("orders", partition, np.array(offsets, np.int64)).to_pylist()
    assert made == [Position("orders", partition, o).encode() for o in offsets]


def test_records_of_several_partitions_may_come_together() -> None:
    offsets = np.array([5, 0, 2**40], np.int64)
    made = source_positions("orders", np.array([0, 7, 1], np.int64), offsets).to_pylist()
    assert made == [Position("orders", p, o).encode() for p, o in ((0, 5), (7, 0), (1, 2**40))]


@given(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), st.tuples(st.binary(max_size=4), st.binary(max_size=4)))
def test_escaped_parts_compare_as_tuples(a: tuple[bytes, bytes], b: tuple[bytes, bytes]) -> None:
    assert (escape(a[0]) + escape(a[1]) < escape(b[0]) + escape(b[1])) == (a < b)


def test_a_derived_position_names_no_record() -> None:
    assert Position.decode(escape(b"x") + escape(b"y")) is None


def test_positions_are_told_as_people_write_them() -> None:
    assert position_text(Position("orders", 3, 12).encode()) == "orders/3@12"
    assert position_text(Position("a\u00e9", 0, 2**40).encode()) == f"a\u00e9/0@{2**40}"
    inner = source_positions("orders", 1, np.array([7]))
    assert position_text(union_positions(inner, 2)[0].as_py()) == "orders/1@7"
    window = window_positions([pa.array(["x"])], np.array([5]))[0].as_py()
    assert position_text(window).startswith("window ")

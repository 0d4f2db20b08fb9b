"""Positions compare as the order of ties."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.position import (
    Position,
    binlog_place,
    database_positions,
    escape,
    position_text,
    position_texts,
    source_positions,
    union_positions,
    wal_place,
    window_positions,
)

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


lsns = st.integers(0, 2**64 - 1)
logs = st.tuples(st.sampled_from(["mysql-bin.", "bin\x00log."]), st.integers(0, 10**7), st.integers(0, 2**40), st.integers(0, 99))


def placed(place: bytes | None, offset: int) -> bytes:
    own = source_positions("users", 0, np.array([offset], np.int64))
    made: bytes = database_positions(pa.array([place], pa.binary()), own)[0].as_py()
    return made


@given(st.tuples(lsns, st.integers(0, 99)), st.tuples(lsns, st.integers(0, 99)))
def test_a_place_in_a_write_ahead_log_comes_before_the_record_and_is_no_id_of_its_own(
    a: tuple[int, int], b: tuple[int, int]
) -> None:
    one, other = (placed(wal_place(lsn), offset) for lsn, offset in (a, b))
    assert (one < other) == (a < b)
    assert Position.decode(one) == Position("users", 0, a[1])
    assert position_text(one) == f"users/0@{a[1]} (lsn {a[0]})"


@given(logs, logs)
def test_places_in_a_binary_log_compare_by_the_number_of_their_file(
    a: tuple[str, int, int, int], b: tuple[str, int, int, int]
) -> None:
    one, other = (placed(binlog_place(f"{name}{number:06}", at, row), 3) for name, number, at, row in (a, b))
    if a[0] == b[0]:
        assert (one < other) == (a[1:] < b[1:])
    assert Position.decode(one) == Position("users", 0, 3)
    row = f" row {a[3]}" if a[3] else ""
    assert position_text(one) == f"users/0@3 ({a[0]}{a[1]:06}:{a[2]}{row})"


def test_a_record_without_a_place_keeps_its_own_position_and_one_that_must_not_win_stands_first() -> None:
    assert placed(None, 5) == Position("users", 0, 5).encode()
    first = placed(b"\x00", 7)
    assert first < placed(wal_place(0), 0)
    assert Position.decode(first) == Position("users", 0, 7)
    assert position_text(first) == "users/0@7 (no place)"


@given(st.lists(st.one_of(positions.map(Position.encode), st.just(b"w\x01" + b"k" * 20)), max_size=8), st.booleans())
def test_many_texts_are_those_of_each(made: list[bytes], one_topic: bool) -> None:
    if one_topic:
        made = [Position("orders", number, 2**40 - number).encode() for number in range(len(made))]
    for given_positions in (pa.array(made, pa.binary()), pa.array([b"", *made], pa.binary()).slice(1)):
        assert position_texts(given_positions).to_pylist() == [position_text(position) for position in made]

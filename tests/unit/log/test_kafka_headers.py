"""What rows say of themselves goes into headers and comes back."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.columns import EVENT_TIME, HEADERS, OP, POSITION, WATERMARK
from penstock.core.schema import TIMESTAMP
from penstock.log.kafka.headers import deletes_in, marks_of, row_headers, system_columns
from penstock.log.kafka.read.fetching import Headers

times = st.integers(-(10**15), 10**16)
rows = st.lists(st.tuples(times, st.binary(max_size=30), st.none() | times), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(rows, st.integers(0, 3), st.integers(0, 2))
def test_time_position_and_watermark_of_a_flows_rows_come_back(
    given: list[tuple[int, bytes, int | None]], skip: int, more: int
) -> None:
    """Also where other records stand among them, and where the array is a part of a larger one."""
    time, origin, judged = (list(column) for column in zip(*given, strict=True))
    columns = {EVENT_TIME: pa.array(time, pa.int64()).cast(TIMESTAMP), POSITION: pa.array(origin, pa.binary())}
    found = row_headers(pa.record_batch(columns | {WATERMARK: pa.array(judged, pa.int64())}))
    assert found is not None
    headers = Headers.of({2 * i: row for i, row in enumerate(found) if row})
    count = 2 * len(given) + more
    headers = headers.where(headers.rows >= 2 * min(skip, len(given) - 1))
    back = system_columns(headers, count, flow=True, timed=False)
    expected: list[list[Any]] = [[None] * count for _ in range(3)]
    for i, row in enumerate(given):
        if i >= min(skip, len(given) - 1):
            for column, value in zip(expected, row, strict=True):
                column[2 * i] = value
    assert [back[EVENT_TIME].cast(pa.int64()).to_pylist(), back[POSITION].to_pylist(), back[WATERMARK].to_pylist()] == expected


def test_a_header_that_is_too_short_to_be_a_flows_is_not_taken_for_one() -> None:
    headers = Headers.of({0: [("penstock-row", b"short")], 1: [("penstock-row", None)]})
    assert system_columns(headers, 2, flow=True, timed=True) == {}


def test_event_times_deletes_and_headers_of_users_come_back() -> None:
    given = pa.record_batch(
        {
            EVENT_TIME: pa.array([5, None, -7], TIMESTAMP),
            OP: pa.array([None, 3, None], pa.int8()),
            HEADERS: pa.array([[("a", b"1"), ("a", None)], None, []], pa.map_(pa.string(), pa.binary())),
        }
    )
    found = Headers.of({i: row for i, row in enumerate(row_headers(given) or ()) if row})
    back = system_columns(found, 3, flow=False, timed=True)
    assert back[EVENT_TIME].cast(pa.int64()).to_pylist() == [5, None, -7]
    assert back[HEADERS].to_pylist() == [[("a", b"1"), ("a", None)], None, None]
    assert deletes_in(found) == {1}


def test_headers_of_messages_are_not_the_logs_own() -> None:
    headers = Headers.of(
        {0: [("penstock-message", b"1"), ("penstock-sender", b"2"), ("penstock-dead", b"3"), ("penstock-op", b"x")]}
    )
    back = system_columns(headers, 1, flow=False, timed=True)
    assert back[HEADERS].to_pylist() == [[("penstock-message", b"1"), ("penstock-dead", b"3")]]


def test_a_time_that_somebody_else_wrote_and_is_none_is_passed_over() -> None:
    headers = Headers.of({0: [("penstock-time", b"soon")], 1: [("penstock-time", b"17")], 2: [("penstock-mark", b"never")]})
    assert system_columns(headers, 3, flow=False, timed=True)[EVENT_TIME].cast(pa.int64()).to_pylist() == [None, 17, None]
    assert marks_of(headers) == {}


def test_the_last_of_several_headers_of_one_name_counts() -> None:
    headers = Headers.of({0: [("penstock-mark", b"1"), ("penstock-mark", b"2")], 4: [("penstock-mark", b"3")]})
    assert marks_of(headers) == {0: 2, 4: 3}

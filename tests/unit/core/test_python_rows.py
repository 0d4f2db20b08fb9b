"""Rows of Arrow as Python's values."""

import pyarrow as pa
import pytest

from penstock import Flow
from penstock.core.python_rows import python_rows
from penstock.core.schema import TIMESTAMP
from penstock.errors import BadTime


def test_a_time_beyond_the_year_9999_is_named_with_its_column_and_row() -> None:
    table = pa.table({"id": ["a", "b"], "at": pa.array([0, 400_000_000_000_000_000], TIMESTAMP)})
    with pytest.raises(BadTime, match="column 'at' of view v has a time that Python's datetime cannot hold") as raised:
        python_rows(table, "view v")
    assert raised.value.detail == ("row 1: 400000000000000000 microseconds since 1970, timestamp",)
    assert "9999" in str(raised.value.hint)


def test_rows_under_test_say_it_too() -> None:
    flow = Flow("years")
    flow.stream("events", "id string, until timestamp").view("events")
    with flow.test() as t:
        t.send("events", {"id": "b"})
        far = pa.table({"id": ["a"], "until": pa.array([400_000_000_000_000_000], TIMESTAMP)})
        t.log.topic("events").append(0, far.to_batches()[0])
        t.epoch()
        with pytest.raises(BadTime, match="column 'until' of view events"):
            t.rows("events")

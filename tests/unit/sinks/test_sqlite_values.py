"""Arrow values survive SQLite."""

import contextlib
import datetime as dt
import decimal
import math
import sqlite3

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.schema import TIMESTAMP, Schema
from penstock.sinks.sqlite_values import affinity, from_sqlite, to_sqlite

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_MOMENT = st.datetimes(timezones=st.just(dt.UTC))
_DECIMAL = st.decimals(min_value=-(10**10), max_value=10**10, places=4, allow_nan=False)
_VALUES = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": _TEXT,
    "binary": st.binary(max_size=20),
    "date": st.dates(),
    "timestamp": _MOMENT,
    "decimal(20,4)": _DECIMAL,
    "array<double>": st.lists(st.none() | st.floats(), max_size=3),
    "map<string,long>": st.lists(
        st.tuples(_TEXT, st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=3, unique_by=lambda p: p[0]
    ),
    "struct<a:timestamp,b:binary,c:decimal(20,4),d:date,e:array<boolean>>": st.fixed_dictionaries(
        {
            "a": _MOMENT,
            "b": st.none() | st.binary(max_size=5),
            "c": _DECIMAL,
            "d": st.dates(),
            "e": st.lists(st.booleans(), max_size=2),
        }
    ),
}


def _through_sqlite(column: pa.Array, key: bool) -> pa.Array:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE t (n INTEGER PRIMARY KEY, v {affinity(column.type)})")
        connection.executemany("INSERT INTO t (v) VALUES (?)", ((v,) for v in to_sqlite(column, key)))
        values = [v for (v,) in connection.execute("SELECT v FROM t ORDER BY n")]
        assert not (key and None in values)
        return from_sqlite(values, column.type, key)


@pytest.mark.parametrize("ddl", _VALUES)
@given(data=st.data(), key=st.booleans())
def test_every_value_comes_back_as_it_was(ddl: str, data: st.DataObject, key: bool) -> None:
    column = pa.array(data.draw(st.lists(st.none() | _VALUES[ddl], max_size=6)), Schema.of(f"v {ddl}").type("v"))
    # By their text: NaN is not equal to itself, and -0.0 is not 0.0.
    assert repr(_through_sqlite(column, key).to_pylist()) == repr(column.to_pylist())


def test_doubles_that_sqlite_would_change_are_kept() -> None:
    column = pa.array([math.nan, -0.0, math.inf, -math.inf, None, 1e300], pa.float64())
    assert repr(_through_sqlite(column, key=False).to_pylist()) == repr(column.to_pylist())


def test_null_and_empty_are_two_keys() -> None:
    for column in (pa.array(["", None]), pa.array([b"", None])):
        assert _through_sqlite(column, key=True).to_pylist() == column.to_pylist()


def test_people_who_open_the_database_find_plain_values() -> None:
    assert to_sqlite(pa.array([dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)], TIMESTAMP)) == [1_000_000]
    assert to_sqlite(pa.array([dt.date(1970, 1, 3)])) == [2]
    assert to_sqlite(pa.array([True, False])) == [1, 0]
    assert to_sqlite(pa.array([decimal.Decimal("1.50")])) == ["1.50"]
    assert to_sqlite(pa.array([["a"]])) == ['["a"]']

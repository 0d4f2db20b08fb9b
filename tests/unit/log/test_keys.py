"""The columns of a key are found again in the bytes of a record's key."""

import datetime as dt
import decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.schema import Schema
from penstock.log.intake.keys import key_row
from penstock.log.intake.text import key_bytes

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda text: not text.startswith("{")),
    "boolean": st.booleans(),
    "timestamp": st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC)),
    "date": st.dates(),
    "decimal(20,4)": st.decimals(-(10**12), 10**12, places=4),
    "binary": st.binary(max_size=8).filter(lambda data: not data.startswith(b"{")),
    "double": st.floats(allow_nan=False, allow_infinity=False),
}


@st.composite
def keys(draw: st.DrawFn) -> tuple[Schema, tuple[Any, ...]]:
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    schema = Schema.of(", ".join(f"c{i} {t}" for i, t in enumerate(types)))
    return schema, tuple(draw(VALUES[t]) for t in types)


@given(keys())
def test_what_key_bytes_wrote_is_read_back(made: tuple[Schema, tuple[Any, ...]]) -> None:
    schema, values = made
    table = pa.table([pa.array([v], f.type) for v, f in zip(values, schema, strict=True)], schema=schema.arrow)
    row = key_row(key_bytes(table, schema.names)[0].as_py(), schema.names, schema)
    assert isinstance(row, dict), row
    read = pa.table([pa.array([row[f.name]], f.type) for f in schema], schema=schema.arrow)
    assert read == table


def test_a_json_object_with_the_columns_is_a_key_too() -> None:
    schema = Schema.of("user_id long, country string")
    for key in ({"user_id": 7, "country": "DE", "more": 1}, {"schema": {}, "payload": {"country": "DE", "user_id": "7"}}):
        assert key_row(orjson.dumps(key), ["user_id", "country"], schema) == {"user_id": 7, "country": "DE"}


def test_text_that_is_json_is_still_the_text_of_a_text_column() -> None:
    schema = Schema.of("name string")
    for text in ('{"other": 1}', "[1]", "7", "null", '"x"'):
        assert key_row(text.encode(), ["name"], schema) == {"name": text}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, "it has no key"),
        (b"x", "its key does not hold user_id, country"),
        (b"[1]", "its key does not hold user_id, country"),
        (b'{"user_id": 1}', "its key does not hold user_id, country"),
        (b'["x", "DE"]', "its key does not fit: column 'user_id' wants long"),
    ],
)
def test_a_key_that_does_not_say_the_columns_is_told_why(key: bytes | None, reason: str) -> None:
    said = key_row(key, ["user_id", "country"], Schema.of("user_id long, country string"))
    assert isinstance(said, str)
    assert reason.removeprefix("its key ") in said


def test_bytes_that_are_no_text_fit_no_other_column_than_binary() -> None:
    assert "does not fit" in str(key_row(b"\xff\xfe", ["id"], Schema.of("id long")))
    assert "does not fit" in str(key_row(b"\xff\xfe", ["id"], Schema.of("id string")))
    assert key_row(b"\xff\xfe", ["id"], Schema.of("id binary")) == {"id": b"\xff\xfe"}


def test_decimals_keep_their_digits() -> None:
    row = key_row(b"12.3400", ["price"], Schema.of("price decimal(10,4)"))
    assert row == {"price": decimal.Decimal("12.34")}

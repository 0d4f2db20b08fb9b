"""Rows into Arrow and back: what fits is exact, what does not is refused with a reason that names the column."""

import base64
import datetime as dt
import decimal

import numpy as np
import orjson
import pyarrow as pa
import pytest

from penstock.core.columns import EVENT_TIME
from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import micros
from penstock.log.intake.codec import decode_json, encode_json, event_times, key_bytes, to_batch
from penstock.log.port import TopicSpec

ORDERS = Schema.of("order_id string, user_id long, amount double, at timestamp")


def decode(schema: str, *values: object) -> tuple[list[dict[str, object]], dict[int, str]]:
    texts = [v if isinstance(v, bytes) else orjson.dumps(v) for v in values]
    decoded = decode_json(pa.array(texts, pa.binary()), Schema.of(schema))
    assert len(decoded.kept) == decoded.table.num_rows
    assert sorted([*decoded.kept.tolist(), *(r.index for r in decoded.rejected)]) == list(range(len(values)))
    return decoded.table.to_pylist(), {r.index: r.reason for r in decoded.rejected}


def test_plain_rows_become_columns_of_the_schema() -> None:
    row = {"order_id": "o1", "user_id": 7, "amount": 2, "at": "2024-01-15T10:30:00Z", "extra": [1]}
    decoded = decode_json(pa.chunked_array([[orjson.dumps(row)], [orjson.dumps(row)]], pa.binary()), ORDERS)
    at = dt.datetime(2024, 1, 15, 10, 30, tzinfo=dt.UTC)
    assert decoded.table.schema == ORDERS.arrow
    assert decoded.table.to_pylist() == [{"order_id": "o1", "user_id": 7, "amount": 2.0, "at": at}] * 2


def test_string_arrays_are_read_like_binary_ones() -> None:
    assert decode_json(pa.array(['{"a": "é"}']), Schema.of("a string")).table.to_pylist() == [{"a": "é"}]


def test_no_rows_make_an_empty_table() -> None:
    decoded = decode_json(pa.array([], pa.binary()), ORDERS)
    assert decoded.table.schema == ORDERS.arrow
    assert (decoded.table.num_rows, len(decoded.kept), decoded.rejected) == (0, 0, [])


@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        ("a int", 1.0, 1),
        ("a int", "12", 12),
        ("a int", "1.0", 1),
        ("a int", "1e3", 1000),
        ("a long", -(2**63), -(2**63)),
        ("a long", "9223372036854775807", 2**63 - 1),
        ("a double", "1.5", 1.5),
        ("a double", 2**53 + 1, float(2**53)),
        ("a double", "-1E-3", -0.001),
        ("a float", 0.5, 0.5),
        ("a boolean", False, False),
        ("a string", "\x00\U0001f600", "\x00\U0001f600"),
        ("a binary", base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        ("a date", "2024-02-29", dt.date(2024, 2, 29)),
        ("a decimal(10,2)", "12.30", decimal.Decimal("12.30")),
        (
            "a decimal(38,0)",
            b'{"a": 12345678901234567890123456789012345678}',
            decimal.Decimal("12345678901234567890123456789012345678"),
        ),
        (
            "a decimal(38,18)",
            b'{"a": 12345678901234567.890123456789012345}',
            decimal.Decimal("12345678901234567.890123456789012345"),
        ),
        ("a array<int>", [1, None, "3"], [1, None, 3]),
        ("a struct<x:int,y:string>", {"x": 1, "z": 2}, {"x": 1, "y": None}),
        ("a map<string,long>", {"k": 1}, [("k", 1)]),
        ("a map<int,string>", {"1": "x"}, [(1, "x")]),
        ("a array<struct<d:decimal(5,1)>>", b'{"a": [{"d": 1.1}]}', [{"d": decimal.Decimal("1.1")}]),
    ],
)
def test_values_are_taken_exactly(schema: str, value: object, wanted: object) -> None:
    assert decode(schema, value if isinstance(value, bytes) else {"a": value}) == ([{"a": wanted}], {})


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-15T10:30:00Z",
        "2024-01-15T10:30:00",
        "2024-01-15 10:30:00.000",
        "2024-01-15T11:30:00+01:00",
        "2024-01-15T10:30Z",
        "20240115T103000Z",
    ],
)
def test_times_without_zone_are_utc_and_others_are_moved_to_it(text: str) -> None:
    assert decode("a timestamp", {"a": text}) == ([{"a": dt.datetime(2024, 1, 15, 10, 30, tzinfo=dt.UTC)}], {})


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("a int", 1.5, "column 'a' wants int, found the number 1.5: it has a fraction"),
        ("a int", 2**31, "column 'a' wants int, found the number 2147483648: out of range"),
        ("a long", 2**63, "column 'a' wants long, found the number 9223372036854775808: out of range"),
        ("a long", 9007199254740994.0, "column 'a' wants long, found the number 9007199254740994.0: too large to be exact"),
        ("a int", True, "column 'a' wants int, found true"),
        ("a int", "1_000", "column 'a' wants int, found the text '1_000'"),
        ("a int", " 1", "column 'a' wants int, found the text ' 1'"),
        ("a int", "1e999999", "column 'a' wants int, found the text '1e999999': out of range"),
        ("a int", "9" * 5000, "column 'a' wants int, found the text '" + "9" * 38 + "…"),
        ("a double", "NaN", "column 'a' wants double, found the text 'NaN'"),
        ("a double", "1e400", "column 'a' wants double, found the text '1e400': out of range"),
        ("a float", 1e300, "column 'a' wants float, found the number 1e+300: out of range"),
        ("a boolean", 1, "column 'a' wants boolean, found the number 1"),
        ("a boolean", "true", "column 'a' wants boolean, found the text 'true'"),
        ("a string", 5, "column 'a' wants string, found the number 5"),
        ("a string", {"b": 1}, "column 'a' wants string, found an object"),
        ("a binary", "%%%", "column 'a' wants binary, found the text '%%%': write bytes as base64"),
        ("a date", "2023-02-29", "column 'a' wants date, found the text '2023-02-29': there is no such day"),
        ("a decimal(4,2)", 1.234, "column 'a' wants decimal(4,2), found the number 1.234: more than 2 digits after the point"),
        ("a decimal(4,2)", 100, "column 'a' wants decimal(4,2), found the number 100: out of range"),
        ("a array<int>", [1, "x"], "column 'a' wants array<int>, found a list: at [1] it wants int, found the text 'x'"),
        ("a array<int>", "12", "column 'a' wants array<int>, found the text '12'"),
        ("a struct<x:int not null>", {}, "column 'a' wants struct<x:int>, found an object: at .x it wants int, found nothing"),
        (
            "a map<int,int>",
            {"k": 1},
            "column 'a' wants map<int,int>, found an object: at key 'k' it wants int, found the text 'k'",
        ),
        ("a map<string,int>", [1], "column 'a' wants map<string,int>, found a list"),
        ("a struct<x:int>", 5, "column 'a' wants struct<x:int>, found the number 5"),
        (
            "a struct<x:array<int>>",
            {"x": [None, []]},
            "column 'a' wants struct<x:array<int>>, found an object: at .x[1] it wants int, found a list",
        ),
        ("a int not null", None, "column 'a' wants int, found null: it must not be null"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(schema: str, value: object, reason: str) -> None:
    rows, rejected = decode(schema, {"a": value})
    assert rows == []
    assert list(rejected) == [0]
    assert rejected[0].startswith(reason)


@pytest.mark.parametrize(
    "value", [1700000000, 1700000000000, "1700000000", "yesterday", True, "2024-13-01T00:00:00Z", "0000-01-01T00:00:00"]
)
def test_times_that_are_no_iso_text_are_refused_with_a_hint(value: object) -> None:
    rows, rejected = decode("a timestamp", {"a": value})
    assert rows == []
    assert rejected[0].endswith('write times as text, like "2024-01-15T10:30:00Z"')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON: an empty line"),
        (b"   ", "not JSON: an empty line"),
        (b"{", "not JSON: "),
        (b'{"a": NaN}', "not JSON: "),
        (b'{"a": Infinity}', "not JSON: "),
        (b'{"a": 1}{"a": 2}', "not JSON: "),
        (b'{"a": "\xff"}', "not UTF-8: byte 0xff at column 8"),
        (b'{"a": "\\ud800"}', "not JSON: "),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON: depth limit exceeded"),
        (b"[1]", "wants a JSON object, found a list"),
        (b"null", "wants a JSON object, found null"),
        (b"12", "wants a JSON object, found the number 12"),
    ],
)
def test_values_that_are_no_object_are_refused(text: bytes, reason: str) -> None:
    rows, rejected = decode("a int", b'{"a": 1}', text, b'{"a": 3}')
    assert rows == [{"a": 1}, {"a": 3}]
    assert rejected[1].startswith(reason)


def test_a_null_value_and_a_missing_field_are_told_apart() -> None:
    decoded = decode_json(pa.array([None, b"{}", b'{"a": null}'], pa.binary()), Schema.of("a int not null"))
    assert [r.reason for r in decoded.rejected] == [
        "wants a JSON object, found no value",
        "column 'a' wants int, found nothing: it must not be null",
        "column 'a' wants int, found null: it must not be null",
    ]


def test_deep_nesting_beside_a_decimal_is_refused_and_does_not_overflow_the_stack() -> None:
    deep = b'{"d": 1.5, "x": ' + b"[" * 1000 + b"]" * 1000 + b"}"
    rows, rejected = decode("d decimal(5,1)", deep, b'{"d": 2.5}')
    assert {"d": decimal.Decimal("2.5")} in rows
    assert len(rows) + len(rejected) == 2


def test_python_rows_may_hold_python_values() -> None:
    schema = Schema.of("at timestamp, day date, d decimal(5,2), b binary, n long, x double")
    at = dt.datetime(2024, 1, 15, 12, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    row = {"at": at, "day": dt.date(2024, 1, 15), "d": decimal.Decimal("1.5"), "b": b"\xff", "n": np.int64(3), "x": float("nan")}
    batch, rejected = to_batch([row, {**row, "at": at.replace(tzinfo=None)}], schema)
    assert rejected == []
    assert batch.schema == schema.arrow
    assert [micros(t) for t in batch.column("at").to_pylist()] == [micros(at), micros(at) + 7_200_000_000]
    assert batch.column("d").to_pylist() == [decimal.Decimal("1.50")] * 2
    assert batch.column("n").to_pylist() == [3, 3]
    assert np.isnan(batch.column("x").to_pylist()[0])


def test_python_rows_that_do_not_fit_are_refused_by_place() -> None:
    batch, rejected = to_batch([{"a": 1}, {"a": object()}, {"a": dt.datetime(2024, 1, 1)}], Schema.of("a int"))
    assert batch.num_rows == 1
    assert [(r.index, r.reason) for r in rejected] == [
        (1, "column 'a' wants int, found a Python object"),
        (2, "column 'a' wants int, found a Python datetime"),
    ]
    assert to_batch([], Schema.of("a int"))[0].num_rows == 0
    assert to_batch([{"a": np.float64(1.5)}], Schema.of("a int"))[1][0].reason.endswith("found the number 1.5: it has a fraction")
    assert to_batch([{"a": {None: 1}}], Schema.of("a map<string,int>"))[1][0].reason.endswith("the key of a map is never null")
    assert to_batch([{"a": "\ud800"}], Schema.of("a string"))[1][0].reason.endswith("half of a surrogate pair is no text")


def test_rows_are_written_as_json_that_every_reader_takes() -> None:
    table = pa.table(
        {
            "t": pa.array([0, 1_500_000, None], TIMESTAMP),
            "day": pa.array([dt.date(2024, 1, 15)] * 3),
            "d": pa.array([decimal.Decimal("1.20"), decimal.Decimal("0.0000001"), None], pa.decimal128(20, 10)),
            "b": pa.array([b"\x00\xff", b"", None]),
            "x": pa.array([1.5, float("nan"), float("inf")]),
            "n": pa.array(
                [[{"t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}, None], [], None], pa.list_(pa.struct([("t", TIMESTAMP)]))
            ),
            "m": pa.array([[(1, b"\x01")], [], None], pa.map_(pa.int64(), pa.binary())),
            "k": pa.array(["a", "b", None]).dictionary_encode(),
        }
    )
    assert [orjson.loads(text) for text in encode_json(table)] == [
        {
            "t": "1970-01-01T00:00:00Z",
            "day": "2024-01-15",
            "d": "1.2000000000",
            "b": "AP8=",
            "x": 1.5,
            "n": [{"t": "2024-01-01T00:00:00Z"}, None],
            "m": {"1": "AQ=="},
            "k": "a",
        },
        {
            "t": "1970-01-01T00:00:01.500000Z",
            "day": "2024-01-15",
            "d": "0.0000001000",
            "b": "",
            "x": None,
            "n": [],
            "m": {},
            "k": "b",
        },
        {"t": None, "day": "2024-01-15", "d": None, "b": None, "x": None, "n": None, "m": None, "k": None},
    ]
    assert encode_json(table.slice(0, 0)) == []


def test_keys_are_the_text_of_their_column() -> None:
    table = pa.table(
        {
            "n": [12, None],
            "s": ["é", None],
            "b": [b"\xff", None],
            "t": pa.array([1, None], TIMESTAMP),
            "x": [1.5, None],
            "o": [True, None],
            "d": pa.array([decimal.Decimal("1.20"), None], pa.decimal128(5, 2)),
        }
    )
    wanted = {
        "n": b"12",
        "s": "é".encode(),
        "b": b"\xff",
        "t": b"1970-01-01T00:00:00.000001Z",
        "x": b"1.5",
        "o": b"true",
        "d": b"1.20",
    }
    assert {name: key_bytes(table, name).to_pylist() for name in wanted} == {name: [key, None] for name, key in wanted.items()}
    assert key_bytes(table, ["n", "s"]).to_pylist() == ['[12,"é"]'.encode(), None]


def test_event_times_come_from_the_column_the_stored_time_or_the_append() -> None:
    typed = TopicSpec("t", schema=Schema.of("at timestamp"), time="at")
    batch = pa.record_batch({"at": pa.array([5, None], TIMESTAMP)})
    assert event_times(batch, typed, 9).tolist() == [5, 9]
    assert event_times(batch, TopicSpec("t", schema=typed.schema), 9).tolist() == [9, 9]
    stored = pa.record_batch({"value": [b"{}"], EVENT_TIME: pa.array([7], TIMESTAMP)})
    assert event_times(stored, TopicSpec("t", time="at"), 9).tolist() == [7]
    assert event_times(stored.select(["value"]), TopicSpec("t"), 9).dtype == np.int64

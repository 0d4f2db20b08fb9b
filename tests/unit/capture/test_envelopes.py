"""Debezium's envelope, made by columns, against one made by hand for each change."""

from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.port import CREATE, DELETE, READ, UPDATE, Changes, Transactions
from penstock.capture.writing.envelopes import Envelope, flat_key, wrapped
from penstock.capture.writing.orders import Orders
from penstock.core.arrow import values_in
from penstock.core.columns import EVENT_TIME, KEY, VALUE

TABLE = ("public", 'od"d\\ täble')
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
CHANGE = st.tuples(st.sampled_from([CREATE, UPDATE, DELETE]), st.integers(0, 9), TEXT, st.booleans(), st.integers(0, 2))


def transactions() -> Transactions:
    ids = pa.array(["7:100", "8:110", "snapshot:public.t:1"], pa.utf8())
    yes = np.ones(3, np.bool_)
    return Transactions(ids, np.array([7, 8, -1]), np.array([100, 110, 110]), np.array([1_000_001, 2_500_000, 2_500_000]), yes, yes)


def changes_of(rows: list[tuple[int, int, str, bool, int]]) -> Changes:
    def texts(values: list[Any]) -> pa.Array:
        return pa.array([None if value is None else orjson.dumps(value).decode() for value in values], pa.utf8())

    keys = texts([{"id": key} for _, key, *_ in rows])
    before = texts([{"id": key, "v": text} if known and op != CREATE else None for op, key, text, known, _ in rows])
    after = texts([{"id": key, "v": text} if op != DELETE else None for op, key, text, *_ in rows])
    transaction = np.array([at for *_, at in rows], np.int64)
    return Changes(TABLE, np.array([op for op, *_ in rows], np.uint8), keys, before, after, transaction, np.arange(len(rows)))


def numbered(count: int) -> Orders:
    return Orders(np.arange(1, count + 1), np.arange(1, count + 1) * 2)


@given(st.lists(CHANGE, min_size=1, max_size=12))
def test_records_are_those_made_by_hand(rows: list[tuple[int, int, str, bool, int]]) -> None:
    changes, of = changes_of(rows), transactions()
    made = Envelope("shop", "postgresql", "db").records(changes, numbered(len(rows)), of)
    times = made.column(EVENT_TIME).cast(pa.int64()).to_pylist()
    keys, values = values_in(made.column(KEY), bytes), made.column(VALUE).to_pylist()
    found = [(key.decode(), value and orjson.loads(value), time) for key, value, time in zip(keys, values, times, strict=True)]
    should: list[tuple[str, Any, int]] = []
    for i, (op, key, text, known, at) in enumerate(rows):
        row, time, xid = {"id": key, "v": text}, int(of.time[at]), int(of.xid[at])
        source: dict[str, Any] = {
            "version": version("penstock"),
            "connector": "postgresql",
            "name": "shop",
            "db": "db",
            "schema": TABLE[0],
        }
        source |= {"table": TABLE[1], "snapshot": "false", "ts_ms": time // 1000, "ts_us": time, "lsn": int(of.lsn[at])}
        value = {
            "before": row if known and op != CREATE else None,
            "after": row if op != DELETE else None,
            "source": source | {"txId": xid if xid >= 0 else None},
            "op": chr(op),
            "transaction": {"id": of.id[at].as_py(), "total_order": i + 1, "data_collection_order": 2 * i + 2},
        }
        should.append((f'{{"id":{key}}}', value, time))
        should += [(f'{{"id":{key}}}', None, time)] if op == DELETE else []
    for _, made_of, _ in found:
        assert made_of is None or made_of.pop("ts_ms") > 1_600_000_000_000
    assert found == should


def test_rows_of_a_snapshot_say_so() -> None:
    (row,) = (
        Envelope("shop", "postgresql", "db")
        .records(changes_of([(READ, 1, "a", False, 2)]), numbered(1), transactions())
        .to_pylist()
    )
    value = orjson.loads(row[VALUE])
    assert (value["op"], value["source"]["snapshot"], value["source"]["txId"]) == ("r", "true", None)


def test_what_an_engine_says_of_the_source_is_kept() -> None:
    changes = replace(changes_of([(CREATE, 1, "a", False, 0)]), source=pa.array(['{"file":"bin.1"}'], pa.utf8()))
    (row,) = Envelope("shop", "mysql", "db").records(changes, numbered(1), transactions()).to_pylist()
    assert orjson.loads(row[VALUE])["source"] == {"file": "bin.1"}


def test_flat_records_are_the_rows_alone_and_a_delete_is_a_tombstone() -> None:
    changes = changes_of([(CREATE, 1, "a", False, 0), (DELETE, 1, "a", True, 0)])
    rows = Envelope("shop", "postgresql", "db", flat=True).records(changes, numbered(2), transactions()).to_pylist()
    assert [(row[KEY], row[VALUE]) for row in rows] == [(b"1", b'{"id":1,"v":"a"}'), (b"1", None)]


@given(st.one_of(TEXT, st.integers(-5, 5), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_flat_key_of_one_column_is_its_value_and_wraps_to_itself(value: Any) -> None:
    (key,) = values_in(flat_key(pa.array([orjson.dumps({"id": value}).decode()], pa.utf8())), str)
    assert key == (value if isinstance(value, str) else orjson.dumps(value).decode())
    assert values_in(flat_key(wrapped([key])), str) == [key]


def test_a_flat_key_of_several_columns_stays_an_object() -> None:
    key = '{"a":1,"b":"x"}'
    assert values_in(flat_key(pa.array([key], pa.utf8())), str) == [key]
    assert values_in(flat_key(wrapped([key])), str) == [key]

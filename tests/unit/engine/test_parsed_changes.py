"""Captured records read by columns: as record by record, or not at all."""

import datetime as dt
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captured import Captured, Write
from penstock import Flow
from penstock.core.columns import KEY, VALUE
from penstock.core.schema import Schema
from penstock.engine.execute.program import lower
from penstock.engine.run.planning import facts_of, topics_read
from penstock.engine.source.decoded_changes import DecodedChanges, decode_changes
from penstock.engine.source.parsed_changes import parsed
from penstock.engine.source.spec import SourceSpec
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer
from penstock.log.memory import MemoryLog

COLUMNS = (
    "id long, small tinyint, n int, text string, exact decimal(12,3), real double, short float, ok boolean, at timestamp, day date"
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_PLAIN: dict[str, Any] = {
    "id": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-128, 127),
    "n": st.integers(-(2**31), 2**31 - 1),
    "text": _TEXT,
    "exact": st.decimals(-(10**8), 10**8, places=3).map(str),
    "real": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
    "short": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "ok": st.booleans(),
    "at": st.datetimes(dt.datetime(1, 1, 2)).map(dt.datetime.isoformat)
    | st.datetimes(dt.datetime(1, 1, 2)).map(lambda d: d.isoformat() + "Z"),
    "day": st.dates().map(dt.date.isoformat),
}
_NUMBERS = [300, 2**40, 2**63, -1, 1.5, 1e300, 0, 1, True]
_WORDS = ["x", "", "NaN", "1e3", "+5", "0000-01-01", "2024-02-30", "2024-01-15", "12.3456", "9" * 40, "\x00", "a\nb", "0.1000000"]
_TIMES = ["2024-01-15T10:00:00+02:00", "2024-01-15 10:00:00.1234567", "__debezium_unavailable_value"]
_ODD: Any = st.sampled_from([*_NUMBERS, *_WORDS, *_TIMES, [], {}])


def row(odd: bool) -> st.SearchStrategy[dict[str, Any]]:
    values = {name: st.none() | plain | (_ODD if odd else plain) for name, plain in _PLAIN.items()}
    return st.fixed_dictionaries({}, optional=values | {"id": _PLAIN["id"] | (_ODD if odd else st.nothing())})


def envelope(op: Any, before: Any, after: Any, us: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"ts_us": us, "ts_ms": 5}, "op": op, "ts_ms": 7, "transaction": {"id": "1"}}


def record(odd: bool) -> st.SearchStrategy[dict[str, Any] | None]:
    ops = st.sampled_from(["c", "u", "d", "r", *(["t", None, "x", 1] if odd else [])])
    times = st.integers(1, 2**50) | (st.sampled_from([None, 0, -1, 2**62, "x"]) if odd else st.nothing())
    sides = st.none() | row(odd) if odd else row(odd)
    whole = st.builds(envelope, ops, sides, sides, times)
    return st.none() | whole | (row(odd) if odd else whole)


def spec(flat: bool) -> SourceSpec:
    log = MemoryLog()
    Captured(log, {"things": COLUMNS}, flat=flat).write([Write("things", "c", {"id": 1})])
    flow = Flow("f")
    flow.table("shop.public.things").view("v")
    plan = resolve(flow, NoAnalyzer(), facts_of(log, topics_read(flow)))
    return lower(plan, {"shop.public.things": log.topic("shop.public.things")}).sources["shop.public.things"]


ENVELOPES, FLAT = spec(False), spec(True)


def stored(records: list[Any]) -> pa.Table:
    """Two after two have the same key."""
    values = [None if each is None else each if isinstance(each, bytes) else orjson.dumps(each) for each in records]
    return pa.table(
        {VALUE: pa.array(values, pa.binary()), KEY: pa.array([b"%d" % (i // 2) for i in range(len(values))], pa.binary())}
    )


def one_by_one(of: SourceSpec, table: pa.Table) -> DecodedChanges:
    """As records are read that need a closer look: here by one that spoils the lot."""
    spoilt = pa.concat_tables([table, stored([b"no JSON"])])
    found = decode_changes(of, spoilt, None)
    n = table.num_rows
    reasons = {i: why for i, why in found.reasons.items() if i < n}
    return DecodedChanges(found.table.slice(0, n), found.ops[:n], reasons, None if found.times is None else found.times[:n])


def same(of: SourceSpec, records: list[Any]) -> bool:
    """Whether they could be read at once; and if so, that it made no difference."""
    table = stored(records)
    found = parsed(table.column(VALUE), table.column(KEY), of.schema, of is FLAT)
    if found is None:
        return False
    wanted = one_by_one(of, table)
    assert not wanted.reasons
    assert pa.table(found.columns).to_pylist() == wanted.table.to_pylist()
    assert [c.type for c in found.columns.values()] == [f.type for f in of.schema]
    assert found.ops.tolist() == wanted.ops.tolist()
    assert (None if found.times is None else found.times.tolist()) == (None if wanted.times is None else wanted.times.tolist())
    return True


@settings(max_examples=150, deadline=None)
@given(st.lists(record(odd=False), min_size=1, max_size=5))
def test_plain_envelopes_are_read_at_once_and_as_ever(records: list[Any]) -> None:
    assert same(ENVELOPES, records) == (records[0] is not None), "what it repeats may stand before them"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.none() | row(odd=False), min_size=1, max_size=5))
def test_plain_rows_are_read_at_once_and_as_ever(records: list[Any]) -> None:
    assert same(FLAT, records)


@settings(max_examples=300, deadline=None)
@given(st.lists(record(odd=True), min_size=1, max_size=3))
def test_odd_envelopes_are_read_as_ever_or_not_at_all(records: list[Any]) -> None:
    same(ENVELOPES, records)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.none() | row(odd=True), min_size=1, max_size=3))
def test_odd_rows_are_read_as_ever_or_not_at_all(records: list[Any]) -> None:
    same(FLAT, records)


@pytest.mark.parametrize(
    "records",
    [
        [b""],
        [b" "],
        [b"\xff{}"],
        [b'{"id": 1}{"id": 2}', b" "],
        [b'{"id": 1}\n{"id": 2}', b"{}"],
        [b'{"text": "\xff"}'],
        [b'{"text": "\\ud800"}'],
        [b"[]"],
        [b'{"id": 1'],
    ],
)
def test_texts_that_are_not_one_object_each_are_not_read_at_once(records: list[bytes]) -> None:
    table = stored(records)
    assert parsed(table.column(VALUE), table.column(KEY), FLAT.schema, True) is None


def test_nested_columns_and_bytes_are_looked_at_one_by_one() -> None:
    table = stored([{"id": 1}])
    for column in ("tags array<string>", "raw binary"):
        assert parsed(table.column(VALUE), table.column(KEY), Schema.of(f"id long, {column}"), True) is None


def test_a_record_longer_than_a_block_is_read() -> None:
    assert same(FLAT, [{"id": 1, "text": "x" * 3_000_000}, {"id": 2}])

"""Laws of the codec: the fast way through a column and the slow one agree, and rows survive the way out and in."""

import datetime as dt
import decimal
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.core.schema import Schema
from penstock.log.intake.codec import decode_json, encode_json, to_batch
from penstock.log.intake.columns import Reasons, column_by_value, plain_column
from penstock.log.intake.text import json_values

TYPES = [
    "boolean",
    "tinyint",
    "int",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "decimal(10,2)",
    "decimal(38,10)",
]

times = st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30))
time_texts = st.one_of(
    times.map(lambda t: t.isoformat()),
    times.map(lambda t: t.isoformat(" ") + "Z"),
    st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z?)?", fullmatch=True),
)
numbers = st.one_of(st.integers(-(2**70), 2**70), st.integers(-130, 130), st.floats(allow_nan=False, allow_infinity=False))
scalars = st.one_of(st.none(), st.booleans(), numbers, numbers.map(str), time_texts, st.text(max_size=5))
python_scalars = st.one_of(scalars, times, st.dates(), st.decimals(), st.binary(max_size=4), st.floats())
alike = st.one_of(
    *(st.lists(kind, max_size=6) for kind in (numbers, time_texts, times, st.decimals(), st.integers(-130, 130), scalars))
)


@example("decimal(38,10)", [decimal.Decimal("5.7899999999999895535627233E-24")])
@settings(max_examples=250, deadline=None)
@given(st.sampled_from(TYPES), st.one_of(alike, st.lists(python_scalars, max_size=6)))
def test_a_whole_column_gives_what_each_of_its_values_gives(ddl: str, values: list[Any]) -> None:
    f = Schema.of(f"a {ddl}").arrow.field("a")
    fast = plain_column(values, f.type)
    refused: Reasons = {}
    slow = column_by_value(values, f, refused)
    if fast is not None:
        assert not refused
        assert fast.type == slow.type
        assert repr(fast.to_pylist()) == repr(slow.to_pylist())


@settings(max_examples=250, deadline=None)
@given(st.lists(st.binary(max_size=12) | scalars.map(lambda v: orjson_or_text({"a": v, "b": v})), max_size=8))
def test_every_row_is_kept_or_refused_once_whatever_stands_beside_it(texts: list[bytes]) -> None:
    schema = Schema.of("a long, b timestamp, c string")
    together = decode_json(pa.array(texts, pa.binary()), schema)
    alone = [decode_json(pa.array([text], pa.binary()), schema) for text in texts]
    assert together.kept.tolist() == [i for i, one in enumerate(alone) if one.table.num_rows]
    assert together.table.to_pylist() == [row for one in alone for row in one.table.to_pylist()]
    assert [(r.index, r.reason) for r in together.rejected] == [(i, r.reason) for i, one in enumerate(alone) for r in one.rejected]


def orjson_or_text(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits, half surrogates
        return repr(value).replace("'", '"').encode("utf-8", "surrogatepass")


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    maybe = lambda kind: draw(st.none() | kind)  # noqa: E731
    cents = st.integers(-(10**9), 10**9).map(lambda n: decimal.Decimal(n) / 100)
    return {
        "n": maybe(st.integers(-(2**63), 2**63 - 1)),
        "x": maybe(st.floats(allow_nan=False, allow_infinity=False)),
        "s": maybe(st.text(max_size=8)),
        "b": maybe(st.binary(max_size=8)),
        "t": maybe(times.map(lambda t: t.replace(tzinfo=dt.UTC))),
        "day": maybe(st.dates()),
        "d": maybe(cents),
        "l": maybe(st.lists(st.none() | cents, max_size=3)),
        "m": maybe(st.dictionaries(st.text(max_size=3), st.none() | times.map(lambda t: t.replace(tzinfo=dt.UTC)), max_size=3)),
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(rows(), max_size=5))
def test_rows_survive_the_way_to_json_and_back(given_rows: list[dict[str, Any]]) -> None:
    schema = Schema.of(
        "n long, x double, s string, b binary, t timestamp, day date, d decimal(12,2), "
        "l array<decimal(12,2)>, m map<string,timestamp>"
    )
    batch, rejected = to_batch(given_rows, schema)
    assert rejected == []
    back = decode_json(pa.array(encode_json(batch), pa.binary()), schema)
    assert back.rejected == []
    assert back.table.equals(pa.Table.from_batches([batch]))


VALUES = {
    "boolean": st.booleans(),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "float": st.floats(width=32),
    "string": st.text(max_size=6) | st.text('"\\\n\x00\x1f\x7fé🦆 ', max_size=4),
    "timestamp": times,
    "date": st.dates(),
    "decimal(10,2)": st.integers(-(10**9), 10**9).map(lambda n: decimal.Decimal(n) / 100),
    "binary": st.binary(max_size=4),
    "array<double>": st.lists(st.floats(), max_size=3),
}


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_a_row_is_written_alike_alone_and_among_others(data: st.DataObject) -> None:
    """Whole columns at once, or value by value as orjson writes a dict: the same bytes."""
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    schema = Schema.of(", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds)))
    size = data.draw(st.integers(0, 5))
    columns = [data.draw(st.lists(st.none() | VALUES[kind], min_size=size, max_size=size)) for kind in kinds]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema.arrow)
    plain = zip(*(json_values(column) for column in table.columns), strict=True)
    assert encode_json(table) == [orjson.dumps(dict(zip(schema.names, row, strict=True))) for row in plain]

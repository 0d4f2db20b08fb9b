"""Rows into Arrow and back, at the door and in flows: every row that does not fit is refused with a reason, none is bent to fit.

What is taken: JSON numbers, also as text, for numeric columns (`1.0` is an integer, `1.5` is not); ISO 8601 text for times, UTC
where no zone is given, cut to microseconds; base64 text for binary. A missing field is null. Fields that no column has are ignored.
Numbers are refused for times: seconds and milliseconds look alike.
"""

import decimal
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from penstock.core.arrow import filled
from penstock.core.columns import EVENT_TIME
from penstock.core.schema import Schema
from penstock.log.intake.columns import Reasons, columns_of
from penstock.log.intake.conversion import shown
from penstock.log.intake.text import encode_json, key_bytes
from penstock.log.port import TopicSpec

__all__ = [
    "Decoded",
    "Rejected",
    "decode_json",
    "decode_rows",
    "encode_json",
    "event_times",
    "key_bytes",
    "make_decimals_exact",
    "parse_objects",
    "to_batch",
]

_NOTHING: dict[str, Any] = {}


@dataclass(frozen=True)
class Rejected:
    """A row that was refused: its place among the rows given, and why."""

    index: int
    reason: str


@dataclass(frozen=True)
class Decoded:
    """What became of the values: the rows that fit, where each of them stood, and the rows that do not."""

    table: pa.Table
    kept: npt.NDArray[np.int64]
    rejected: list[Rejected]


def decode_json(values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
    """Values (binary or string), each a JSON object, as a table of the schema."""
    texts = values.to_pylist()
    refused: Reasons = {}
    rows = parse_objects(texts, refused)
    make_decimals_exact(rows, texts, schema, refused)
    return decode_rows(rows, schema, refused)


def to_batch(rows: Sequence[Mapping[str, Any]], schema: Schema) -> tuple[pa.RecordBatch, list[Rejected]]:
    """Python rows as one batch: what JSON may hold, and datetime, date, Decimal, bytes and NumPy scalars besides."""
    decoded = decode_rows(rows, schema)
    batches = decoded.table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema.arrow), decoded.rejected


def event_times(batch: pa.RecordBatch | pa.Table, spec: TopicSpec, appended: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """The event time of each row of a stored batch, in microseconds; the append time (of all, or of each) where it has none."""
    names = batch.schema.names
    name = EVENT_TIME if EVENT_TIME in names else spec.time if spec.schema and spec.time in names else None
    if name is None:
        return np.broadcast_to(np.asarray(appended, np.int64), batch.num_rows)
    times = batch.column(name).cast(pa.int64())
    own = np.asarray(filled(times, 0).to_numpy(zero_copy_only=False), np.int64)
    return np.where(times.is_null().to_numpy(zero_copy_only=False), appended, own) if times.null_count else own


def parse_objects(texts: Sequence[bytes | str | None], refused: Reasons) -> list[dict[str, Any]]:
    """Each text as a JSON object; an empty one, and a reason in `refused`, where it is none."""
    try:
        rows = list(map(orjson.loads, texts))  # type: ignore[arg-type]  # a null raises, and is refused below
    except orjson.JSONDecodeError:
        rows = [_parse(text, i, refused) for i, text in enumerate(texts)]
    if set(map(type, rows)) <= {dict}:
        return rows
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            refused.setdefault(i, f"wants a JSON object, found {shown(row)}")
            rows[i] = _NOTHING
    return rows


def _parse(text: bytes | str | None, index: int, refused: Reasons) -> Any:
    if text is None:
        refused[index] = "wants a JSON object, found no value"
        return _NOTHING
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as bad:
        refused[index] = why_no_json(text, bad)
        return _NOTHING


def why_no_json(text: bytes | str, bad: orjson.JSONDecodeError) -> str:
    """What is wrong with a text that JSON does not read; first of all, whether it is text."""
    if not text.strip():
        return "not JSON: an empty line"
    try:
        text.decode() if isinstance(text, bytes) else text.encode()
    except UnicodeDecodeError as wrong:
        return f"not UTF-8: byte 0x{wrong.object[wrong.start]:02x} at column {wrong.start + 1}"
    except UnicodeEncodeError as wrong:
        return f"not UTF-8: half a character at column {wrong.start + 1}"
    return f"not JSON: {bad.msg} at column {bad.colno}"


def make_decimals_exact(
    rows: Sequence[Mapping[str, Any]],
    texts: Sequence[bytes | str | None],
    schema: Schema,
    refused: Reasons,
    within: Callable[[Any], Mapping[str, Any]] = lambda record: record,
) -> None:
    """Numbers for decimal columns are read again, digit by digit: a double in between would change them. within: where in a
    record the row stands."""
    names = [f.name for f in schema if _has_decimal(f.type)]
    if not names:
        return
    for i, row in enumerate(rows):
        if i not in refused and any(isinstance(row.get(name), float | list | dict) for name in names):
            try:
                exact = within(json.loads(texts[i] or b"", parse_float=decimal.Decimal))
            except (ValueError, RecursionError, decimal.InvalidOperation) as bad:
                refused[i] = f"not JSON: {bad}"
            else:
                row.update((name, exact.get(name)) for name in names if name in row)  # type: ignore[attr-defined]


def _has_decimal(t: pa.DataType) -> bool:
    return pa.types.is_decimal(t) or any(_has_decimal(t.field(i).type) for i in range(t.num_fields))


def decode_rows(
    rows: Sequence[Mapping[str, Any]], schema: Schema, refused: Reasons | None = None, gone: Collection[int] = ()
) -> Decoded:
    """Python rows as a table of the schema; those in `refused` are left out with the reason that stands there. gone: which of
    them are deletes; then any column may be null."""
    refused = {} if refused is None else refused
    columns = columns_of(rows, schema, refused, gone)
    kept = np.arange(len(rows))
    if refused:
        kept = np.delete(kept, list(refused))
        columns = [column.take(kept) for column in columns]
    wanted = pa.schema([f.with_nullable(True) for f in schema]) if gone else schema.arrow
    table = pa.Table.from_arrays(columns, schema=wanted)
    return Decoded(table, kept, [Rejected(i, refused[i]) for i in sorted(refused)])

"""Rows of Arrow as Python's own values, and a clear word where Python has none: its times end with the year 9999."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.arrow import Column
from penstock.core.schema import type_text
from penstock.errors import BadTime


def python_rows(table: pa.Table | pa.RecordBatch, what: str) -> list[dict[str, Any]]:
    """Each row as a dict; BadTime if one has a time that no datetime can be. what: whose rows they are."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError) as wrong:
        raise _beyond(table, what) or wrong from wrong
    return rows


def _beyond(table: pa.Table | pa.RecordBatch, what: str) -> BadTime | None:
    columns: Sequence[Column] = table.columns
    for field, column in zip(table.schema, columns, strict=True):
        for i, value in enumerate(column):
            try:
                value.as_py()
            except (OverflowError, ValueError):
                shown = value.cast(pa.int64()).as_py() if pa.types.is_timestamp(field.type) else "a value"
                return BadTime(
                    f"column {field.name!r} of {what} has a time that Python's datetime cannot hold",
                    f"row {i}: {shown} microseconds since 1970, {type_text(field.type)}",
                    hint="datetime ends with the year 9999: cast the column to string in the flow, or read it as Arrow (View.rows)",
                )
    return None

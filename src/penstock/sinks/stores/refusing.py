"""Finds the rows that a store refuses among many that it takes."""

from collections.abc import Callable

import pyarrow as pa

from penstock.sinks.stores.port import Refusal


class RowRefused(Exception):
    """The store does not take one of the rows it was given; nothing of this attempt is left."""


def accepted(write: Callable[[pa.Table], None], rows: pa.Table) -> list[Refusal]:
    """Writes the rows, in halves where the store refuses one of them. write: all of its rows or none, then RowRefused."""
    found: list[Refusal] = []
    _halve(write, rows, 0, found)
    return found


def _halve(write: Callable[[pa.Table], None], rows: pa.Table, start: int, found: list[Refusal]) -> None:
    try:
        write(rows)
    except RowRefused as refused:
        if rows.num_rows == 1:
            found.append(Refusal(start, str(refused)))
            return
        half = rows.num_rows // 2
        _halve(write, rows.slice(0, half), start, found)
        _halve(write, rows.slice(half), start + half, found)

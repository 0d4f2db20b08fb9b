"""Rows as MySQL's statements have them: columns of Arrow rendered to literals, many rows to one INSERT."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import Column, filled, joined, numbers_in, one_array, replaced
from penstock.log.intake.text import iso_times, json_values
from penstock.sinks.stores.refusing import RowRefused
from penstock.sinks.stores.texts import json_texts

STATEMENT = 1 << 20  # bytes of rows in one; larger ones are not faster
_SLICE = 10_000  # rows that are text at one time


def identifier(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))


def identifiers(names: Sequence[str]) -> str:
    return ", ".join(map(identifier, names))


def text(value: str) -> str:
    """A literal of a text, in a session where a backslash is a character as any other."""
    return "'{}'".format(value.replace("'", "''"))


def inserts(table: str, rows: pa.Table, behind: str, packet: int) -> Iterator[bytes]:
    """INSERT statements for all rows, each below the size that the server takes (packet); RowRefused for a row that is larger."""
    head, tail = f"INSERT INTO {table} ({identifiers(rows.column_names)}) VALUES ".encode(), behind.encode()
    most = packet - len(head) - len(tail) - 16
    for start in range(0, rows.num_rows, _SLICE):
        lines = _lines(rows.slice(start, _SLICE))
        _, offsets, data = lines.buffers()
        ends = numbers_in(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1].astype(np.int64)
        if int(np.diff(ends).max()) > most:
            raise RowRefused(f"the row is larger than max_allowed_packet of the server: {packet} bytes")
        written = numbers_in(data, np.uint8)
        for first, last in _spans(ends, min(STATEMENT, most)):
            yield head + written[ends[first] : ends[last] - 1].tobytes() + tail  # without the comma behind the last row


def _spans(ends: np.ndarray, size: int) -> Iterator[tuple[int, int]]:
    """Runs of rows of so many bytes together, or of one that is larger."""
    first, count = 0, len(ends) - 1
    while first < count:
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + size, "right")) - 1)
        yield first, last
        first = last


def not_finite(rows: pa.Table, names: Sequence[str]) -> dict[int, str]:
    """Rows with NaN or infinity, which MySQL's numbers have not, and why each is refused."""
    found: dict[int, str] = {}
    for name in names:
        column = one_array(rows[name])
        if pa.types.is_floating(column.type):
            odd = ~np.isfinite(filled(column, 0.0).to_numpy(zero_copy_only=False))
            for row in np.flatnonzero(odd).tolist():
                found.setdefault(row, f"column {name!r} is {column[row].as_py()}, which is no number of MySQL")
    return found


def ends_in_space(rows: pa.Table, names: Sequence[str]) -> dict[int, str]:
    """Rows with a text that a CHAR would give back without the spaces at its end, and why each is refused."""
    found: dict[int, str] = {}
    for name in names:
        if pa.types.is_string(rows[name].type):
            ends = filled(pc.ends_with(one_array(rows[name]), " "), False).to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(ends).tolist():
                found.setdefault(row, f"column {name!r} ends in a space, which a CHAR does not keep")
    return found


def _lines(rows: pa.Table) -> pa.Array:
    """Each row as `(1,'a',NULL),`."""
    pieces: list[pa.Array | str] = []
    for column in rows.columns:
        words = _literals(column)
        pieces += [",", words.fill_null("NULL") if words.null_count else words]
    return joined("(", *pieces[1:], "),", "")


def _literals(column: Column) -> pa.Array:
    array, t = one_array(column), column.type
    if pa.types.is_integer(t) or pa.types.is_boolean(t):
        return array.cast(pa.string())
    if pa.types.is_binary(t):
        return pa.array([None if value is None else f"X'{value.hex()}'" for value in array.to_pylist()], pa.string())
    return joined("'", replaced(_texts(array), "'", "''"), "'", "")


def _texts(array: pa.Array) -> pa.Array:
    """Numbers with all their digits, times of UTC without the Z that MySQL does not know."""
    t = array.type
    if pa.types.is_timestamp(t):
        return pc.utf8_rtrim(iso_times(array), "Z")
    if pa.types.is_floating(t):
        return array.cast(pa.float64()).cast(pa.string())
    if pa.types.is_decimal(t):
        return pa.array(json_values(array), pa.string())
    return json_texts(array) if pa.types.is_nested(t) else array.cast(pa.string())

"""Files of static tables: CSV with a header, Parquet, JSON lines; every row fits, or the file is refused with the line.

In CSV an empty field is null, numbers, times and days are written as in JSON text, booleans as `true` and `false`.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from penstock.core.schema import Schema, type_text
from penstock.errors import BadInput, BadRow, StorageError
from penstock.log.intake.codec import Decoded, decode_json, decode_rows

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class Numbered:
    """The rows of a table, where they come from, and the line of each."""

    where: str
    table: pa.Table
    line: Callable[[int], int]
    word: str = "line"

    def refuse(self, row: int, reason: str, more: int = 0) -> NoReturn:
        others = (f"and {more:,} more",) if more else ()
        raise BadRow(f"{self.where}, {self.word} {self.line(row)}: {reason}", *others)


def read_file(name: str, path: str, schema: Schema) -> Numbered:
    """The rows of a file, by its extension."""
    read = _READERS.get(Path(path).suffix.lower())
    if read is None:
        raise BadInput(f"static table {name}: cannot tell what {path} is", hint=f"its name ends in none of {', '.join(_READERS)}")
    try:
        return read(name, path, schema)
    except OSError as error:
        raise StorageError(f"static table {name}: {path} cannot be read", str(error)) from error
    except (pa.ArrowException, csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"static table {name}: {path} is not what its name says", str(error)) from error


def rows_given(name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], schema: Schema) -> Numbered:
    """Rows that are written in the flow."""
    decoded = decode_rows([dict(zip(columns, row, strict=True)) for row in rows], schema)
    return _whole(Numbered(f"static table {name}", decoded.table, lambda row: row + 1, "row"), decoded)


def refuse_keys(rows: Numbered, key: tuple[str, ...]) -> None:
    """A key that is null, or that stands there twice, names no row."""
    columns = [rows.table.column(name) for name in key]
    for name, column in zip(key, columns, strict=True):
        if column.null_count:
            rows.refuse(column.is_null().to_pylist().index(True), f"column {name!r} is null: the key of the table")
    seen: dict[tuple[Any, ...], int] = {}
    for i, values in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        first = seen.setdefault(values, i)
        if first != i:
            named = ", ".join(f"{n} = {v!r}" for n, v in zip(key, values, strict=True))
            rows.refuse(i, f"{named} stands there already, in {rows.word} {rows.line(first)}: a key names one row")


def _csv(name: str, path: str, schema: Schema) -> Numbered:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        where = f"static table {name}: {path}"
        _refuse_missing(where, header, schema)
        lines, rows, before = list[int](), list[list[str]](), reader.line_num
        for row in reader:
            if row:
                if len(row) != len(header):
                    raise BadRow(f"{where}, line {before + 1}: {len(row)} fields, and the header has {len(header)}")
                lines.append(before + 1)
                rows.append(row)
            before = reader.line_num
    places = {f.name: header.index(f.name) for f in schema}
    columns = [_texts([row[places[f.name]] or None for row in rows], f.type) for f in schema]
    decoded = decode_rows([dict(zip(schema.names, values, strict=True)) for values in zip(*columns, strict=True)], schema)
    return _whole(Numbered(where, decoded.table, lines.__getitem__), decoded)


def _texts(values: list[str | None], t: pa.DataType) -> Sequence[Any]:
    """Fields as the codec takes them; whole numbers at once, for they are most of what such files hold."""
    if pa.types.is_boolean(t):
        return [None if v is None else _BOOLEANS.get(v.strip().lower(), v) for v in values]
    if pa.types.is_integer(t):
        try:
            plain: list[Any] = pa.array(values, pa.string()).cast(t).to_pylist()
            return plain
        except pa.ArrowInvalid:
            return values
    return values


def _json_lines(name: str, path: str, schema: Schema) -> Numbered:
    lines = [(i, line) for i, line in enumerate(Path(path).read_bytes().split(b"\n"), 1) if line.strip()]
    decoded = decode_json(pa.array([line for _, line in lines], pa.binary()), schema)
    return _whole(Numbered(f"static table {name}: {path}", decoded.table, lambda row: lines[row][0]), decoded)


def _parquet(name: str, path: str, schema: Schema) -> Numbered:
    import pyarrow.parquet as pq  # slow to load, and rarely needed

    where = f"static table {name}: {path}"
    there = pq.read_schema(path)
    _refuse_missing(where, there.names, schema)
    found = pq.read_table(path, columns=schema.names)
    columns = [_cast(where, found.column(f.name), f) for f in schema]
    rows = Numbered(where, pa.Table.from_arrays(columns, schema=schema.arrow), lambda row: row + 1, "row")
    for f, column in zip(schema, columns, strict=True):
        if column.null_count and not f.nullable:
            missing = np.flatnonzero(column.is_null().to_numpy())
            rows.refuse(int(missing[0]), f"column {f.name!r} is null, and must not be", len(missing) - 1)
    return rows


def _cast(where: str, column: pa.ChunkedArray, f: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(f.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        raise BadRow(
            f"{where}: column {f.name!r} is {column.type} and cannot be read as {type_text(f.type)}", str(wrong)
        ) from wrong


def _whole(rows: Numbered, decoded: Decoded) -> Numbered:
    if decoded.rejected:
        first = decoded.rejected[0]
        rows.refuse(first.index, first.reason, len(decoded.rejected) - 1)
    return rows


def _refuse_missing(where: str, there: Sequence[str], schema: Schema) -> None:
    for field in schema:
        if field.name not in there:
            raise BadInput(f"{where} has no column {field.name!r}", f"it has: {', '.join(there) or 'nothing'}")


_READERS: dict[str, Callable[[str, str, Schema], Numbered]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
}

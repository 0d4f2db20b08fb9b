"""Rows as Parquet files of a storage: written whole and synced under names that nobody else has, read with their checksum."""

from collections.abc import Iterator, Sequence
from datetime import date
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.arrow import dictionaries
from penstock.core.columns import INDEX
from penstock.core.schema import Schema
from penstock.sinks.stores.files.parquet.manifest import DATA, DELETES, SEQUENCE, File
from penstock.storage.port import Storage
from penstock.storage.sealed import read_sealed, write_sealed

_NULL = "__HIVE_DEFAULT_PARTITION__"
_LONGEST = 120  # characters of a partition's value in a path


def write_data(storage: Storage, rows: pa.Table, partition_by: Sequence[str], sequence: int) -> list[File]:
    """One file for each partition."""
    return [write_file(storage, DATA, part, sequence, where) for where, part in _parts(rows, partition_by) if part.num_rows]


def write_deletes(storage: Storage, keys: pa.Table, sequence: int) -> list[File]:
    """Keys whose older rows are gone."""
    if not keys.num_rows:
        return []
    since = pa.repeat(pa.scalar(sequence, pa.int64()), keys.num_rows)
    return [write_file(storage, DELETES, keys.append_column(SEQUENCE, since), sequence)]


def write_file(storage: Storage, directory: str, rows: pa.Table, sequence: int, partition: str = "") -> File:
    out = pa.BufferOutputStream()
    words = [f.name for f in rows.schema if pa.types.is_string(f.type)]  # a dictionary of numbers costs more than it saves
    pq.write_table(rows, out, compression="zstd", compression_level=1, use_dictionary=dictionaries(words))
    stem = "/".join(filter(None, [directory, partition, f"{sequence:012d}"]))
    data = out.getvalue()
    return File(write_sealed(storage, stem, "parquet", data), rows.num_rows, data.size, sequence, partition)


def read_rows(storage: Storage, file: File, schema: Schema) -> pa.Table:
    """In the columns of the schema: null where a file is older than a column."""
    found = _read(storage, file)
    columns = [
        found[f.name].cast(f.type) if f.name in found.column_names else pa.nulls(found.num_rows, f.type) for f in schema.arrow
    ]
    return pa.table(columns, schema=schema.arrow)


def read_deletes(storage: Storage, files: Sequence[File], key: Sequence[str]) -> pl.DataFrame:
    """Each key once, with the last sequence number at which it was deleted."""
    frames = [pl.DataFrame(pl.from_arrow(_read(storage, file))) for file in files]
    return pl.concat(frames).group_by(key).agg(pl.col(SEQUENCE).max())


def remaining(rows: pa.Table, sequence: int, deletes: pl.DataFrame, key: Sequence[str]) -> pa.Table:
    """The rows of a file that were not deleted behind it."""
    keys = pl.DataFrame(pl.from_arrow(rows.select(list(key)))).with_row_index(INDEX)
    left = keys.join(deletes.filter(pl.col(SEQUENCE) > sequence), on=key, how="anti", nulls_equal=True, maintain_order="left")
    return rows if len(left) == rows.num_rows else rows.take(left[INDEX].to_arrow())


def _read(storage: Storage, file: File) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(read_sealed(storage, file.path))).read()


def _parts(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    if not by:
        yield "", rows
        return
    frame = pl.DataFrame(pl.from_arrow(rows.select(list(by)))).with_row_index(INDEX)
    for values, part in frame.group_by(by, maintain_order=True):
        where = "/".join(f"{quote(name)}={_text(value)}" for name, value in zip(by, values, strict=True))
        yield where, rows.take(part[INDEX].to_arrow())


def _text(value: Any) -> str:
    """A partition's value in a path. One that is too long for a name is told from others by its hash."""
    if value is None:
        return _NULL
    text = quote(
        str(value).lower() if isinstance(value, bool) else value.isoformat() if isinstance(value, date) else str(value), ""
    )
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}-{sha256(text.encode()).hexdigest()[:16]}"

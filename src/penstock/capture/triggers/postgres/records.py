"""Rows of an outbox, which PostgreSQL wrote as the texts of records, read by columns; and what makes them changes of the port."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.port import Changes, Flags, Places, Table
from penstock.capture.postgres.copy.copying import csv_columns
from penstock.capture.postgres.decode.changes import NO_OLD, OLD_ROW, Column, TableChanges
from penstock.capture.postgres.decode.messages import Relation, RelationColumn
from penstock.capture.postgres.keys import Keys, no_key
from penstock.capture.postgres.stream.converting import Shape, converted, shape_of
from penstock.capture.postgres.tables import VIRTUAL
from penstock.capture.postgres.values.types import Types
from penstock.core.arrow import one_array, replaced, values_in
from penstock.errors import Damaged

CREATE, UPDATE, DELETE, TRUNCATE = b"cudt"


@dataclass(frozen=True)
class RecordShape:
    """What the texts of some records hold: the columns that a table had when they were written."""

    relation: Relation  # under the name by which the table is followed
    fields: int  # of the texts; columns that are not stored are among them
    kept: tuple[int, ...]

    @property
    def table(self) -> Table:
        return self.relation.schema, self.relation.table

    @staticmethod
    def of(oid: int, schema: str, table: str, columns: str) -> "RecordShape":
        told = orjson.loads(columns)
        kept = tuple(number for number, column in enumerate(told) if column[3] != VIRTUAL)
        found = tuple(RelationColumn(told[number][0], told[number][1], told[number][2], False) for number in kept)
        return RecordShape(Relation(oid, schema, table, "f", found), len(told), kept)


@dataclass(frozen=True)
class OutboxRows:
    """Rows of an outbox, in the order in which they are given out."""

    last: Places  # the greatest seq of the row's transaction
    seq: Places
    txid: Places
    at: Places  # microseconds since 1970
    shape: Places
    op: pa.Array
    before: pa.Array
    after: pa.Array

    NAMES = ("last", "seq", "txid", "at", "shape", "op", "before", "after")

    @staticmethod
    def parse(lines: bytes) -> "OutboxRows":
        """What was copied as CSV."""
        table = csv_columns(lines, OutboxRows.NAMES)
        last, seq, txid, at, shape = (one_array(table[name]).cast(pa.int64()).to_numpy() for name in OutboxRows.NAMES[:5])
        op, before, after = (one_array(table[name]) for name in OutboxRows.NAMES[5:])
        return OutboxRows(last, seq, txid, at, shape, op, before, after)

    def __len__(self) -> int:
        return len(self.seq)

    def taken(self, places: Places) -> "OutboxRows":
        last, seq, txid, at, shape = (each[places] for each in (self.last, self.seq, self.txid, self.at, self.shape))
        op, before, after = (each.take(places) for each in (self.op, self.before, self.after))
        return OutboxRows(last, seq, txid, at, shape, op, before, after)

    @property
    def ops(self) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        return np.frombuffer("".join(values_in(self.op, str)).encode(), np.uint8)


class Converter:
    """Makes changes of rows. Keys and types are those of now, as with a stream of the server's log."""

    def __init__(self, types: Types, keys: Keys) -> None:
        self._types, self._keys = types, keys
        self._shapes: dict[RecordShape, Shape] = {}

    def changes(self, rows: OutboxRows, shape: RecordShape, transaction: Places) -> Changes:
        """Of rows that have this shape, none of which is a truncate."""
        ops = rows.ops
        old, new = ops != CREATE, ops != DELETE
        before, after = (_columns(texts, there, shape) for texts, there in ((rows.before, old), (rows.after, new)))
        lsn, xid = transaction.astype(np.uint64), rows.txid.astype(np.uint32)
        said = np.where(old, np.uint8(OLD_ROW), np.uint8(NO_OLD))
        told = TableChanges(shape.relation, ops, said, before, after, lsn, rows.seq, rows.at, xid)
        return converted(told, self.shape(shape), transaction)

    def shape(self, shape: RecordShape) -> Shape:
        if shape not in self._shapes:
            self._shapes[shape] = shape_of(shape.relation, self._types, self._key)
        return self._shapes[shape]

    def _key(self, relation: Relation) -> tuple[str, ...]:
        """By name, as the rows of a partition are those of its table."""
        table = relation.schema, relation.table
        found = self._keys.of_table(table).columns
        if not set(found) <= {column.name for column in relation.columns}:
            raise no_key(table)
        return found


def by_shape(rows: OutboxRows, shapes: Mapping[int, RecordShape]) -> Iterator[tuple[RecordShape, Places]]:
    """Which rows have which shape."""
    found: dict[RecordShape, list[int]] = {}
    for number in np.unique(rows.shape).tolist():
        if number not in shapes:
            raise Damaged(f"the outbox has rows of a shape {number}, which is not there")
        found.setdefault(shapes[number], []).append(number)
    for shape, numbers in found.items():
        yield shape, np.flatnonzero(np.isin(rows.shape, numbers))


def _columns(texts: pa.Array, there: Flags, shape: RecordShape) -> tuple[Column, ...]:
    """The columns of records; null where there is none."""
    unchanged = np.zeros(len(there), np.bool_)
    if not there.any():
        return tuple(Column(pa.nulls(len(there), pa.utf8()), unchanged) for _ in shape.kept)
    places = pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there)
    found = record_columns(texts.filter(pa.array(there)), shape.fields)
    return tuple(Column(found[number].take(places), unchanged) for number in shape.kept)


def record_columns(texts: pa.Array, fields: int) -> Sequence[pa.Array]:
    """The fields of records as PostgreSQL writes them: as CSV in parentheses, but that a backslash stands there twice."""
    inside = pc.binary_slice(texts.cast(pa.binary()), 1, -1)
    lines = b"\n".join(values_in(inside, bytes)) + b"\n"
    table = csv_columns(lines, [str(number) for number in range(fields)])
    if table.num_rows != len(texts):
        raise Damaged(f"{len(texts)} records of an outbox read as {table.num_rows}")
    columns = [one_array(table[number]) for number in range(fields)]
    return [replaced(column, "\\\\", "\\") for column in columns] if b"\\" in lines else columns

"""Values as a table has them now, asked for by key: what a change did not send and our log does not know."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.capture.port import Places
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.copy.copying import csv_columns
from penstock.capture.postgres.copy.published import columns_of
from penstock.capture.postgres.stream.converting import Shape
from penstock.capture.postgres.values.json_values import json_values
from penstock.core.arrow import one_array, values_in

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

AT_ONCE = 500  # keys of one statement; the values are large


@dataclass(frozen=True)
class CurrentValues:
    """Looks up columns of a table, by its object id: it may have been renamed."""

    connection: "Connection"
    relation: int
    shape: Shape
    keys: Sequence[pa.Array]  # of each change: the key as text, by column
    columns: Sequence[str]

    def of(self, rows: Places) -> Mapping[int, Mapping[str, str]]:
        """By row and column, as JSON, without rows that are gone and columns that are."""
        parts = (rows[i : i + AT_ONCE] for i in range(0, len(rows), AT_ONCE))
        return {row: values for part in parts for row, values in self._asked(part)}

    def _asked(self, rows: Places) -> Iterator[tuple[int, Mapping[str, str]]]:
        now, key = columns_of(self.connection, self.relation), [self.shape.names[i] for i in self.shape.key]
        names = [name for name in self.columns if name in now.casts]
        if not names or any(name not in now.casts for name in key):
            return
        texts = [values_in(column.take(rows), str) for column in self.keys]
        found = self._copied(_statement(now.table, key, now.casts, names, texts))
        types = dict(zip(self.shape.names, self.shape.types, strict=True))
        table = csv_columns(found, ["", *names])
        values = [values_in(json_values(one_array(table[i]), types[name]), str) for i, name in enumerate(names, 1)]
        for number, place in enumerate(values_in(table[0], str)):
            row = int(rows[int(place) - 1])
            yield row, {name: column[number] for name, column in zip(names, values, strict=True)}

    def _copied(self, statement: Any) -> bytes:
        from psycopg import errors

        data = bytearray()
        with translated("read values that a change did not send"):
            try:
                with self.connection.cursor().copy(statement) as copy:
                    for piece in copy:
                        data += piece
            except (errors.UndefinedColumn, errors.UndefinedTable):
                return b""  # gone since it was looked
        return bytes(data)


def _statement(
    table: tuple[str, str], key: Sequence[str], casts: Mapping[str, str], names: Sequence[str], texts: Sequence[Sequence[str]]
) -> Any:
    from psycopg import sql

    wanted = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(name)) for name in names)
    arrays = sql.SQL(", ").join(sql.SQL("{}::text[]").format(sql.Literal(list(column))) for column in texts)
    columns = sql.SQL(", ").join(sql.Identifier(f"k{i}") for i in range(len(key)))
    same = sql.SQL(" and ").join(
        sql.SQL("t.{} = k.{}::{}").format(sql.Identifier(name), sql.Identifier(f"k{i}"), sql.SQL(casts[name]))
        for i, name in enumerate(key)
    )
    query = sql.SQL("select k.place, {} from unnest({}) with ordinality as k ({}, place) join {} t on {}").format(
        wanted, arrays, columns, sql.Identifier(*table), same
    )
    return sql.SQL("copy ({}) to stdout (format csv, force_quote *)").format(query)

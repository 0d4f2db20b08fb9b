"""Rows of a stream and the versions that they see, as the rows that an enrich gives."""

from typing import Any

import pyarrow as pa

from penstock.core.arrow import array_of
from penstock.core.columns import ADDRESS, APPEND_TIME, POSITION, TIME, WATERMARK
from penstock.core.position import position_texts
from penstock.kernels.columns import as_type, column, travelling
from penstock.kernels.keyed import Longs
from penstock.plan import Enrich


class Answers:
    """Makes rows of the output's schema; where there is no version, what comes from the table is null."""

    def __init__(self, names: Enrich, schema: pa.Schema) -> None:
        self._schema, self._right = schema, dict(names.right)
        self._version = tuple(names.version or ())
        self.of_the_table = [n for n in schema.names if n in self._right or n in self._version]
        self.of_the_stream = [n for n in schema.names if n not in self.of_the_table]

    def empty(self, placed: bool) -> pa.Table:
        return travelling(self._schema, placed=placed).empty_table()

    def joined(self, rows: pa.Table, found: Longs, versions: pa.Table, placed: bool) -> pa.Table:
        """found: for each row the number of its version, -1 where there is none."""
        at = array_of(found, absent=found < 0)
        columns: dict[str, Any] = {}
        for field in self._schema:
            values = self._of_version(field.name, versions).take(at) if field.name in self.of_the_table else rows[field.name]
            columns[field.name] = as_type(values, field.type)
        system = [TIME, WATERMARK, *([POSITION] if placed else [])]
        system += [name for name in (APPEND_TIME, ADDRESS) if name in rows.column_names]
        return pa.table(columns | {name: rows[name] for name in system})

    def _of_version(self, name: str, versions: pa.Table) -> pa.Array:
        if name in self._version:
            return column(versions, TIME) if name == self._version[0] else position_texts(column(versions, POSITION))
        return column(versions, self._right[name])

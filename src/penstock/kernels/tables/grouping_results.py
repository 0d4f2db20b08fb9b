"""The results of groups of a table's rows: the row of each, and what changed of it."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.core.columns import HASH, OP, POSITION, TIME, WATERMARK
from penstock.core.position import window_positions
from penstock.core.time import NEVER
from penstock.kernels.aggregates.partials import Aggregation
from penstock.kernels.aggregates.unanswered import with_failed
from penstock.kernels.changes import Differences, differences
from penstock.kernels.column_names import LAST
from penstock.kernels.columns import as_type, column, travelling, with_plain
from penstock.plan import Aggregate

COUNT = "__count"  # how many rows a group has

_LONG = pa.int64()


class GroupResults:
    """by: the columns that name a group; null is a value like any other."""

    def __init__(self, by: Sequence[str], aggregates: Sequence[Aggregate], rows: pa.Schema, output: pa.Schema) -> None:
        self.by, self._output = list(by), output
        self.name = self.by or [HASH]
        timed = pa.schema([*rows, (TIME, pa.int64())])
        every = (Aggregate(COUNT, "count", None, _LONG), Aggregate(LAST, "max", TIME, _LONG))
        self.aggregation = Aggregation([*every, *aggregates], timed)
        self._schema = travelling(output, (OP, pa.int8()))
        self._columns = list(dict.fromkeys([*self.by, *output.names]))

    def plain(self, rows: pa.Table) -> pa.Table:
        """Rows of one group have equal values in its columns: -0.0 is 0.0."""
        return with_plain(rows, [name for name in self.by if name in rows.column_names])

    def of(self, partials: pa.Table) -> pa.Table:
        """The rows of groups (with HASH), from folded partial results."""
        made = {name: column(partials, name) for name in self.by} | self.aggregation.results(partials)
        types = {f.name: f.type for f in self._output}
        columns = {name: as_type(made[name], types.get(name, made[name].type)) for name in self._columns}
        return with_failed(pa.table(columns | {TIME: made[LAST], HASH: column(partials, HASH)}), made)

    def changes(self, sent: pa.Table, wanted: pa.Table) -> Differences:
        return differences(sent.select(wanted.column_names), wanted, self.name, [*self._columns, TIME])

    def changelog(self, changes: Differences) -> pa.Table:
        """As the step gives them."""
        rows = changes.changelog()
        n = rows.num_rows
        rows = rows.append_column(WATERMARK, pa.array(np.full(n, NEVER)))
        positions = window_positions([column(rows, name) for name in self.by], np.zeros(n, np.int64))
        return rows.append_column(POSITION, positions).select(self._schema.names).cast(self._schema)

    def nothing(self) -> pa.Table:
        return self._schema.empty_table()

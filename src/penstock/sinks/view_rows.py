"""How the rows of an epoch come into the tables of a view."""

import itertools
import sqlite3
from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import ascending, one_array
from penstock.core.change import Op
from penstock.core.columns import INDEX, LIVE, NUMBER, OP, POSITION, SINCE
from penstock.sinks.sqlite_values import Value, stored, to_sqlite
from penstock.sinks.view_checks import Checks, Sum, Sums, row_checks
from penstock.sinks.view_tables import Layout, summed

_SLICE = 100_000  # rows that are Python values at one time


class ViewRows:
    """Writes rows in the order of the disk. New keys go straight into `current`; where one is not new, all are merged."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._all_new = True  # of rows that stay, until a key came twice

    def write(self, connection: sqlite3.Connection, rows: pa.Table, epoch: int, before: Sums) -> Sums:
        """What the view holds afterwards; before: what it held."""
        if self._layout.updating:
            rows = self._net(rows)
        if not rows.num_rows:
            return before
        rows = self._sorted(rows)
        if self._may_be_new(rows) and (new := self._insert(connection, rows, epoch)) is not None:
            return before._replace(current=before.current.plus(new))
        self._all_new = False
        return self._merge(connection, rows, epoch, before)

    def _may_be_new(self, rows: pa.Table) -> bool:
        """Whether it is worth a try to take every row as one whose key is not there."""
        if not self._layout.updating:
            return self._all_new
        return bool(pc.all(pc.equal(rows[OP], pa.scalar(int(Op.INSERT)))).as_py())

    def _net(self, rows: pa.Table) -> pa.Table:
        """Without the values before an update, where the value after it is there; where it was filtered away, the row is gone."""
        before = pc.equal(rows[OP], pa.scalar(int(Op.UPDATE_BEFORE)))
        old, new = rows.filter(before), rows.filter(pc.invert(before))
        if not old.num_rows:
            return new
        key = list(self._layout.key) or [POSITION]
        numbered = pl.DataFrame(pl.from_arrow(old.select(key))).with_row_index(INDEX)
        after = pl.DataFrame(pl.from_arrow(new.select(key)))
        gone = old.take(numbered.join(after, on=key, how="anti", nulls_equal=True)[INDEX].to_arrow())
        deletes = pa.chunked_array([pa.array([int(Op.DELETE)] * gone.num_rows, pa.int8())])
        return pa.concat_tables([gone.set_column(gone.column_names.index(OP), OP, deletes), new])

    def _sorted(self, rows: pa.Table) -> pa.Table:
        order = ascending(name for name in self._layout.clustered if not pa.types.is_nested(rows.schema.field(name).type))
        return rows.take(pc.sort_indices(rows, sort_keys=order)) if order else rows

    def _insert(self, connection: sqlite3.Connection, rows: pa.Table, epoch: int) -> Sum | None:
        """What was added, if every key was new; else None, and nothing was written."""
        total = 0
        connection.execute("SAVEPOINT all_new")
        try:
            for columns, checks in self._values(rows, epoch):
                total += int(checks.sum())
                lines = zip(*columns, checks.tolist(), itertools.repeat(epoch), strict=False)
                connection.executemany(self._layout.insert_current(), lines)
        except sqlite3.IntegrityError:
            connection.execute("ROLLBACK TO all_new")
            connection.execute("RELEASE all_new")
            return None
        connection.execute("RELEASE all_new")  # not after other errors: a full disk has ended the transaction, and must be reported
        return Sum(rows.num_rows, total)

    def _merge(self, connection: sqlite3.Connection, rows: pa.Table, epoch: int, before: Sums) -> Sums:
        live = pc.not_equal(rows[OP], pa.scalar(int(Op.DELETE))).to_pylist() if self._layout.updating else itertools.repeat(True)
        alive, number = iter(live), itertools.count()
        for columns, checks in self._values(rows, epoch):
            # zip asks the columns first, so that their end takes nothing from the other two
            connection.executemany(self._layout.insert_incoming(), zip(*columns, checks.tolist(), alive, number, strict=False))
        last = connection.execute(f"SELECT coalesce(max({NUMBER}), 0) FROM history").fetchone()[0]
        for statement in self._layout.merge():
            connection.execute(statement, {"epoch": epoch})

        def found(table: str, number: str, where: str) -> Sum:
            return Sum(*connection.execute(summed(table, number, where)).fetchone())

        came = found("latest", "0", f"{LIVE} = 1")
        history = found("history", NUMBER, f"{NUMBER} > {last}")
        # What came now and is history already never was current.
        went = found("history", "0", f"{NUMBER} > {last} AND {SINCE} < {epoch}")
        return Sums(before.current.plus(came).minus(went), before.history.plus(history))

    def _values(self, rows: pa.Table, epoch: int) -> Iterator[tuple[list[list[Value]], Checks]]:
        """The columns, and the checksum of each row."""
        for start in range(0, rows.num_rows, _SLICE):
            part, columns, held = rows.slice(start, _SLICE), [], {}
            for name in self._layout.names:
                column, key = one_array(part[name]), name in self._layout.clustered
                columns.append(to_sqlite(column, key))
                held[name] = stored(column, columns[-1], key)
            yield columns, row_checks(self._layout, held, pa.repeat(pa.scalar(epoch, pa.int64()), part.num_rows))

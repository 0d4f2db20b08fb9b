"""An epoch in a table of a MySQL: the note under a lock, rows in few INSERTs, and the keys that go."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.core.columns import TIME
from penstock.core.schema import TIMESTAMP
from penstock.sinks.port import Marker
from penstock.sinks.stores.arguments import OnConflict
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.reading import readable_rows
from penstock.sinks.stores.refusing import RowRefused, accepted
from penstock.sinks.stores.sql.mysql_connection import client, reason_of, refuses_a_row
from penstock.sinks.stores.sql.mysql_rows import ends_in_space, identifier, identifiers, inserts, not_finite, text
from penstock.sinks.stores.sql.mysql_tables import GONE, STAGED, Prepared, Target, rows_of
from penstock.sinks.stores.sql.tables import MARKERS

if TYPE_CHECKING:
    from penstock.sinks.stores.sql.mysql_connection import MysqlConnection

_CUT = frozenset({1264, 1265, 1292, 1366, 1406})  # warnings that something of a value was left out

_FETCHED = 20_000  # rows that are read at one time


class MysqlTransaction:
    """What a statement takes is limited, and so is what the server sends: a note with many refused rows is kept in parts."""

    one_moment = True

    def __init__(self, connection: "MysqlConnection", target: Target, prepared: Prepared, on_conflict: OnConflict) -> None:
        self._connection, self._target, self._spec = connection, target, target.spec
        self._prepared, self._on_conflict = prepared, on_conflict
        self._markers, self._staged, self._gone = (target.name(beside) for beside in (MARKERS, STAGED, GONE))
        self._parts = 0  # of the note that is there

    def note(self) -> Note | None:
        found = self._noted()
        if not found:  # a line without a life, so that there is something to lock
            self._insert_note(0, Marker("", -1, -1), b"", "flow = flow")
            found = self._noted()
        self._parts = len(found)
        marker = Marker(*found[0][:3])
        return Note(marker, b"".join(line[3] or b"" for line in found)) if marker.incarnation else None

    def _noted(self) -> Sequence[tuple[Any, ...]]:
        columns = f"SELECT incarnation, generation, epoch, refused FROM {self._markers}"
        return rows_of(self._connection, f"{columns} WHERE {self._ours} ORDER BY part FOR UPDATE")

    def keep(self, note: Note) -> None:
        size = self._prepared.packet // 4
        pieces = [note.refused[start : start + size] for start in range(0, len(note.refused), size)] or [b""]
        if self._parts > 1:
            self._execute(f"DELETE FROM {self._markers} WHERE {self._ours} AND part > 0")
        changed = ", ".join(f"{name} = VALUES({name})" for name in ("incarnation", "generation", "epoch", "refused"))
        for part, piece in enumerate(pieces):
            self._insert_note(part, note.marker, piece, changed)
        self._parts = len(pieces)

    def _insert_note(self, part: int, marker: Marker, refused: bytes, changed: str) -> None:
        ours = [text(self._spec.flow), text(self._spec.name), str(part)]
        values = [*ours, text(marker.incarnation), str(marker.generation), str(marker.epoch), f"X'{refused.hex()}'"]
        columns = "flow, sink, part, incarnation, generation, epoch, refused"
        statement = f"INSERT INTO {self._markers} ({columns}) VALUES ({', '.join(values)})"
        self._execute(f"{statement} ON DUPLICATE KEY UPDATE {changed}")

    @property
    def _ours(self) -> str:
        return f"flow = {text(self._spec.flow)} AND sink = {text(self._spec.name)}"

    def write(self, changes: Changes) -> Sequence[Refusal]:
        if changes.gone.num_rows:
            self._delete(changes.gone)
        odd = ends_in_space(changes.put, self._prepared.chars) | not_finite(changes.put, self._spec.schema.names)
        kept = np.setdiff1d(np.arange(changes.put.num_rows), list(odd))
        refused = accepted(self._upsert, changes.put.take(pa.array(kept)) if odd else changes.put) if len(kept) else []
        reasons = odd | {int(kept[refusal.row]): refusal.reason for refusal in refused}
        return [Refusal(row, reasons[row]) for row in sorted(reasons)]

    def rows(self) -> Iterator[pa.Table]:
        """All rows but those that are deleted softly."""
        schema, soft = self._spec.schema, self._target.soft_delete
        where = f" WHERE {identifier(soft)} IS NULL" if soft else ""
        with self._connection.cursor(client().cursors.SSCursor) as cursor:
            cursor.execute(f"SELECT {identifiers(schema.names)} FROM {self._target.name()}{where}")
            while lines := cursor.fetchmany(_FETCHED):
                yield readable_rows(dict(zip(schema.names, zip(*lines, strict=True), strict=True)), schema)

    def _delete(self, gone: pa.Table) -> None:
        soft, key = self._target.soft_delete, self._spec.key
        rows = gone.select(list(key))
        chars = [name for name in self._prepared.chars if name in key]
        if odd := ends_in_space(rows, chars) | not_finite(rows, key):
            rows, gone = (table.take(pa.array(np.setdiff1d(np.arange(gone.num_rows), list(odd)))) for table in (rows, gone))
        if soft:
            rows = rows.append_column(TIME, gone[TIME].cast(TIMESTAMP))
        accepted(self._name_gone, rows)  # a key that does not fit the table is not there
        same, joined = self._same(rows, "g"), f"{self._gone} g STRAIGHT_JOIN {self._target.name()} t"
        if soft:
            self._execute(f"UPDATE {joined} ON {same} SET t.{identifier(soft)} = g.{identifier(TIME)}")
        else:
            self._execute(f"DELETE t FROM {joined} ON {same}")
        self._execute(f"DELETE FROM {self._gone}")

    def _name_gone(self, rows: pa.Table) -> None:
        self._whole(inserts(self._gone, rows, "", self._prepared.packet))

    def _upsert(self, rows: pa.Table) -> None:
        """All of the rows or none; RowRefused if one of them does not fit."""
        rows, packet = rows.select(self._spec.schema.names), self._prepared.packet
        if self._prepared.alone and not any(rows[name].null_count for name in self._spec.key):
            self._whole(inserts(self._target.name(), rows, self._on_duplicate(), packet))
        else:
            staged = inserts(self._staged, rows, "", packet)
            self._whole(chain([f"DELETE FROM {self._staged}"], staged, self._careful(self._same(rows, "s"))))

    def _on_duplicate(self) -> str:
        key, sets = self._spec.key, self._sets("VALUES({})", "")
        if not key:
            return ""
        unchanged = [f"{identifier(key[0])} = {identifier(key[0])}"]
        return f" ON DUPLICATE KEY UPDATE {', '.join(unchanged if self._on_conflict == 'ignore' else sets or unchanged)}"

    def _careful(self, same: str) -> list[str]:
        """Where more than the key may stand in the way: another unique index, whose row would be updated instead; and keys with
        nulls, which a unique index takes for different."""
        table, names = self._target.name(), identifiers(self._spec.schema.names)
        sets = self._sets("s.{}", "t.") if self._on_conflict == "update" else []
        update = f"UPDATE {self._staged} s STRAIGHT_JOIN {table} t ON {same} SET {', '.join(sets)}"
        missing = f"SELECT {names} FROM {self._staged} s WHERE NOT EXISTS (SELECT 1 FROM {table} t WHERE {same})"
        return [*([update] if sets else []), f"INSERT INTO {table} ({names}) {missing}"]

    def _sets(self, new: str, old: str) -> list[str]:
        others = [identifier(name) for name in self._spec.schema.names if name not in self._spec.key]
        sets = [f"{old}{name} = {new.format(name)}" for name in others]
        return sets + ([f"{old}{identifier(self._target.soft_delete)} = NULL"] if self._target.soft_delete else [])

    def _same(self, rows: pa.Table, other: str) -> str:
        equal = {name: "<=>" if rows[name].null_count else "=" for name in self._spec.key}
        return " AND ".join(f"t.{identifier(name)} {sign} {other}.{identifier(name)}" for name, sign in equal.items())

    def _whole(self, statements: Iterable[str | bytes]) -> None:
        """All of the statements or none; RowRefused where a value does not fit, or something of it would be left out."""
        self._execute("SAVEPOINT penstock")
        try:
            for statement in statements:
                self._execute_exactly(statement)
        except client().MySQLError as error:
            if not refuses_a_row(error):
                raise
            self._execute("ROLLBACK TO SAVEPOINT penstock")
            raise RowRefused(reason_of(error)) from error
        except RowRefused:
            self._execute("ROLLBACK TO SAVEPOINT penstock")
            raise

    def _execute_exactly(self, statement: str | bytes) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)  # type: ignore[arg-type]
            if not cursor.warning_count:
                return
        cut = next((said for _, code, said in rows_of(self._connection, "SHOW WARNINGS") if code in _CUT), None)
        if cut:
            raise RowRefused(cut)

    def _execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

"""SQLite followed through an outbox that triggers fill: an engine of the port."""

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.capture import port
from penstock.capture.port import Json, Status, Table, Transactions
from penstock.capture.sqlite.connecting import SqliteFile
from penstock.capture.sqlite.tables import Row, described, in_main
from penstock.capture.triggers.sqlite.copies import Copies, ReadChunk
from penstock.capture.triggers.sqlite.outbox import ROWS, About, SqliteOutbox, changes_of, seq_of, times_of
from penstock.capture.triggers.sqlite.outbox_sql import SqliteOutboxSql
from penstock.capture.triggers.sqlite.position import SqlitePosition
from penstock.capture.triggers.sqlite.setting_up import Shape, followed, installed, shapes_of
from penstock.capture.triggers.stepping import Stepping
from penstock.errors import Disconnected, NotFollowable, SlotLost
from penstock.storage.port import Storage

REMOVING = 1.0  # seconds between two removals of rows that were written: each keeps all others from writing
ANEW = "`penstock cdc remove NAME` and `cdc add` read the tables again"


@dataclass(frozen=True)
class SqliteSource:
    """What is followed."""

    path: Path
    sql: SqliteOutboxSql
    tables: Sequence[Table]


class SqliteOutboxEngine(Stepping):
    """Follows tables whose triggers fill an outbox, in the order of commits. SQLite tells no trigger which transaction it is in:
    what was committed between two looks is one transaction here, so that none is ever given out in half, and several may be one."""

    connector = "sqlite"

    def __init__(self, source: SqliteSource, storage: Storage, bound: int = ROWS, removing: float = REMOVING) -> None:
        """bound: how many changes a batch has at most."""
        super().__init__(storage)
        self._source = source = replace(source, tables=in_main(source.tables))
        self._outbox, self._removing = SqliteOutbox(source.sql, bound), removing
        self._file: SqliteFile | None = None
        self._copies = Copies(source.tables)

    @property
    def database(self) -> str:
        return self._source.path.stem

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        self.close()
        file = self._file = SqliteFile(self._source.path, writes=True)
        self._follow_columns(file)
        with file.reading() as connection:
            about = self._outbox.about(connection)
        self._position = _checked(SqlitePosition.of(position), about) if position else SqlitePosition(about.id)
        self._written, self._unfinished, self._end = self._position, unfinished, None
        self._removed, self._removed_at, self._chunk = about.windows, 0.0, None
        self._told: dict[Table, Shape] = {}
        self._pacing.busy()

    _chunk: ReadChunk | None
    _end: int | None  # of the outbox at the first look behind the start

    def written(self, position: Json) -> None:
        self._spool.clear()
        self._written = SqlitePosition.of(position)
        if self._file and time.monotonic() - self._removed_at > self._removing:
            self._empty(self._file)

    def status(self) -> Status:
        if self._file is None:
            return Status()
        progress = self._copies.progress(self._position, self._current)
        return Status(snapshots=progress, caught_up=self._end is not None and self._position.seq >= self._end and not progress)

    def close(self) -> None:
        if self._file:
            self._file.close()
        self._file = None

    def _step(self) -> port.Batch | None:
        assert self._file, "the engine has not been started"
        file = self._file
        file.check_same()
        if self._position.upto is None and self._chunk:
            return self._copied()
        found = self._look(file)
        if found is None:
            self._follow_columns(file)
            return None
        rows, upto = found
        if rows:
            return self._batch(rows, upto, self._removed)
        if self._chunk:
            return self._copied()
        self._empty(file)
        return None

    def _look(self, file: SqliteFile) -> tuple[list[Row], int] | None:
        """What has come, up to which seq, and the next chunk of a copy, all of one moment; None if tables were changed."""
        position = self._position
        with file.reading() as connection:
            if _version(connection) != self._version:
                return None
            upto = position.upto if position.upto is not None else self._outbox.end(connection)
            self._end = upto if self._end is None and position.upto is None else self._end
            if position.upto is None and self._copies.todo(position, self._current):
                self._chunk = self._copies.read(connection, position, self._current)
            return self._outbox.rows(connection, position.seq, upto) if upto > position.seq else [], upto

    def _batch(self, rows: Sequence[Row], upto: int, removed: int) -> port.Batch:
        """Rows that follow upon the position, of a look that ends at a seq. removed: how many looks the outbox has not any more."""
        before, last = self._position, seq_of(rows[-1])
        begins, ends = before.upto is None, last >= upto
        begun = before.seq if begins else before.begun
        number, when = before.transactions + begins, max(before.time, times_of(rows))
        if ends:
            self._position = replace(before, windows=before.windows + 1, seq=upto, upto=None, begun=0)
        else:
            self._position = replace(before, seq=last, upto=upto, begun=begun)
        self._position = replace(self._position, transactions=number, time=when, removed=removed)
        transactions = Transactions(
            pa.array([f"{begun + 1}-{upto}"], pa.utf8()),
            *(np.array([-1]), np.array([number]), np.array([when])),
            *(np.array([begins]), np.array([ends])),
        )
        intent = {"kind": "rows", "after": before.seq, "last": last, "upto": upto, "removed": removed}
        changes = changes_of(rows, self._shapes)
        return port.Batch(intent, self._position.json(), transactions, changes, tables=self._facts(changes))

    def _copied(self) -> port.Batch:
        assert self._chunk
        made, self._chunk = self._copies.batch(self._chunk, self._position), None
        return self._put_away(made)

    def _go_on_from(self, position: Json) -> None:
        self._position = SqlitePosition.of(position)

    def _facts(self, changes: Sequence[port.Changes]) -> dict[Table, port.TableFacts]:
        """The tables that are other than they were told last."""
        assert self._file
        new = {each.table: self._current[each.table[1]] for each in changes if each.table[1] in self._current}
        new = {table: shape for table, shape in new.items() if self._told.get(table) != shape}
        self._told |= new
        with self._file.reading() as connection:
            return {table: described(connection, table[1]).facts for table in new}

    def _rows_again(self, intent: Json) -> port.Batch:
        assert self._file, "the engine has not been started"
        with self._file.reading() as connection:
            rows = self._outbox.rows(connection, intent["after"], intent["last"], bounded=False)
        return self._batch(rows, intent["upto"], intent["removed"])

    def _empty(self, file: SqliteFile) -> None:
        """Removes what was written, in transactions of a few rows, so that nobody waits long. Where others have no end of writing,
        it is done later."""
        written = self._written
        more = written.upto is None and self._removed < written.windows
        while more:
            try:
                with file.writing() as connection:
                    more = self._outbox.remove(connection, written.seq, written.windows)
            except Disconnected:
                return
            self._removed, self._removed_at = written.windows, time.monotonic()

    def _follow_columns(self, file: SqliteFile) -> None:
        """Makes triggers anew for tables whose columns have changed; SlotLost if there are none. The table is copied again then, as
        the old triggers did not know the new columns."""
        with file.reading() as connection:
            version = _version(connection)
            self._outbox.about(connection)
            self._current, self._shapes = installed(connection, self._source.sql), shapes_of(connection, self._source.sql)
            self._check_triggers()
            now = {name: described(connection, name) for _, name in self._source.tables}
        changed = {name for name, of in now.items() if of.columns != self._current[name].columns}
        moved = [name for name, of in now.items() if of.key != self._current[name].key]
        if moved:
            raise NotFollowable(f"the key of table {', '.join(moved)} was changed", hint=ANEW)
        if changed:
            self._make_anew(file, sorted(changed))
            self._follow_columns(file)
        else:
            self._version = version

    def _make_anew(self, file: SqliteFile, names: Sequence[str]) -> None:
        sql = self._source.sql
        with file.writing() as connection:
            number, there = len(shapes_of(connection, sql)), self._outbox.width(connection)
            for name in names:
                of, number = described(connection, name), number + 1
                for statement in (*sql.columns(there, len(of.columns)), *followed(sql, of, number)):
                    connection.execute(statement)
                there = max(there, len(of.columns))

    def _check_triggers(self) -> None:
        for _, name in self._source.tables:
            if name not in self._current:
                raise SlotLost(f"the triggers of table {name} are not there any more: changes since then are missing", hint=ANEW)


def _checked(at: SqlitePosition, about: About) -> SqlitePosition:
    """The position to go on from; SlotLost or NotFollowable if the outbox is not the one, or not as far as it should be."""
    if about.id != at.outbox:
        raise SlotLost("the outbox was made anew: changes in between are missing", hint=ANEW)
    if about.windows > at.windows:
        raise SlotLost(
            "the outbox was emptied of changes that the log does not have",
            f"{about.windows} times it was, and the log knows of {at.windows}: it was restored from an older copy",
            hint=ANEW,
        )
    if about.windows < at.removed or about.seq < max(at.seq, at.upto or 0):
        raise NotFollowable("the file is not as far as what was read from it", "it was replaced by an older copy", hint=ANEW)
    return at


def _version(connection: sqlite3.Connection) -> int:
    """Grows with each change of a table, an index or a trigger."""
    ((version,),) = connection.execute("pragma schema_version").fetchall()
    return int(version)

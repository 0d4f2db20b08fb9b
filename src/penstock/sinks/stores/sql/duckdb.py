"""A table of a DuckDB file, kept in step: rows from Arrow, deleted and inserted by key, and the marker, in one transaction."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import BadInput, SinkError, SinkUnavailable, install
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.stores.arguments import OnError, names, one_of
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.refusing import RowRefused, accepted
from penstock.sinks.stores.sql.duckdb_tables import Target, prepare, quoted
from penstock.sinks.stores.sql.tables import MARKERS, TableName, emptying
from penstock.storage.home import make_private

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

_PUT, _KEYS = "penstock_put", "penstock_keys"  # Arrow tables, as statements call them


@dataclass(frozen=True)
class DuckdbDefinition(StoreDefinition):
    """`stream.sink(duckdb(…))`"""

    path: str
    table: str
    key: tuple[str, ...] | None = None
    keep_open: bool = True
    on_error: OnError = "dead"

    kind: ClassVar[str] = "duckdb"

    @property
    def target(self) -> str:
        return self.table

    def emptied(self, flow: str, name: str) -> str:
        return f"in {os.path.abspath(self.path)}: {emptying(TableName.of(self.table), flow, name)}"

    def store(self, context: "SinkContext") -> "Store":
        return DuckdbStore(self, context.spec)


def duckdb(
    path: str | os.PathLike[str],
    table: str,
    *,
    key: str | Iterable[str] | None = None,
    keep_open: bool = True,
    on_error: OnError = "dead",
) -> DuckdbDefinition:
    """A table of a DuckDB file: `sales.sink(duckdb("warehouse.db", "sales"))`.

    File and `table` are made where they are missing; the table gains columns that the flow gains. `key` names the columns that tell
    rows apart; left out, they are those of the step, and rows that have none are appended. One process at a time may have a DuckDB
    file open; `keep_open=False` closes it after each epoch, so that others can read in between. `on_error`: a row that the table
    refuses (a constraint, a type) becomes a dead letter, or stops the flow. Needs the extra `duckdb`."""
    given = os.fspath(path)
    if not given or given.startswith(":memory:"):
        raise BadInput("a DuckDB in memory is gone when the flow stops", hint='name a file: duckdb("warehouse.db", …)')
    TableName.of(table)
    one_of("on_error", on_error, OnError)
    return DuckdbDefinition(given, table, names(key), keep_open, on_error)


class DuckdbStore:
    """One table. The markers of all sinks that write to its schema are in a table beside it."""

    def __init__(self, definition: DuckdbDefinition, spec: SinkSpec) -> None:
        self._definition, self._spec = definition, spec
        self._connection: DuckDBPyConnection | None = None
        self._target: Target | None = None

    @property
    def called(self) -> str:
        return f"table {self._definition.table} of DuckDB {self._definition.path}"

    def open(self) -> None:
        self.close()
        with self._translated("be opened"):
            self._connection = self._connected()
            self._target = Target.of(self._connection, TableName.of(self._definition.table), self._spec)
            prepare(self._connection, self._target, self.called)

    @contextmanager
    def transaction(self) -> Iterator["DuckdbTransaction"]:
        if self._target is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with self._translated("take an epoch"):
            self._connection = self._connection or self._connected()
            try:
                self._connection.begin()
                yield DuckdbTransaction(self._connection, self._target, self.called)
                self._connection.commit()
            except BaseException:
                with suppress(_library().Error):
                    self._connection.rollback()
                raise
            finally:
                if not self._definition.keep_open:
                    self._disconnect()

    def close(self) -> None:
        self._disconnect()
        self._target = None

    def _connected(self) -> "DuckDBPyConnection":
        path = Path(self._definition.path)
        make_private(path.absolute().parent)
        connection: DuckDBPyConnection = _library().connect(path)
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(_library().Error):
                self._connection.close()
            self._connection = None

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        library = _library()
        try:
            yield
        except library.Error as error:
            text = str(error)
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            if "lock on file" in text:
                raise SinkUnavailable(
                    f"{self.called} cannot {doing}: another process has the file open",
                    *lines,
                    hint="close it there; DuckDB lets one process at a time write a file, and nobody read it meanwhile",
                ) from error
            passing = isinstance(error, library.OperationalError | library.FatalException) and doing != "be opened"
            kind = SinkUnavailable if passing or "No space left" in text else SinkError
            raise kind(f"{self.called} cannot {doing}", *lines) from error


class DuckdbTransaction:
    one_moment = True

    def __init__(self, connection: "DuckDBPyConnection", target: Target, called: str) -> None:
        self._connection, self._target, self._spec, self._called = connection, target, target.spec, called
        self._found: Note | None = None
        self._tried = False  # whether rows were written since the transaction began

    def note(self) -> Note | None:
        self._found = self._noted()
        return self._found

    def keep(self, note: Note) -> None:
        marker = note.marker
        self._connection.execute(
            f"INSERT OR REPLACE INTO {self._target.name(MARKERS)} VALUES (?, ?, ?, ?, ?, ?)",
            [self._spec.flow, self._spec.name, marker.incarnation, marker.generation, marker.epoch, note.refused or None],
        )

    def write(self, changes: Changes) -> Sequence[Refusal]:
        refusals = accepted(lambda rows: self._try(changes.gone, rows), changes.put)
        if refusals:
            taken = np.ones(changes.put.num_rows, bool)
            taken[[refusal.row for refusal in refusals]] = False
            self._begin_again()
            self._delete(changes.gone, changes.put)
            self._insert(changes.put.filter(pa.array(taken)))
        return refusals

    def rows(self) -> Iterator[pa.Table]:
        statement = f"SELECT {', '.join(map(quoted, self._spec.schema.names))} FROM {self._target.name()}"
        yield self._connection.sql(statement).to_arrow_table()

    def _try(self, gone: pa.Table, put: pa.Table) -> None:
        """An error ends a transaction of DuckDB, which has no savepoints: each attempt begins anew."""
        library = _library()
        if self._tried:
            self._begin_again()
        self._tried = True
        self._delete(gone, put)
        try:
            self._insert(put)
        except (library.IntegrityError, library.DataError) as error:
            raise RowRefused(str(error).splitlines()[0]) from error

    def _begin_again(self) -> None:
        self._connection.rollback()
        self._connection.begin()
        if self._noted() != self._found:
            raise SinkUnavailable(f"{self._called} was written by another driver meanwhile")

    def _noted(self) -> Note | None:
        found = self._connection.execute(
            f"SELECT incarnation, generation, epoch, refused FROM {self._target.name(MARKERS)} WHERE flow = ? AND sink = ?",
            [self._spec.flow, self._spec.name],
        ).fetchall()  # all of it: a result that is not read to its end blocks the connection
        return next((Note(Marker(*line[:3]), bytes(line[3] or b"")) for line in found), None)

    def _delete(self, gone: pa.Table, put: pa.Table) -> None:
        """What goes, and what is replaced."""
        keys = pa.concat_tables([rows.select(list(self._spec.key)) for rows in ((gone,) if self._spec.unique else (gone, put))])
        if not keys.num_rows or not self._spec.key:
            return
        same = " AND ".join(
            f"t.{quoted(name)} {'IS NOT DISTINCT FROM' if column.null_count else '='} k.{quoted(name)}"
            for name, column in zip(keys.column_names, keys.columns, strict=True)
        )
        with self._registered(_KEYS, keys):
            self._connection.execute(f"DELETE FROM {self._target.name()} t USING {_KEYS} k WHERE {same}")

    def _insert(self, put: pa.Table) -> None:
        columns = ", ".join(map(quoted, self._spec.schema.names))
        with self._registered(_PUT, put.select(self._spec.schema.names)):
            self._connection.execute(f"INSERT INTO {self._target.name()} ({columns}) SELECT {columns} FROM {_PUT}")

    @contextmanager
    def _registered(self, name: str, table: pa.Table) -> Iterator[None]:
        """A table that statements can name. If one of them fails the rollback takes the name away."""
        self._connection.register(name, table)
        yield
        self._connection.unregister(name)


def _library() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise SinkError("DuckDB is not installed", hint=install("duckdb")) from error
    return duckdb

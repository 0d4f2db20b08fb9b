"""A view: rows that people and programs look at, in a database of their own, with every version they had."""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.errors import Mismatch, SinkError
from penstock.sinks import view_file
from penstock.sinks.port import Delivery, Marker, SinkSpec, nothing
from penstock.sinks.staged import staged_rows
from penstock.sinks.view_checks import Sums
from penstock.sinks.view_rows import ViewRows
from penstock.sinks.view_tables import KEPT_MARKERS
from penstock.storage.port import Storage

POINTS = ("view.begun", "view.rows", "view.marker", "view.committed")


class ViewSink:
    """Takes each epoch's rows and the marker in one SQLite transaction, synced to disk before `deliver` returns (WAL, FULL).

    `fail` is called with each of POINTS as it is passed."""

    def __init__(self, spec: SinkSpec, database: Path, storage: Storage, fail: Callable[[str], None] = nothing) -> None:
        self._meta = view_file.Meta.of(spec)
        self._path, self._storage, self._fail = database, storage, fail
        self._connection: sqlite3.Connection | None = None
        self._rows = ViewRows(self._meta.layout)

    def open(self, incarnation: str, generation: int) -> int:
        self.close()
        with view_file.refused(self._path, self._meta.name):
            if not self._path.exists():
                view_file.create(self._path, self._meta, incarnation, generation)
            try:
                return self._opened(incarnation, generation)
            except Mismatch:  # a version of the flow that never delivered anything may have left it
                self.close()
                with contextlib.closing(view_file.connect(self._path, self._meta.name)) as connection:
                    if not view_file.remake(connection, self._meta, incarnation, generation):
                        raise
                return self._opened(incarnation, generation)

    def _opened(self, incarnation: str, generation: int) -> int:
        self._connection = self._connected()
        return self._admitted(Marker(incarnation, generation, -1))

    def deliver(self, delivery: Delivery) -> None:
        with view_file.refused(self._path, self._meta.name), self._transaction() as connection:
            self._fail("view.begun")
            if self._admitted(delivery.marker) >= delivery.marker.epoch:
                return
            rows = staged_rows(self._storage, delivery.files, self._meta.schema, self._meta.updating)
            sums = self._rows.write(connection, rows, delivery.marker.epoch, self._held())
            self._fail("view.rows")
            self._mark(connection, delivery, sums)
            self._fail("view.marker")
        self._fail("view.committed")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        connection = view_file.connect(self._path, self._meta.name)
        try:
            view_file.reconcile(connection, self._meta)
            for statement in self._meta.layout.create_incoming():
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self.used()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def used(self) -> sqlite3.Connection:
        """The open database; SinkError before it is opened."""
        if self._connection is None:
            raise SinkError(f"view {self._meta.name!r} is not open", hint="call open() first")
        return self._connection

    def _admitted(self, ours: Marker) -> int:
        """The last epoch the view has, if we may write to it; else Mismatch."""
        with view_file.refused(self._path, self._meta.name):
            epoch, incarnation, generation, *_ = view_file.last_marker(self.used())[0]
        found = Marker(incarnation, generation, epoch)
        if found.incarnation != ours.incarnation:
            raise Mismatch(
                f"view {self._meta.name!r} belongs to another incarnation of flow {self._meta.flow!r}",
                f"it was written from state {found.incarnation}, this is state {ours.incarnation}",
                hint=view_file.start_over(self._meta.name),
            )
        if found.generation > ours.generation:
            raise Mismatch(
                f"view {self._meta.name!r} is written by a later start of flow {self._meta.flow!r}",
                f"start {found.generation} wrote epoch {found.epoch}, this is start {ours.generation}",
                hint="another driver has taken over; stop this one",
            )
        return found.epoch

    def _held(self) -> Sums:
        sums = view_file.last_marker(self.used())[1]
        assert sums is not None
        return sums

    def _mark(self, connection: sqlite3.Connection, delivery: Delivery, sums: Sums) -> None:
        """One line per epoch, so that a time can be turned into what was known then."""
        marker = delivery.marker
        inputs = json.dumps({topic: {str(p): offset for p, offset in ends.items()} for topic, ends in delivery.inputs.items()})
        line = (marker.epoch, marker.incarnation, marker.generation, inputs, delivery.clock, delivery.frontier)
        view_file.write_marker(connection, line, sums)
        connection.execute("DELETE FROM marker WHERE epoch <= ?", (marker.epoch - KEPT_MARKERS,))

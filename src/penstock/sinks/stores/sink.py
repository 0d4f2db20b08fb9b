"""A store as a sink: the rows of an epoch, or of several, and the marker in one transaction (G37)."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import SinkError, SinkUnavailable
from penstock.sinks.admission import admitted
from penstock.sinks.port import Delivery, Marker, SinkContext
from penstock.sinks.stores.changes import Keep, changes_of, merged
from penstock.sinks.stores.port import Changes, Note, Refusal, Store, Transaction

POINTS = ("store.begun", "store.rows", "store.marker", "store.committed")
REASON = "__reason"  # string: why the store refused the row, in what is kept of refused rows


class StoreSink:
    """Delivers to any store. An epoch that the store has is skipped, older drivers and other lives of the flow are refused.
    stops: whether a row that the store refuses stops the flow, or becomes a dead letter. keep: which of several rows with one key
    holds, where rows stay.

    `fail` of the context is called with each of POINTS as it is passed."""

    def __init__(self, context: SinkContext, store: Store, stops: bool = False, keep: Keep = "last") -> None:
        self._spec, self._storage, self._fail, self._refuse = context.spec, context.storage, context.fail, context.refuse
        self._store, self._stops, self._keep = store, stops, keep
        self._has = -1  # the last epoch that we know to be there

    def open(self, incarnation: str, generation: int) -> int:
        try:
            return self._opened(incarnation, generation)
        except BaseException:
            self._store.close()
            raise

    def _opened(self, incarnation: str, generation: int) -> int:
        self._store.open()
        with self._store.transaction() as transaction:
            note = transaction.note()
            epoch = self._admitted(note, Marker(incarnation, generation, -1))
            if note is None or note.marker.generation < generation:  # older drivers are fenced off from here on
                transaction.keep(Note(Marker(incarnation, generation, epoch), note.refused if note else b""))
        self._has = epoch
        if note and note.refused:  # a crash may have come between the store's commit and the dead letters
            self._refuse(note.marker, rows_refused(note.refused))
        return epoch

    def deliver(self, delivery: Delivery) -> None:
        self.deliver_together([delivery])

    def deliver_together(self, deliveries: Sequence[Delivery]) -> None:
        marker, refused = deliveries[-1].marker, b""
        with self._store.transaction() as transaction:
            self._fail("store.begun")
            has = self._admitted(transaction.note(), marker)
            if has < self._has:
                raise SinkUnavailable(
                    f"{self._store.called} has gone back from epoch {self._has} to {has}",
                    "it was restored from a copy, or emptied; what it lacks is delivered again, as far as it is kept",
                )
            new = [delivery.files for delivery in deliveries if delivery.marker.epoch > has]
            if not new:
                return
            changes = [changes_of(self._spec, self._storage, files, self._keep) for files in new]
            refused = self._write(transaction, merged(changes, self._spec, self._keep))
            self._fail("store.rows")
            transaction.keep(Note(marker, refused))
            self._fail("store.marker")
        self._has = marker.epoch
        self._fail("store.committed")
        if refused:
            self._refuse(marker, rows_refused(refused))

    def close(self) -> None:
        self._store.close()

    def _admitted(self, note: Note | None, ours: Marker) -> int:
        start_over = "empty it and take away what Penstock noted there, or name another target; then `penstock flow reset`"
        return admitted(self._store.called, self._spec.flow, note.marker if note else None, ours, start_over)

    def _write(self, transaction: Transaction, changes: Changes) -> bytes:
        if not changes.put.num_rows and not changes.gone.num_rows:
            return b""
        refusals = transaction.write(changes)
        if refusals and self._stops:
            first = refusals[0]
            raise SinkError(
                f"{self._store.called} refuses a row: {first.reason}",
                f"{len(refusals)} of {changes.put.num_rows} rows of this epoch",
                str({name: changes.put[name][first.row].as_py() for name in self._spec.schema.names})[:500],
                hint='mend the table, or let such rows become dead letters: on_error="dead"',
            )
        return _kept(changes.put, refusals) if refusals else b""


def _kept(rows: pa.Table, refusals: Sequence[Refusal]) -> bytes:
    table = rows.take([refusal.row for refusal in refusals])
    table = table.append_column(REASON, pa.array([refusal.reason for refusal in refusals], pa.string()))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def rows_refused(kept: bytes) -> pa.Table:
    """The rows that were refused, each with its REASON."""
    return pa.ipc.open_stream(kept).read_all()

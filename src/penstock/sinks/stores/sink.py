"""A store as a sink: the rows of an epoch, or of several, and the marker in one transaction (G37)."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.errors import SinkError, SinkUnavailable
from penstock.sinks.admission import admitted
from penstock.sinks.port import Delivery, Marker, SinkContext
from penstock.sinks.stores.changes import Keep, changes_of, merged
from penstock.sinks.stores.port import Changes, Note, Refusal, Store, Transaction

POINTS = ("store.begun", "store.rows", "store.marker", "store.committed")
EMPTIED = "empty it, and take away what Penstock noted there"
IDLE = 8  # epochs without rows behind which the marker moves too: fewer than the engine keeps
REASON = "__reason"  # string: why the store refused the row, in what is kept of refused rows


class StoreSink:
    """Delivers to any store. An epoch that the store has is skipped, older drivers and other lives of the flow are refused. Epochs
    without rows leave the store alone, but for its marker now and then: the engine must still have what is behind it.
    stops: whether a row that the store refuses stops the flow, or becomes a dead letter. keep: which of several rows with one key
    holds, where rows stay. emptied: how people empty the store.

    `fail` of the context is called with each of POINTS as it is passed."""

    def __init__(
        self, context: SinkContext, store: Store, stops: bool = False, keep: Keep = "last", emptied: str = EMPTIED
    ) -> None:
        self._spec, self._storage, self._fail, self._refuse = context.spec, context.storage, context.fail, context.refuse
        self._store, self._stops, self._keep, self._emptied = store, stops, keep, emptied
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
        if not any(delivery.files for delivery in deliveries) and marker.epoch < self._has + IDLE:
            return  # given again by the next start, to no effect
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
            changes = [changes_of(self._spec, self._storage, files, self._keep) for files in new if files]
            refused = self._write(transaction, merged(changes, self._spec, self._keep), marker.epoch) if changes else b""
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
        return admitted(self._store.called, self._spec.flow, note.marker if note else None, ours, start_over(self._emptied))

    def _write(self, transaction: Transaction, changes: Changes, epoch: int) -> bytes:
        if not changes.put.num_rows and not changes.gone.num_rows:
            return b""
        refusals = transaction.write(replace(changes, epoch=epoch))
        if refusals and self._stops:
            raise refusing(self._store.called, changes.put.select(self._spec.schema.names), refusals)
        return kept(with_reasons(changes.put, refusals)) if refusals else b""


def start_over(emptied: str) -> str:
    """What to do with a store that belongs to another life of the flow."""
    return f"start it over, and run again: {emptied}. Or name another target"


def refusing(called: str, rows: pa.Table, refusals: Sequence[Refusal]) -> SinkError:
    """What stops a flow whose store refuses some of the rows."""
    first = refusals[0]
    return SinkError(
        f"{called} refuses a row: {first.reason}",
        f"{len(refusals)} of {rows.num_rows} rows of this epoch",
        str(rows.slice(first.row, 1).to_pylist()[0])[:500],
        hint='mend the table, or let such rows become dead letters: on_error="dead"',
    )


def with_reasons(rows: pa.Table, refusals: Sequence[Refusal]) -> pa.Table:
    """Those of the rows that were refused, each with its REASON."""
    table = rows.take([refusal.row for refusal in refusals])
    return table.append_column(REASON, pa.array([refusal.reason for refusal in refusals], pa.string()))


def kept(refused: pa.Table) -> bytes:
    """Refused rows as a note keeps them."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, refused.schema) as writer:
        writer.write_table(refused)
    return out.getvalue().to_pybytes()


def rows_refused(noted: bytes) -> pa.Table:
    """The rows that were refused, each with its REASON."""
    return pa.ipc.open_stream(noted).read_all()

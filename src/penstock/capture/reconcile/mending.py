"""What differs, written through the log: in batches of the capture's own writer, marked as repairs."""

from collections.abc import Mapping

import pyarrow as pa

from penstock.capture.port import Table, TableFacts
from penstock.capture.reconcile.results import ReconcileProgress, ReconcileReport
from penstock.capture.repairs import Marked, Repair, Repairs
from penstock.capture.writing.envelopes import wrapped
from penstock.capture.writing.writer import Writer
from penstock.core.arrow import values_in

BATCH_ROWS, BATCH_BYTES = 50_000, 32 << 20


class LogMender:
    """A mender of topics. The lock of the capture is held, and the writer open, with nothing unfinished."""

    def __init__(
        self,
        writer: Writer,
        repairs: Repairs,
        marked: Marked,
        time: int,
        facts: Mapping[Table, TableFacts],
        report: ReconcileReport,
    ) -> None:
        self._writer, self._repairs, self._marked, self._time = writer, repairs, marked, time
        self._facts, self._report = facts, report
        self._table: Table | None = None
        self._keys: list[pa.Array] = []
        self._rows: list[pa.Array] = []
        self._size = 0
        self.written: dict[Table, int] = {}

    def rows(self, table: Table, keys: pa.Array, rows: pa.Array) -> None:
        if table != self._table:
            self.flush()
            self._table = table
        self._keys.append(keys)
        self._rows.append(rows)
        self._size += rows.nbytes
        if sum(map(len, self._keys)) >= BATCH_ROWS or self._size >= BATCH_BYTES:
            self.flush()

    def gone(self, table: Table, keys: pa.Array) -> None:
        told = wrapped(values_in(keys, str)) if self._writer.envelope.flat else keys
        self.rows(table, told, pa.nulls(len(told), pa.utf8()))

    def flush(self) -> None:
        count = sum(map(len, self._keys))
        if self._table and count:
            repair = Repair(self._table, self._facts[self._table], pa.concat_arrays(self._keys), pa.concat_arrays(self._rows))
            self._writer.write(self._repairs.batch(repair, self._writer.state, self._marked, self._time))
            self._repairs.clear()
            self.written[self._table] = self.written.get(self._table, 0) + count
            self._report(ReconcileProgress("repair", self._table, self.written[self._table]))
        self._keys, self._rows, self._size = [], [], 0

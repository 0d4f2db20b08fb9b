"""Rows on their way into a file: what is much is compressed as it comes, so that it is never held whole."""

import pyarrow as pa

from penstock.engine.state.runs import one_batch
from penstock.storage.port import Storage
from penstock.storage.sealed import write_sealed

BATCH = 1 << 17  # rows; a pile that never gets so high is written as it is
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")


class Pile:
    """Tables of one schema that become one Arrow IPC file."""

    def __init__(self, batch: int = BATCH) -> None:
        self.rows, self._batch = 0, batch
        self._held: list[pa.Table] = []
        self._sink: pa.BufferOutputStream | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    def append(self, table: pa.Table) -> None:
        self._held.append(table)
        self.rows += table.num_rows
        if sum(t.num_rows for t in self._held) >= self._batch:
            self._flush(_PACKED)

    def write(self, storage: Storage, stem: str, ending: str = "arrow") -> tuple[str, int]:
        """The file, synced; returns its name and size."""
        self._flush(_PACKED if self._writer else None)
        assert self._writer
        assert self._sink
        self._writer.close()
        data = self._sink.getvalue()
        return write_sealed(storage, stem, ending, data), int(data.size)

    def _flush(self, options: pa.ipc.IpcWriteOptions | None) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held, promote_options="default")
        self._held = []
        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            self._writer = pa.ipc.new_file(self._sink, rows.schema, options=options)
        self._writer.write_batch(one_batch(rows))

"""What a store should hold: the changes of epochs, one behind the other, brought together by key."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import INDEX, LIVE, POSITION, TIME
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.changes import Keep
from penstock.sinks.stores.port import Changes
from penstock.storage.port import Storage
from penstock.storage.sealed import read_sealed, write_sealed

RANGES = 16  # parts of the rows, by the hash of their keys: one of them is in memory at a time
SPILL = 1_000_000  # changes that are kept in memory


def key_of(spec: SinkSpec) -> tuple[str, ...]:
    """The columns that tell rows apart; () where none do, and rows are only added."""
    return spec.key or ((POSITION,) if spec.updating else ())


@dataclass
class Content:
    """The rows of one sink as its epochs give them, in files where there are many. keep: which of several rows with one key holds,
    where rows stay."""

    spec: SinkSpec
    storage: Storage
    keep: Keep = "last"
    kept: Callable[[pa.Table, SinkSpec], pa.Table] = lambda rows, spec: rows  # what the store keeps of rows
    _pending: list[pa.Table] = field(default_factory=list)
    _spilled: dict[int, list[str]] = field(default_factory=dict)

    def add(self, changes: Changes) -> None:
        """The changes of the next epoch, or of several that were merged."""
        for rows, live in ((changes.put, True), (changes.gone, False)):
            if rows.num_rows:
                flag = pa.repeat(pa.scalar(live), rows.num_rows)
                self._pending.append(rows.select(self._columns).append_column(LIVE, flag))
        if sum(rows.num_rows for rows in self._pending) >= SPILL:
            self._spill()

    def parts(self) -> Iterator[Changes]:
        """The rows that should be there, and the last row of each key that should not be any more; a range of keys at a time."""
        if not self._spilled:
            yield self._folded(self._pending)
            return
        self._spill()
        for number in range(RANGES):
            yield self._folded([pa.ipc.open_file(read_sealed(self.storage, path)).read_all() for path in self._spilled[number]])

    @property
    def _columns(self) -> list[str]:
        return [*self.spec.schema.names, TIME, POSITION]

    def _folded(self, tables: Sequence[pa.Table]) -> Changes:
        rows = pa.concat_tables([self._empty(), *tables])
        if key := key_of(self.spec):
            frame = pl.DataFrame(pl.from_arrow(rows.select([*key, LIVE]))).with_row_index(INDEX)
            if self.keep == "first" and not self.spec.updating:
                frame = frame.unique(key, keep="first", maintain_order=True)
            else:
                frame = frame.unique(key, keep="last", maintain_order=True)
            rows = rows.take(frame[INDEX].to_arrow())
        live = rows[LIVE]
        put = self.kept(rows.filter(live).drop_columns([LIVE]), self.spec)
        return Changes(put, rows.filter(pc.invert(live)).drop_columns([LIVE]))

    def _empty(self) -> pa.Table:
        more = [pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary()), pa.field(LIVE, pa.bool_())]
        return pa.schema([*self.spec.schema.arrow, *more]).empty_table()

    def _spill(self) -> None:
        rows = pa.concat_tables([self._empty(), *self._pending])
        key = key_of(self.spec) or tuple(self.spec.schema.names)
        hashes = pl.DataFrame(pl.from_arrow(rows.select(list(key)))).hash_rows().to_numpy()
        for number in range(RANGES):
            part = rows.filter(pa.array(hashes % np.uint64(RANGES) == number))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, part.schema) as writer:
                writer.write_table(part)
            path = write_sealed(self.storage, f"content/{number}", "arrow", sink.getvalue())
            self._spilled.setdefault(number, []).append(path)
        self._pending = []

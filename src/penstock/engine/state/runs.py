"""State as files: immutable Arrow runs named by the decision, opened once per process, merged eight by eight."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.core.columns import HASH
from penstock.core.hashing import bucket_of
from penstock.core.time import NEVER
from penstock.engine.state.refs import RunRef
from penstock.errors import Damaged, NotFound
from penstock.kernels.port import Changes, State
from penstock.storage.port import Storage
from penstock.storage.sealed import read_sealed, write_sealed

CARRIED = "carried.arrow"  # how files end that only the epoch itself needs: rows for Spark SQL and the next segment
FAN = 8  # runs of one level that are merged into one of the next
SMALL = 1 << 16  # rows; a run of fewer begins on level 0, one of less than eight times as many on level 1, …


class Merging(Protocol):
    """Whoever has state: a kernel, or a source that sets clocks right."""

    def merge(self, table: str, runs: Sequence[pa.Table]) -> pa.Table: ...


@dataclass
class StateWriter:
    """Collects the runs that one task writes: one Arrow file per step and table, a batch per run."""

    storage: Storage
    epoch: int
    runs: dict[tuple[str, str], list[tuple[RunRef, pa.Table]]] = field(default_factory=lambda: defaultdict(list))
    paths: list[str] = field(default_factory=list)  # what was written
    small: int = SMALL

    def add(self, step: str, bucket: int, table: str, slot: int, level: int, rows: pa.Table) -> None:
        ref = RunRef(step, bucket, table, slot, level, "", 0, rows.num_rows)
        self.runs[step, table].append((ref, rows))

    def write(self) -> list[RunRef]:
        """Writes and syncs every file; names are unique, so another attempt of the same task harms nobody."""
        refs = []
        for (step, table), runs in self.runs.items():
            path, _ = write_arrow(self.storage, f"state/{step}/{self.epoch}-{table}", [rows for _, rows in runs])
            self.paths.append(path)
            refs += [ref._replace(file=path, batch=i) for i, (ref, _) in enumerate(runs)]
        return refs


def write_arrow(storage: Storage, stem: str, tables: Sequence[pa.Table], ending: str = "arrow") -> tuple[str, int]:
    """One Arrow IPC file with one batch per table, synced; returns its name and size."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_batch(one_batch(table))
    data = sink.getvalue()
    return write_sealed(storage, stem, ending, data), int(data.size)


def read_arrow(storage: Storage, path: str) -> pa.RecordBatchFileReader:
    """The file, checked against the checksum in its name."""
    return pa.ipc.open_file(read_sealed(storage, path))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)


def read_run(storage: Storage, ref: RunRef) -> pa.Table:
    reader = _open(storage, ref.file)  # type: ignore[arg-type]
    try:
        return pa.Table.from_batches([reader.get_batch(ref.batch)])
    except ValueError as error:  # also ArrowInvalid
        raise _damaged(ref.file, error) from error


def batch_rows(storage: Storage, path: str, batch: int) -> int:
    """Rows of one batch of a state file."""
    return int(read_run(storage, RunRef("", 0, "", 0, 0, path, batch, 0)).num_rows)


def file_size(storage: Storage, path: str) -> int:
    """Bytes of a state file, which is not read for it."""
    try:
        return int(storage.read(path).size)
    except NotFound as error:
        raise _damaged(path, error) from error


@lru_cache(maxsize=1024)
def _open(storage: Storage, path: str) -> pa.RecordBatchFileReader:
    """Open maps are kept by file name: files are immutable, so what is kept is never stale."""
    try:
        return read_arrow(storage, path)
    except (NotFound, Damaged, pa.ArrowInvalid) as error:
        raise _damaged(path, error) from error


def forget() -> None:
    """Closes the state files that this process keeps open, as if it had just begun."""
    _open.cache_clear()


def _damaged(path: str, cause: Exception) -> Damaged:
    return Damaged(
        f"the state file {path} cannot be read: {str(cause).splitlines()[0]}",
        hint="restore it from a copy; or start the flow over from the log: penstock flow reset FLOW",
    )


def load_state(
    storage: Storage,
    refs: Iterable[RunRef],
    frontiers: tuple[int, ...],
    clock: tuple[int, int] = (0, 0),
    answered: int = NEVER,
) -> State:
    """The state of one step in one bucket; runs open when they are asked for."""
    tables: dict[str, dict[int, list[Callable[[], pa.Table]]]] = defaultdict(lambda: defaultdict(list))
    for ref in refs:
        tables[ref.table][ref.slot].append(_Run(storage, ref))
    return State({t: dict(slots) for t, slots in tables.items()}, frontiers, clock, answered)


@dataclass(frozen=True)
class _Run:
    storage: Storage
    ref: RunRef

    def __call__(self) -> pa.Table:
        return read_run(self.storage, self.ref)


def apply_changes(
    kernel: Merging, storage: Storage, writer: StateWriter, refs: Sequence[RunRef], bucket: int, step: str, changes: Changes
) -> list[RunRef]:
    """The runs that stay; what is new is given to the writer. Eight runs of a level become one of the next.

    A large run begins on a level of its size, and takes in the smaller ones: so that few small runs never rewrite it, and runs of
    lower levels are always the newer ones."""
    kept: dict[tuple[str, int], list[RunRef]] = defaultdict(list)
    for ref in refs:
        kept[ref.table, ref.slot].append(ref)
    for place in changes.drop:
        kept.pop(place, None)
    for place, rows in changes.add.items():
        if place in changes.drop or not rows.num_rows:
            continue
        level = _level(rows, writer.small)
        smaller = [r for r in kept[place] if r.level < level]  # they are all newer than what lies above
        kept[place] = [r for r in kept[place] if r.level >= level]
        pieces = [*(read_run(storage, r) for r in smaller), rows]
        while len(same := [r for r in kept[place] if r.level == level]) >= FAN - 1:
            kept[place] = [r for r in kept[place] if r.level != level]
            pieces = [*(read_run(storage, r) for r in same), *pieces]
            level += 1
        merged = kernel.merge(place[0], pieces) if len(pieces) > 1 else rows
        writer.add(step, bucket, *place, level, merged)
    return [ref for refs in kept.values() for ref in refs]


def _level(rows: pa.Table, small: int) -> int:
    level, many = 0, small
    while rows.num_rows >= many:
        level, many = level + 1, many * FAN
    return level


def rebucket(storage: Storage, writer: StateWriter, refs: Iterable[RunRef], step: str, bucket: int, buckets: int) -> None:
    """Cuts runs of another number of buckets down to this bucket's hash range and writes them anew."""
    for ref in refs:
        rows = read_run(storage, ref)
        mine = bucket_of(rows.column(HASH).to_numpy(), buckets) == bucket
        if mine.any():
            first, last = np.flatnonzero(mine)[[0, -1]]
            writer.add(step, bucket, ref.table, ref.slot, ref.level, rows.slice(int(first), int(last - first + 1)))

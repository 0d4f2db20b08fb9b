"""Rows on their way from a Spark task into a topic: staged in files, a file for each partition of the topic, then appended."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.core.columns import EVENT_TIME, KEY
from penstock.core.schema import TIMESTAMP
from penstock.errors import BadRow, StorageError
from penstock.log.intake.rows_in import Intake
from penstock.log.intake.stored_rows import physical
from penstock.log.port import Topic, TopicSpec
from penstock.log.producer import FRAME_BYTES
from penstock.storage.port import Appender, Storage


class Part(NamedTuple):
    """A staged file: the rows that one task has for one partition of the topic."""

    partition: int
    path: str
    rows: int


def stage(storage: Storage, directory: str, topic: Topic, batches: Iterable[pa.RecordBatch]) -> list[Part]:
    """Writes the rows to new files in the directory, durably, as the topic will store them. BadRow if it would not take one."""
    intake, stage_of = Intake(topic.spec, objects=False), _Stage(storage, directory, topic.spec)
    try:
        for batch in batches:
            prepared = intake.table(pa.Table.from_batches([batch]))
            if prepared.rejected:
                raise _refused(topic.spec, len(prepared.rejected), prepared.rejected[0].reason)
            for number, rows, _ in prepared.by_partition():
                stage_of.write(number, rows.batch)
        return stage_of.finished()
    finally:
        stage_of.close()


def staged_schema(spec: TopicSpec) -> pa.Schema:
    """The columns of a staged file."""
    beside: list[pa.Field] = [pa.field(KEY, pa.binary())] if spec.key else []
    beside += [pa.field(EVENT_TIME, TIMESTAMP)] if spec.time and not spec.schema else []
    return pa.schema([*physical(spec.schema), *beside])


def frames(storage: Storage, parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    """The rows of the files, in their order, in batches of a frame's size. The same files give the same frames."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for part in parts:
        for batch in _pieces(storage, part):
            if waiting and size + batch.nbytes > FRAME_BYTES:
                yield _joined(waiting)
                waiting, size = [], 0
            waiting.append(batch)
            size += batch.nbytes
    if waiting:
        yield _joined(waiting)


class _Stage:
    """The open files of one task."""

    def __init__(self, storage: Storage, directory: str, spec: TopicSpec) -> None:
        self._storage, self._directory, self._schema = storage, directory, staged_schema(spec)
        self._open: dict[int, tuple[str, Appender]] = {}
        self._rows: dict[int, int] = {}

    def write(self, partition: int, rows: pa.RecordBatch) -> None:
        if partition not in self._open:
            path = f"{self._directory}/{uuid.uuid4().hex}-{partition}.arrows"
            self._open[partition] = (path, self._storage.append(path))
            self._open[partition][1].write(self._schema.serialize())
        self._open[partition][1].write(self._aligned(rows).serialize())
        self._rows[partition] = self._rows.get(partition, 0) + rows.num_rows

    def finished(self) -> list[Part]:
        for _, file in self._open.values():
            file.sync()
        return [Part(partition, path, self._rows[partition]) for partition, (path, _) in sorted(self._open.items())]

    def close(self) -> None:
        for _, file in self._open.values():
            file.close()

    def _aligned(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in which no row has a key comes without that column."""
        there = rows.schema.names
        columns = [rows.column(f.name) if f.name in there else pa.nulls(rows.num_rows, f.type) for f in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _pieces(storage: Storage, part: Part) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in pa.ipc.open_stream(pa.BufferReader(storage.read(part.path))):
        rows += batch.num_rows
        step = max(1, batch.num_rows // (batch.nbytes // FRAME_BYTES + 1))
        yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))
    if rows != part.rows:
        raise StorageError(f"the staged file {part.path} has {rows:,} rows, and {part.rows:,} were written")


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _refused(spec: TopicSpec, count: int, reason: str) -> BadRow:
    more = f"and {count - 1:,} more of the same batch" if count > 1 else "it is the first of its batch"
    return BadRow(
        f"topic {spec.name} does not take a row of this query",
        reason,
        more,
        hint="filter such rows out, or mend them, in the query",
    )

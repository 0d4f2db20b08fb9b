"""Rows on their way out of a topic: stored batches as batches of the newest schema."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.errors import NotFound
from penstock.log.file.frame import Layout
from penstock.log.intake.stored_rows import physical
from penstock.log.port import TopicSpec


class Decoder:
    """Decodes the batches of one topic, with all versions of its schema."""

    def __init__(self, spec: TopicSpec, schemas: Sequence[Schema | None], columns: Sequence[str] | None) -> None:
        self._spec, self._columns = spec, columns
        self._schemas = list(schemas)
        self._wanted = check_columns(spec, columns)
        self._plans: dict[Layout, tuple[pa.Schema, pa.Schema]] = {}

    def knows(self, layout: Layout) -> bool:
        return layout.version < len(self._schemas)

    def with_schemas(self, schemas: Sequence[Schema | None]) -> "Decoder":
        return Decoder(self._spec, schemas, self._columns)

    def decode(self, data: pa.Buffer, layout: Layout) -> pa.RecordBatch:
        """The rows of an encoded batch, without copying them."""
        return self.shaped(pa.ipc.read_record_batch(data, self._plan(layout)[0]), layout)

    def shaped(self, batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
        """The columns asked for; those that were added to the schema later are null."""
        stored, given = self._plan(layout)
        if stored is given:
            return batch
        present = set(stored.names)
        columns = [batch.column(f.name) if f.name in present else pa.nulls(batch.num_rows, f.type) for f in given]
        return pa.RecordBatch.from_arrays(columns, schema=given)

    def _plan(self, layout: Layout) -> tuple[pa.Schema, pa.Schema]:
        plan = self._plans.get(layout)
        if plan is None:
            stored = physical(self._schemas[layout.version], layout.system)
            given = physical(self._schemas[-1], layout.system)
            if self._wanted is not None:
                given = pa.schema([f for f in given if f.name in self._wanted or f.name.startswith("__")])
            plan = self._plans[layout] = (stored, stored if given.equals(stored) else given)
        return plan


def check_columns(spec: TopicSpec, columns: Sequence[str] | None) -> set[str] | None:
    """The columns asked for; NotFound for one that the topic has not."""
    if columns is None:
        return None
    names = physical(spec.schema).names
    for column in columns:
        if column not in names and not column.startswith("__"):
            raise NotFound(f"topic {spec.name} has no column {column!r}", f"its columns are {', '.join(names)}")
    return set(columns)

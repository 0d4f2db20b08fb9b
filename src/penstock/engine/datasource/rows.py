"""Records of a topic as rows of the schema that a Spark query wants: typed columns, raw values, or JSON decoded."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.core.columns import (
    SHOWN_APPEND_TIME,
    SHOWN_HEADERS,
    SHOWN_KEY,
    SHOWN_OFFSET,
    SHOWN_OP,
    SHOWN_PARTITION,
    SHOWN_TIME,
    VALUE,
)
from penstock.core.schema import TIMESTAMP, Schema, type_text
from penstock.errors import BadRow, BadSchema
from penstock.log.consumer import output_names, read
from penstock.log.intake.codec import decode_json
from penstock.log.port import Topic, TopicSpec

_SYSTEM_TYPES = {
    SHOWN_PARTITION: pa.int32(),
    SHOWN_OFFSET: pa.int64(),
    SHOWN_KEY: pa.binary(),
    SHOWN_TIME: TIMESTAMP,
    SHOWN_APPEND_TIME: TIMESTAMP,
    SHOWN_HEADERS: pa.map_(pa.string(), pa.binary()),
    SHOWN_OP: pa.string(),
}


def default_schema(spec: TopicSpec, system: bool) -> pa.Schema:
    """What a topic looks like when the query names no schema."""
    own = list(spec.schema.arrow) if spec.schema else [pa.field(VALUE, pa.binary())]
    if not system:
        return pa.schema(own)
    return pa.schema([*(f.with_nullable(True) for f in own), *_system_fields(spec)])  # a delete holds its key, and often no more


def _system_fields(spec: TopicSpec) -> list[pa.Field]:
    return [pa.field(name, _SYSTEM_TYPES[plain]) for plain, name in output_names(spec).items()]


@dataclass(frozen=True)
class Shape:
    """How the records of a topic become the rows of a schema. Picklable: tasks get it."""

    spec: TopicSpec
    wanted: pa.Schema
    json: Schema | None  # the columns decoded from the values of a raw topic; None: none are

    @classmethod
    def of(cls, spec: TopicSpec, wanted: pa.Schema, system: bool) -> "Shape":
        """BadSchema if the topic cannot be read that way."""
        beside = {f.name: f.type for f in _system_fields(spec)} if system else {}
        own = [f for f in wanted if f.name not in beside]
        for f in wanted:
            if f.name in beside:
                _check_type(spec, f, beside[f.name])
        if spec.schema:
            for f in own:
                if f.name not in spec.schema:
                    raise BadSchema(f"topic {spec.name} has no column {f.name!r}", f"its columns are {spec.schema.ddl()}")
                _check_type(spec, f, spec.schema.type(f.name))
            return cls(spec, wanted, None)
        raw = not own or [(f.name, f.type) for f in own] == [(VALUE, pa.binary())]
        return cls(spec, wanted, None if raw else Schema.from_arrow(pa.schema(own)))

    def rows(self, topic: Topic, partition: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The rows in [start, stop) of a partition, a batch a frame."""
        for table in read(topic, partitions=[partition], start={partition: start}, stop={partition: stop}, whole=True):
            self._refuse_deletes(table, partition)
            found = {name: table.column(name) for name in table.column_names}
            if self.json:
                found |= self._decoded(table, partition)
            columns = [_cast(found[f.name], f) for f in self.wanted]
            yield from pa.Table.from_arrays(columns, schema=self.wanted).combine_chunks().to_batches()

    def _refuse_deletes(self, table: pa.Table, partition: int) -> None:
        """A delete without its op would look like a row."""
        names = output_names(self.spec)
        ops = table.column(names[SHOWN_OP])
        if not self.spec.schema or names[SHOWN_OP] in self.wanted.names or ops.null_count == len(ops):
            return
        offset = table.column(names[SHOWN_OFFSET])[ops.is_valid().to_pylist().index(True)].as_py()
        raise BadRow(
            f"the record at {self.spec.name}/{partition}, offset {offset}, is a delete, and the query would take it for a row",
            hint=f"set includeSystemColumns: the column `{names[SHOWN_OP]}` tells deletes from rows",
        )

    def _decoded(self, table: pa.Table, partition: int) -> dict[str, pa.ChunkedArray]:
        assert self.json
        decoded = decode_json(table.column(VALUE), self.json)
        if decoded.rejected:
            first = decoded.rejected[0]
            offset = table.column(output_names(self.spec)[SHOWN_OFFSET])[first.index].as_py()
            raise BadRow(
                f"the record at {self.spec.name}/{partition}, offset {offset}, does not fit the schema of the query",
                first.reason,
                hint="read `value` without a schema and decode it with from_json, which gives null for such a record",
            )
        return {name: decoded.table.column(name) for name in self.json.names}


def _check_type(spec: TopicSpec, wanted: pa.Field, found: pa.DataType) -> None:
    normal = Schema.from_arrow(pa.schema([pa.field(wanted.name, wanted.type)])).type(wanted.name)
    if type_text(normal) != type_text(found):
        raise BadSchema(
            f"column {wanted.name!r} of topic {spec.name} is {type_text(found)}, not {type_text(normal)}",
            hint="leave .schema(…) out, and cast in a select",
        )


def _cast(column: pa.ChunkedArray, f: pa.Field) -> pa.ChunkedArray:
    return column if column.type == f.type else column.cast(f.type)

"""Topics as a Spark sink: tasks stage their rows, the driver appends them when all tasks are done."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.core.columns import VALUE
from penstock.core.schema import Schema
from penstock.engine.datasource.ingest import Ingest
from penstock.engine.datasource.options import WriteOptions
from penstock.engine.datasource.staging import Part, frames, stage
from penstock.errors import AlreadyThere, BadInput, Mismatch, NotFound, PenstockError, StorageError
from penstock.log.intake.rows_in import check_settings, fitted_table
from penstock.log.open import open_log
from penstock.log.port import Topic, TopicSpec
from penstock.storage.local import LocalStorage

# Local properties that Spark gives the jobs of a stream. The id is kept in the checkpoint: it says which checkpoint this is.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]  # pyspark brings no types along
    """What a task tells the driver."""

    topic_id: str
    checkpoint: str = ""
    parts: list[Part] = field(default_factory=list)


class TopicWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark brings no types along
    """The rows of a DataFrame, added once the job has succeeded. A frame is added whole or not at all."""

    def __init__(self, options: WriteOptions) -> None:
        self._options, self._directory = options, f"{options.topic}/write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        topic = _open(self._options)
        return Staged(topic.id, parts=stage(_staging(self._options), self._directory, topic, iterator))

    def commit(self, messages: Sequence[Staged | None]) -> None:
        topic, storage, added = _same_topic(self._options, messages), _staging(self._options), 0
        parts = _parts(messages)
        try:
            for number in sorted({part.partition for part in parts}):
                for rows in frames(storage, [part for part in parts if part.partition == number]):
                    topic.append(number, rows)
                    added += rows.num_rows
        except PenstockError as error:
            all_rows = sum(part.rows for part in parts)
            raise StorageError(
                f"{added:,} of {all_rows:,} rows are in topic {topic.spec.name}, the others are not: {error}"
            ) from error
        storage.remove(self._directory)

    def abort(self, messages: Sequence[Staged | None]) -> None:
        _staging(self._options).remove(self._directory)


class TopicStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark brings no types along
    """The rows of a stream, each batch added exactly once (see datasource_ingest)."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        checkpoint, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        topic = _open(self._options)
        ingest = self._ingest(topic, checkpoint)
        return Staged(topic.id, checkpoint, stage(_staging(self._options), ingest.staging(int(batch)), topic, iterator))

    def commit(self, messages: Sequence[Staged | None], batchId: int) -> None:
        topic = _same_topic(self._options, messages)
        for checkpoint in {message.checkpoint for message in messages if message}:
            self._ingest(topic, checkpoint).commit(batchId, _parts(messages))

    def abort(self, messages: Sequence[Staged | None], batchId: int) -> None:
        with suppress(NotFound):
            topic = _open(self._options)
            for checkpoint in {message.checkpoint for message in messages if message}:
                self._ingest(topic, checkpoint).abandon(batchId, _parts(messages))

    def _ingest(self, topic: Topic, checkpoint: str) -> Ingest:
        assert self._options.writer
        return Ingest(_staging(self._options), topic, self._options.writer, checkpoint)


def prepared_topic(options: WriteOptions, schema: pa.Schema) -> Topic:
    """The topic, made if it is missing; an error if it does not take rows of this schema, or is not as the options say."""
    log = open_log(options.home)
    try:
        topic = log.topic(options.topic)
    except NotFound:
        with suppress(AlreadyThere):  # another job was quicker; its topic is looked at like any other
            log.create(_new_spec(options, schema))
        topic = log.topic(options.topic)
    _check_settings(topic.spec, options)
    _check_columns(topic.spec, schema)
    return topic


def _new_spec(options: WriteOptions, schema: pa.Schema) -> TopicSpec:
    nullable = Schema.from_arrow(pa.schema([f.with_nullable(True) for f in schema]))
    spec = TopicSpec(options.topic, options.partitions or 1, nullable, options.time, options.key)
    spec = replace(spec, durability=options.durability or spec.durability)
    check_settings(spec)
    return spec


def _check_settings(spec: TopicSpec, options: WriteOptions) -> None:
    if spec.writer:
        raise Mismatch(
            f"topic {spec.name} is written by flow {spec.writer!r}, which alone may write it", hint="write to another topic"
        )
    for name in ("key", "time", "partitions", "durability"):
        wanted, found = getattr(options, name), getattr(spec, name)
        if wanted is not None and wanted != found:
            raise BadInput(
                f"topic {spec.name} is there already, with {name} {found!r} and not {wanted!r}",
                hint=f"leave the option {name} out, or write to another topic",
            )


def _check_columns(spec: TopicSpec, schema: pa.Schema) -> None:
    """As the tasks will find them, but told before they run."""
    if spec.schema:
        fitted_table(schema.empty_table(), spec)
    elif schema.names != [VALUE]:
        raise BadInput(
            f"topic {spec.name} is raw: it takes one column, {VALUE!r}, not {', '.join(schema.names)}",
            hint='df.selectExpr("to_json(struct(*)) as value") makes one of all',
        )


def _open(options: WriteOptions) -> Topic:
    return open_log(options.home).topic(options.topic)


def _staging(options: WriteOptions) -> LocalStorage:
    return LocalStorage(Path(options.home) / "ingest")


def _same_topic(options: WriteOptions, messages: Sequence[Staged | None]) -> Topic:
    topic = _open(options)
    if any(message and message.topic_id != topic.id for message in messages):
        raise Mismatch(f"topic {options.topic} was deleted and made again while a query wrote to it", hint="run the query again")
    return topic


def _parts(messages: Sequence[Staged | None]) -> list[Part]:
    return [part for message in messages if message for part in message.parts]

"""A topic written by a flow: one atomic frame per partition and epoch, its mark behind the rows.

Rows that stay bring their position and, as long as no step has judged them, their watermark along. Of rows that change the topic is
a changelog: for each key at most one record an epoch, the row as it is now or a delete, and what holds is the last of them.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import Column, one_array
from penstock.core.change import Op
from penstock.core.columns import EVENT_TIME, KEY, OP, POSITION, TIME, WATERMARK
from penstock.core.schema import TIMESTAMP
from penstock.core.time import NEVER
from penstock.errors import Fenced, Mismatch, Passing, PenstockError, SequenceGap, SinkError, SinkUnavailable
from penstock.log.intake.partitioning import partitions_by_key
from penstock.log.intake.text import key_bytes
from penstock.log.port import Log, Part, Sender, Together, Topic
from penstock.sinks.net import net_changes
from penstock.sinks.port import Delivery, Marker, SinkSpec, nothing
from penstock.sinks.staged import in_order, staged_rows
from penstock.sinks.topic_owner import Survey, owned_topic, sequence_of, survey, unwritten
from penstock.storage.port import Storage

POINTS = ("topic.begun", "topic.appended", "topic.delivered")
LOOKED = "topic.looked"  # the point between the look of a start at its topic and its fence


class TopicSink:
    """Appends each epoch's rows in their order (sinks/staged.py, in_order), partitioned by Kafka's hash of the key. Each frame is
    stamped with flow, sink, incarnation, generation and epoch: what is there already is not added again, older drivers are refused.

    Where the log's broker has transactions, an epoch is there as a whole or not at all. Elsewhere it is atomic per partition: one
    that was cut short between two partitions is completed when it is delivered again. The last partition gets a frame in every
    epoch that wrote one, so that it tells whether the epoch is complete.
    `fail` is called with each of POINTS as it is passed, "topic.appended" once per frame, or once where all go together;
    and with LOOKED before each try to fence older drivers off."""

    def __init__(
        self,
        spec: SinkSpec,
        log: Log,
        topic: str,
        partitions: int,
        key: tuple[str, ...],
        storage: Storage,
        fail: Callable[[str], None] = nothing,
    ) -> None:
        self._spec, self._log, self._name, self._partitions, self._key = spec, log, topic, partitions, key
        self._storage, self._fail = storage, fail
        self._topic: Topic | None = None
        self._seen = Survey()

    def open(self, incarnation: str, generation: int) -> int:
        ours = Marker(incarnation, generation, -1)
        try:
            self._look(ours)
        except Mismatch:  # a version of the flow that never delivered anything may have left it
            if not unwritten(self._log, self._spec, self._name, ours):
                raise
            self._log.delete(self._name)
            self._look(ours)
        if self._seen.generation < generation:
            self._fail(LOOKED)
            while not self._fence(generation):
                self._look(ours)
                self._fail(LOOKED)
            self._seen = self._survey(ours)
        return self._admitted(ours)

    def _look(self, ours: Marker) -> None:
        self._topic = owned_topic(self._log, self._spec, self._name, self._partitions, self._key)
        self._seen = self._survey(ours)
        self._admitted(ours)

    def deliver(self, delivery: Delivery) -> None:
        if self._admitted(delivery.marker) >= delivery.marker.epoch:
            return
        self._fail("topic.begun")
        rows = self._staged(delivery.files)
        try:
            self._append(self._split(rows), delivery)
        except Fenced as error:
            self.open(delivery.marker.incarnation, delivery.marker.generation)
            raise SinkError(f"topic {self._name!r} cannot be written: {error.what}", *error.detail, hint=error.hint) from error
        except PenstockError as error:
            kind = SinkUnavailable if isinstance(error, Passing) else SinkError
            what = f"topic {self._name!r} cannot take epoch {delivery.marker.epoch}: {error.what}"
            raise kind(what, *error.detail, hint=error.hint) from error
        self._seen.epoch = delivery.marker.epoch
        self._fail("topic.delivered")

    def close(self) -> None:
        self._topic = None

    def _staged(self, files: Sequence[str]) -> pa.Table:
        """What an epoch brings, in the order in which it is stored."""
        updating = self._spec.updating
        rows = staged_rows(self._storage, files, self._spec.schema, updating, ordered=not updating)
        return net_changes(rows, self._key) if updating else in_order(rows)

    def _survey(self, ours: Marker) -> Survey:
        return survey(self._used(), f"{self._spec.flow}/{self._spec.name}", ours.incarnation)

    def _fence(self, generation: int) -> bool:
        """Stamps every partition with this generation, so that an older driver, however late it wakes up, is refused by the log.
        Without it a frame of its own could still come between our look and our first append, and be there twice. False if one has
        come since our look: a stamp with the number of an earlier epoch would hide it."""
        empty = self._split(self._staged(()))
        try:
            for partition, sequence in self._seen.sequences.items():
                sender = Sender(self._seen.sender, generation, sequence, gaps=True)
                self._used().append(partition, empty[partition], sender=sender)
        except SequenceGap:
            return False
        except PenstockError as error:
            kind = SinkUnavailable if isinstance(error, Passing) else SinkError
            raise kind(f"topic {self._name!r} cannot be written: {error.what}", *error.detail, hint=error.hint) from error
        return True

    def _append(self, parts: list[pa.RecordBatch], delivery: Delivery) -> None:
        topic, seen, last, mark = self._used(), self._seen, self._partitions - 1, delivery.frontier
        sender = Sender(seen.sender, delivery.marker.generation, sequence_of(delivery.marker.epoch), gaps=True)
        wanted = [p for p, rows in enumerate(parts) if rows.num_rows or mark > seen.marks.get(p, NEVER)]
        if last not in wanted and (wanted or not any(seen.sequences.values())):
            wanted.append(last)  # the first epoch leaves its trace there in any case: a topic that stays empty is not a lost one
        missing = [p for p in wanted if seen.sequences[p] < sender.sequence]  # an earlier start may have come further
        frames = [Part(p, parts[p] if parts[p].num_rows or mark == NEVER else None, mark) for p in missing]
        if isinstance(topic, Together):
            topic.append_together(frames, sender)
            self._appended(frames, sender)
            return
        for part in frames:
            topic.append(part.partition, part.rows, mark=part.mark, sender=sender)
            self._appended([part], sender)

    def _appended(self, parts: Sequence[Part], sender: Sender) -> None:
        for part in parts:
            self._seen.marks[part.partition] = max(part.mark, self._seen.marks.get(part.partition, NEVER))
            self._seen.sequences[part.partition] = sender.sequence
        self._fail("topic.appended")

    def _split(self, rows: pa.Table) -> list[pa.RecordBatch]:
        """The rows of each partition as the log stores them."""
        keys = key_bytes(rows, self._key) if self._key else pa.nulls(rows.num_rows, pa.binary())
        stored = self._stored(rows, keys)
        if self._partitions == 1 or not self._key:
            return [stored, *[stored.slice(0, 0)] * (self._partitions - 1)]
        home = partitions_by_key(keys, self._partitions)
        return [stored.filter(pa.array(home == p)) for p in range(self._partitions)]

    def _stored(self, rows: pa.Table, keys: pa.Array) -> pa.RecordBatch:
        columns: dict[str, Column] = {name: rows[name] for name in self._spec.schema.names}
        columns[EVENT_TIME] = rows[TIME].cast(TIMESTAMP)
        if self._spec.updating:
            columns |= self._changes(rows)
        else:
            columns[POSITION] = rows[POSITION]
            columns[WATERMARK] = pc.if_else(
                pc.equal(rows[WATERMARK], pa.scalar(NEVER)), pa.scalar(None, pa.int64()), rows[WATERMARK]
            )
        if self._key:
            columns[KEY] = keys
        return pa.record_batch([one_array(column) for column in columns.values()], list(columns))

    def _changes(self, rows: pa.Table) -> dict[str, Column]:
        """What is put in, whole; of what is taken out the key alone."""
        put = pc.equal(rows[OP], pa.scalar(int(Op.INSERT)))
        others = [name for name in self._spec.schema.names if name not in self._key]
        columns = {name: pc.if_else(put, rows[name], pa.scalar(None, rows[name].type)) for name in others}
        return columns | {OP: pc.if_else(put, pa.scalar(None, pa.int8()), rows[OP])}

    def _admitted(self, ours: Marker) -> int:
        """The last epoch the topic has, if we may write to it; else Mismatch."""
        self._used()
        if self._seen.incarnation != ours.incarnation:
            raise Mismatch(
                f"topic {self._name!r} belongs to another incarnation of flow {self._spec.flow!r}",
                f"it was written from state {self._seen.incarnation}, this is state {ours.incarnation}",
                hint=f"`penstock flow reset {self._spec.flow}` starts flow and outputs over; or put back the state it belongs to",
            )
        if self._seen.generation > ours.generation:
            raise Mismatch(
                f"topic {self._name!r} is written by a later start of flow {self._spec.flow!r}",
                f"start {self._seen.generation} has written, this is start {ours.generation}",
                hint="another driver has taken over; stop this one",
            )
        return self._seen.epoch

    def _used(self) -> Topic:
        if self._topic is None:
            raise SinkError(f"topic {self._name!r} is not open", hint="call open() first")
        return self._topic

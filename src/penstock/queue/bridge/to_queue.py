"""From a topic into a queue: an offset is committed once the queue has confirmed (G24). At least once: a record that comes again
bears the same id, its position in the topic."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import orjson
import pyarrow as pa

from penstock.core.columns import SHOWN_HEADERS, SHOWN_KEY, SHOWN_OP, VALUE
from penstock.core.names import check_name
from penstock.errors import BadInput, Full
from penstock.log.consumer import output_names
from penstock.log.groups.consumer import GroupConsumer, GroupSettings
from penstock.log.groups.reading import Batch
from penstock.log.intake.deletes import DELETE
from penstock.log.intake.text import json_objects
from penstock.log.port import Log, TopicSpec
from penstock.queue.batches import BYTES, batches
from penstock.queue.bridge.bridge import Moved, Report, Runner
from penstock.queue.on_log.records import HEADER
from penstock.queue.port import Message, QueuePort, QueueSpec

BATCH = 1_000
_ROOM = 0.5  # seconds to wait for room before Ctrl-C is looked for


class TopicToQueue:
    """Moves the records of a topic into a queue, as a member of a group: several of one name share the partitions.

    The id of a message is topic/partition/offset; key and headers are the record's; a record that a bridge wrote keeps its route.
    A record that says that a row is gone is no message, and is passed over."""

    def __init__(
        self,
        log: Log,
        topic: str,
        queue: QueuePort,
        name: str | None = None,
        *,
        batch: int = BATCH,
        lease: str | timedelta = "10 seconds",
        report: Report | None = None,
    ) -> None:
        """lease: of its membership in the group; one that is silent for so long is taken for dead, and another one goes on."""
        self.name = check_name(name or f"{topic}-to-{queue.spec.name}", "bridge")
        self.group = f"bridge.{self.name}"
        self._log, self._topic, self._queue, self._runner = log, topic, queue, Runner(report)
        self._bytes = min(BYTES, queue.spec.limit.bytes or BYTES)
        self._settings = GroupSettings(lease=lease, max_rows=_fitting(queue.spec, batch))
        self._consumer: GroupConsumer | None = None

    @property
    def moved(self) -> Moved:
        return self._runner.moved

    def stop(self) -> None:
        """Ends it once what it has read is sent and committed; from another thread or a signal handler."""
        self._runner.stop()
        if self._consumer is not None:
            self._consumer.stop()

    def run(self, follow: bool = False) -> Moved:
        """Until the group has read what was there at the start; follow: on and on, also while a broker is away."""
        return self._runner.run(self._work, follow)

    def _work(self, follow: bool) -> None:
        with GroupConsumer(self._log, self.group, self._topic, settings=self._settings) as consumer:
            self._consumer = consumer
            if self._runner.stopped:
                return
            for batch in consumer.batches(follow):
                for messages in batches(self._messages(consumer.topic.spec, batch), self._settings.max_rows, self._bytes):
                    if not self._send(messages):
                        return  # what was not sent is not committed
                self._runner.report()

    def _send(self, messages: Sequence[Message]) -> bool:
        """Waits for room as long as it takes; False if the bridge was stopped before."""
        while True:
            try:
                ids = self._queue.send(messages, _ROOM)
                self.moved.moved += len(ids) - list(ids).count(None)
                self.moved.refused += list(ids).count(None)
                return True
            except Full:
                if self._runner.stopped:
                    return False
                self._runner.report()

    def _messages(self, spec: TopicSpec, batch: Batch) -> Iterator[Message]:
        self.moved.taken += batch.table.num_rows
        if not batch.table.num_rows:
            return
        names, table = output_names(spec), batch.table
        offsets, keys, headers, ops = (
            table.column(name).to_pylist()
            for name in (batch.offset_column, names[SHOWN_KEY], names[SHOWN_HEADERS], names[SHOWN_OP])
        )
        for body, offset, key, pairs, op in zip(_bodies(spec, table), offsets, keys, headers, ops, strict=True):
            if op == DELETE or body is None:
                self.moved.refused += 1
            else:
                yield _message(body, f"{spec.name}/{batch.partition}/{offset}", key, dict(pairs or ()))


def _message(body: bytes, id: str, key: bytes | None, headers: dict[str, bytes]) -> Message:
    header = headers.pop(HEADER, None)
    try:
        route = str(orjson.loads(header).get("route", "")) if header else ""
    except (ValueError, AttributeError):
        route = ""
    return Message(body, id, None if key is None else key.decode(errors="backslashreplace"), headers, route=route)


def _bodies(spec: TopicSpec, table: pa.Table) -> list[bytes | None]:
    """Bytes as they are; the columns of a typed topic as JSON."""
    column = table.column(VALUE) if spec.schema is None else json_objects(table.select(spec.schema.names))
    return list(column.to_pylist())


def _fitting(spec: QueueSpec, batch: int) -> int:
    if batch < 1:
        raise BadInput("batch must be at least 1")
    pushes = spec.limit.policy == "push-back" and spec.limit.messages is not None
    return min(batch, spec.limit.messages or batch) if pushes else batch

"""The flow's own topics for late and dead rows. They are made when the first row needs them."""

import pyarrow as pa

from penstock.core.arrow import Column, one_array, values_in
from penstock.core.columns import EVENT_TIME, POSITION, TIME, WATERMARK
from penstock.core.schema import TIMESTAMP
from penstock.engine.execute.failing import Failure, dead_letters
from penstock.engine.execute.program import DEAD, dead_schema
from penstock.errors import NotFound
from penstock.log.port import Log, Sender
from penstock.sinks.port import Delivery, Marker, SinkSpec
from penstock.sinks.stores.sink import REASON
from penstock.sinks.topic import TopicSink
from penstock.sinks.topic_owner import owned_topic, sequence_of
from penstock.storage.port import Storage

REFUSED = "sink "  # how the expression of a letter begins whose row was refused by a sink


def letter_topic(flow: str, kind: str) -> str:
    """shop.late, shop.dead"""
    return f"{flow}.{kind.removeprefix('letters.')}"


class LetterSink:
    """A topic sink that does nothing, and makes nothing, until there are rows."""

    def __init__(self, spec: SinkSpec, log: Log, topic: str, storage: Storage) -> None:
        self.spec, self.log, self.topic, self.storage = spec, log, topic, storage
        self.inner: TopicSink | None = None
        self.life = ("", 0)

    def open(self, incarnation: str, generation: int) -> int:
        self.life = (incarnation, generation)
        try:
            self.log.topic(self.topic)
        except NotFound:
            return -1
        return self._inner()

    def _inner(self) -> int:
        self.inner = TopicSink(self.spec, self.log, self.topic, 1, (), self.storage)
        return self.inner.open(*self.life)

    def deliver(self, delivery: Delivery) -> None:
        if not delivery.files:
            return
        if not self.inner:
            self._inner()
        assert self.inner
        self.inner.deliver(delivery)

    def close(self) -> None:
        if self.inner:
            self.inner.close()


class RefusedRows:
    """Dead letters for the rows that a store refused, once for each epoch: a frame of one sender, numbered by the epoch."""

    def __init__(self, flow: str, sink: str, log: Log) -> None:
        self._flow, self._sink, self._log = flow, sink, log

    def __call__(self, marker: Marker, rows: pa.Table) -> None:
        name = letter_topic(self._flow, DEAD)
        topic = owned_topic(self._log, SinkSpec(self._flow, name, dead_schema(), ()), name, 1, ())
        failures = [Failure(i, f"{REFUSED}{self._sink}", reason) for i, reason in enumerate(values_in(rows[REASON], str))]
        letters = dead_letters(self._sink, rows.drop_columns([REASON]), failures)
        # Not the marker's generation: every start tells again what the last epoch with rows has refused, and is not heard.
        sender = Sender(f"{self._flow}/{self._sink}/refused/{marker.incarnation}/once", 0, sequence_of(marker.epoch), gaps=True)
        topic.append(0, _stored(letters), sender=sender)


def _stored(letters: pa.Table) -> pa.RecordBatch:
    """As the topic keeps them."""
    columns: dict[str, Column] = {name: letters[name] for name in dead_schema().names}
    columns[EVENT_TIME], columns[POSITION] = letters[TIME].cast(TIMESTAMP), letters[POSITION]
    columns[WATERMARK] = pa.chunked_array([pa.nulls(letters.num_rows, pa.int64())])
    return pa.record_batch([one_array(column) for column in columns.values()], list(columns))

"""The flow's own topics for late and dead rows. They are made when the first row needs them."""

from penstock.errors import NotFound
from penstock.log.port import Log
from penstock.sinks.port import Delivery, SinkSpec
from penstock.sinks.topic import TopicSink
from penstock.storage.port import Storage


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

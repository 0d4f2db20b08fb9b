"""Waiting for records of Kafka: by the broker's own long poll, which answers when there is something."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from penstock.log.kafka.client import library, quiet
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.watching import Polling, ReadTo

_NEAR = 100  # records that are passed over one by one: to seek is dearer, as what is under way is thrown away
_SMALL = {  # what is fetched is not used: as little as the broker gives
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,
    "fetch.message.max.bytes": 1024,
    "queued.min.messages": _NEAR,
    "queued.max.messages.kbytes": 64,
    # How long the client asks for nothing more once it holds so much. By default a second, also if that is taken at once.
    "fetch.queue.backoff.ms": 10,
}


class KafkaWatch:
    """A consumer that stands where the reader stands: what it gets is there to be read."""

    prompt = True

    def __init__(self, settings: KafkaSettings, topics: Sequence[str]) -> None:
        self._settings = settings
        self._consumer = library().Consumer(settings.client(**{"group.id": "penstock-watch"}, **_SMALL, **quiet()))
        self._at: dict[tuple[str, int], int] = {}  # the next offset that it gives

    def wait(self, seconds: float, read_to: ReadTo) -> None:
        if not read_to:
            return Polling().wait(seconds, read_to)
        deadline = time.monotonic() + seconds
        try:
            self._stand(read_to)
            while not self._come(self._consumer.poll(max(0.0, deadline - time.monotonic())), read_to):
                pass
        except library().KafkaException:  # the reader will say what is wrong
            self._at = {}
            Polling().wait(max(0.0, deadline - time.monotonic()), read_to)
        return None

    def _come(self, message: Any, read_to: ReadTo) -> bool:
        """Whether the time is over, or this is a record that the reader does not have."""
        if message is None:
            return True
        if message.error() is not None:
            raise library().KafkaException(message.error())
        place = message.topic().removeprefix(self._settings.prefix), message.partition()
        self._at[place] = message.offset() + 1
        return self._at[place] > read_to.get(place, 0)

    def _stand(self, read_to: ReadTo) -> None:
        """Goes to where the reader is, in the partitions in which that is far from here, or before it."""
        if self._at.keys() != read_to.keys():
            self._consumer.assign([self._place(place, offset) for place, offset in read_to.items()])
            self._at = dict(read_to)
        for place, offset in read_to.items():
            if not 0 <= offset - self._at[place] <= _NEAR:
                self._consumer.seek(self._place(place, offset))
                self._at[place] = offset

    def _place(self, place: tuple[str, int], offset: int) -> Any:
        return library().TopicPartition(self._settings.prefix + place[0], place[1], offset)

    def close(self) -> None:
        with suppress(Exception):
            self._consumer.close()

"""Waiting for records of Kafka: by the broker's own long poll, which answers when there is something."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from penstock.log.kafka.client import library, quiet
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.watching import Polling, ReadTo

_SMALL = {  # what is fetched is not used: as little as the broker gives
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,
    "fetch.message.max.bytes": 1024,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1,
}


class KafkaWatch:
    """A consumer that stands where the reader stands: what it gets is there to be read."""

    prompt = True

    def __init__(self, settings: KafkaSettings, topics: Sequence[str]) -> None:
        self._settings = settings
        self._consumer = library().Consumer(settings.client(**{"group.id": "penstock-watch"}, **_SMALL, **quiet()))
        self._at: dict[tuple[str, int], int] = {}

    def wait(self, seconds: float, read_to: ReadTo) -> None:
        if not read_to:
            return Polling().wait(seconds, read_to)
        try:
            self._stand(read_to)
            message = self._consumer.poll(seconds)
        except library().KafkaException:
            return Polling().wait(seconds, read_to)
        if message is not None and message.error() is not None:
            Polling().wait(seconds, read_to)  # the reader will say what is wrong
        return None

    def _stand(self, read_to: ReadTo) -> None:
        """Goes to where the reader is, in the partitions in which that has moved."""
        moved = {place: offset for place, offset in read_to.items() if self._at.get(place) != offset}
        if self._at.keys() != read_to.keys():
            self._consumer.assign([self._place(place, offset) for place, offset in read_to.items()])
        else:
            for place, offset in moved.items():
                self._consumer.seek(self._place(place, offset))
        self._at = dict(read_to)

    def _place(self, place: tuple[str, int], offset: int) -> Any:
        return library().TopicPartition(self._settings.prefix + place[0], place[1], offset)

    def close(self) -> None:
        with suppress(Exception):
            self._consumer.close()

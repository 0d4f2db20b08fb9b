"""Who has written what: a compacted topic, one record for each producer of a partition, written in the same transaction as the
rows it tells of."""

import threading
from typing import NamedTuple

from penstock.core.hashing import partition_of
from penstock.errors import Damaged
from penstock.log.kafka.catalog import internal_topic
from penstock.log.kafka.client import PerProcess, describe, offsets
from penstock.log.kafka.reading import read_range, settled_all
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.port import Sender
from penstock.log.producers import Producers

NAME = "_penstock_senders"
PARTITIONS = 32  # an unfinished transaction holds back those who look for a producer of the same partition, and no others


class Stamp(NamedTuple):
    """A place in the topic: of one producer of one partition."""

    key: bytes
    partition: int


def stamp_of(topic_id: str, partition: int, sender: str) -> Stamp:
    key = f"{topic_id}/{partition}/{sender}".encode()
    return Stamp(key, partition_of(key, PARTITIONS))


class Senders:
    """What the topic says, as far as it was read. One per process."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._guard = threading.RLock()
        self._id = ""
        self._next: dict[int, int] = {}
        self._found: dict[bytes, bytes] = {}

    def get(self, stamp: Stamp) -> Producers:
        """What is remembered of one producer, as of now: waits until transactions that are still open have ended."""
        with self._guard:
            if self._here():
                self._refresh([stamp.partition])
            return _decoded(self._found.get(stamp.key))

    def of(self, topic_id: str, partition: int) -> dict[str, Sender]:
        """The last stamp of every producer of a partition."""
        with self._guard:
            if self._here():
                self._refresh(list(range(PARTITIONS)))
            start = f"{topic_id}/{partition}/".encode()
            found = [_decoded(value).last() for key, value in self._found.items() if key.startswith(start)]
        return {id: last for one in found for id, last in one.items()}

    def make(self) -> None:
        if not self._id:
            internal_topic(self._settings, NAME, PARTITIONS)

    def _here(self) -> bool:
        found = describe(self._settings, NAME)
        if found is None or found.id != self._id:
            self._id, self._next, self._found = found.id if found else "", {}, {}
        return found is not None

    def _refresh(self, numbers: list[int]) -> None:
        ends = settled_all(self._settings, NAME, numbers)
        fresh = [number for number in numbers if number not in self._next]
        if fresh:
            self._next |= {n: first for n, (first, _, _) in offsets(self._settings, NAME, fresh).items()}
        for number, stop in ends.items():
            if self._next[number] < stop:
                self._read(number, stop)

    def _read(self, number: int, stop: int) -> None:
        for piece in read_range(self._settings, NAME, self._id, number, self._next[number], stop):
            for key, value in zip(piece.keys.to_pylist(), piece.values.to_pylist(), strict=True):
                if value is None:
                    self._found.pop(key, None)
                else:
                    self._found[key] = value
        self._next[number] = stop


def _decoded(value: bytes | None) -> Producers:
    if value is None:
        return Producers()
    try:
        return Producers.decode(value)
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"a record of {NAME} cannot be read", str(error)) from error


_SENDERS = PerProcess()


def senders(settings: KafkaSettings) -> Senders:
    return _SENDERS.get(settings, lambda: Senders(settings))

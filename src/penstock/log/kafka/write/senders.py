"""Who has written what: a compacted topic, one record for each producer of a partition, written in the same transaction as the
rows it tells of."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.core.hashing import partition_of
from penstock.errors import Damaged
from penstock.log.kafka.catalog import internal_topic
from penstock.log.kafka.client import PerProcess, away, describe, ends, offsets
from penstock.log.kafka.read.ranges import read_open, read_range, still_unseen
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.write.hanging import patience
from penstock.log.port import Sender
from penstock.log.producers import Producers

NAME = "_penstock_senders"
_LOOK = 0.5  # seconds between two looks at what is open
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
        """What is remembered of one producer, as of now: waits while a transaction that may tell of it is open."""
        with self._guard:
            if self._here():
                self._refresh([stamp.partition], lambda key: key == stamp.key)
            return _decoded(self._found.get(stamp.key))

    def seen(self, stamp: Stamp) -> Producers:
        """The same, without what is open."""
        with self._guard:
            if self._here():
                self._refresh([stamp.partition], lambda key: False)
            return _decoded(self._found.get(stamp.key))

    def of(self, topic_id: str, partition: int) -> dict[str, Sender]:
        """The last stamp of every producer of a partition."""
        with self._guard:
            start = f"{topic_id}/{partition}/".encode()
            if self._here():
                self._refresh(list(range(PARTITIONS)), lambda key: key.startswith(start))
            found = [_decoded(value).last() for key, value in self._found.items() if key.startswith(start)]
        return {id: last for one in found for id, last in one.items()}

    def hanging(self, topic_id: str, partition: int) -> list[str]:
        """Producers of a partition of whom a stamp stands in a transaction that does not end."""
        start = f"{topic_id}/{partition}/".encode()
        places = [(NAME, number) for number in range(PARTITIONS)] if describe(self._settings, NAME) else []
        before, deadline = self._open_keys(places, start), time.monotonic() + patience(self._settings)
        while before and time.monotonic() < deadline:
            time.sleep(_LOOK)
            now = self._open_keys([(NAME, number) for number, _ in before], start)
            before = {place: keys for place, keys in before.items() if place in now}
        return sorted({key.removeprefix(start).decode() for keys in before.values() for key in keys})

    def _open_keys(self, places: list[tuple[str, int]], start: bytes) -> dict[tuple[int, int], list[bytes]]:
        """By partition and the offset at which its first open transaction begins: keys in it, and behind it, that begin so."""
        whole = ends(self._settings, places, committed=False)
        stable = ends(self._settings, places)
        found = {
            (number, stable[NAME, number]): self._keys(number, stable[NAME, number], end, lambda key: key.startswith(start))
            for (_, number), end in whole.items()
            if stable[NAME, number] < end
        }
        return {place: keys for place, keys in found.items() if keys}

    def make(self) -> None:
        if not self._id:
            internal_topic(self._settings, NAME, PARTITIONS)

    def _here(self) -> bool:
        found = describe(self._settings, NAME)
        if found is None or found.id != self._id:
            self._id, self._next, self._found = found.id if found else "", {}, {}
        return found is not None

    def _refresh(self, numbers: list[int], wanted: Callable[[bytes], bool]) -> None:
        stops = self._stops(numbers, wanted)
        fresh = [number for number in numbers if number not in self._next]
        if fresh:
            self._next |= {n: first for n, (first, _, _) in offsets(self._settings, NAME, fresh).items()}
        for number, stop in stops.items():
            if self._next[number] < stop:
                self._read(number, stop)

    def _stops(self, numbers: list[int], wanted: Callable[[bytes], bool]) -> dict[int, int]:
        """How far these partitions are to be read: to their ends as they are now, once the transactions before it have ended. Those
        that tell of nobody who is wanted are not waited for: they may hang."""
        left = ends(self._settings, [(NAME, number) for number in numbers], committed=False)
        stops: dict[int, int] = {}
        deadline, wait = time.monotonic() + self._settings.patience + self._settings.transaction_timeout / 1000, 0.0
        while True:
            unseen = still_unseen(self._settings, left, wait)
            stops |= {number: end for (_, number), end in left.items() if (NAME, number) not in unseen}
            stable = ends(self._settings, list(unseen))
            left = {place: end for place, end in unseen.items() if self._keys(place[1], stable[place], end, wanted)}
            stops |= {number: stable[NAME, number] for _, number in unseen.keys() - left.keys()}
            if not left:
                return stops
            if time.monotonic() > deadline:
                (name, number), end = next(iter(left.items()))
                raise away(self._settings, f"a transaction before offset {end} of {name}/{number} does not end")
            wait = _LOOK

    def _keys(self, number: int, stable: int, end: int, wanted: Callable[[bytes], bool]) -> list[bytes]:
        """The keys that are wanted of a partition's records from its first open transaction on."""
        pieces = read_open(self._settings, NAME, number, stable, end) if stable < end else ()
        return [key for piece in pieces for key in piece.keys.to_pylist() if key is not None and wanted(key)]

    def _read(self, number: int, stop: int) -> None:
        for piece in read_range(self._settings, NAME, self._id, number, self._next[number], stop):
            for key, value in zip(piece.keys.to_pylist(), piece.values.to_pylist(), strict=True):
                if key is None:
                    continue  # not ours: what we write has a key
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

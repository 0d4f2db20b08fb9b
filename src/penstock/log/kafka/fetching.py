"""Records of one partition, many at a time, as arrays. This is the plain way: one Python object a record."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.kafka.client import library, told, translated
from penstock.log.kafka.settings import KafkaSettings

Header = tuple[str, bytes | None]
Numbers = npt.NDArray[np.int64]

# A read has an end, so nothing may be skipped: an offset that is gone is an error, and the end of the partition is told.
READING: dict[str, Any] = {
    "group.id": "penstock-reads-by-offset",  # asked for by the client; nothing joins or commits
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "fetch.message.max.bytes": 8 << 20,
    "fetch.wait.max.ms": 20,
    "fetch.error.backoff.ms": 50,
    "queued.min.messages": 500_000,
    "queued.max.messages.kbytes": 64 << 10,
    "check.crcs": True,
    "socket.keepalive.enable": True,
}


@dataclass(frozen=True)
class Fetched:
    """Some records in the order of their offsets."""

    offsets: Numbers
    times: Numbers  # milliseconds
    keys: pa.Array  # binary
    values: pa.Array  # binary
    headers: dict[int, Sequence[Header]] = field(default_factory=dict)  # of those that have any
    end: int = -1  # the partition was found to end here; -1: it goes on

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, stop: int) -> "Fetched":
        if start == 0 and stop >= len(self):
            return self
        headers = {i - start: found for i, found in self.headers.items() if start <= i < stop}
        count = stop - start
        return Fetched(
            self.offsets[start:stop],
            self.times[start:stop],
            self.keys.slice(start, count),
            self.values.slice(start, count),
            headers,
            self.end if stop >= len(self) else -1,
        )


class Fetcher(Protocol):
    """One consumer of one partition."""

    def seek(self, offset: int) -> None:
        """Goes on from this offset."""
        ...

    def fetch(self, most: int, seconds: float) -> Fetched:
        """What came within that time, at most so many; may be nothing."""
        ...

    def rest(self) -> None:
        """Asks the broker for nothing until the next call."""
        ...

    def close(self) -> None: ...


class PlainFetcher:
    """By the client's own objects."""

    def __init__(self, settings: KafkaSettings, name: str, partition: int) -> None:
        self._settings, self._kafka = settings, library()
        self._place = self._kafka.TopicPartition(name, partition)
        self._name = name
        with translated(settings, name):
            self._consumer = self._kafka.Consumer(settings.client(**READING))
        self._resting = False

    def seek(self, offset: int) -> None:
        with translated(self._settings, self._name):
            self._consumer.assign([self._kafka.TopicPartition(self._name, self._place.partition, offset)])
            if self._resting:
                self._consumer.resume([self._place])
        self._resting = False

    def fetch(self, most: int, seconds: float) -> Fetched:
        with translated(self._settings, self._name):
            if self._resting:
                self._consumer.resume([self._place])
                self._resting = False
            found = self._consumer.consume(1, seconds)  # waits for one; the rest is what has come meanwhile
            if found and found[0].error() is None:
                found += self._consumer.consume(most - 1, 0)
        end = -1
        good = []
        for message in found:
            error = message.error()
            if error is None:
                good.append(message)
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                end = message.offset()
            else:
                raise told(self._settings, error, self._name)
        headers = {i: m.headers() for i, m in enumerate(good) if m.headers()}
        return Fetched(
            np.fromiter((m.offset() for m in good), np.int64, len(good)),
            np.fromiter((m.timestamp()[1] for m in good), np.int64, len(good)),
            pa.array([m.key() for m in good], pa.binary()),
            pa.array([m.value() for m in good], pa.binary()),
            headers,
            end,
        )

    def rest(self) -> None:
        with translated(self._settings, self._name):
            self._consumer.pause([self._place])
        self._resting = True

    def close(self) -> None:
        self._consumer.close()

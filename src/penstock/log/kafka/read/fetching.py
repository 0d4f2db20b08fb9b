"""Records of one partition, many at a time, as arrays. This is the plain way: one Python object a record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.kafka.client import as_error, library, translated
from penstock.log.kafka.settings import KafkaSettings

Header = tuple[str, bytes | None]
Numbers = npt.NDArray[np.int64]

# A read has an end, so nothing may be skipped: an offset that is gone is an error, and the end of the partition is reported.
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
class Headers:
    """The headers of many records, in the order of these: of which one each is, its name and its value."""

    rows: Numbers
    names: pa.Array  # binary
    values: pa.Array  # binary, null where there is none

    @staticmethod
    def of(found: Mapping[int, Sequence[Header]]) -> "Headers":
        rows = np.array([row for row in sorted(found) for _ in found[row]], np.int64)
        pairs = [pair for row in sorted(found) for pair in found[row]]
        names = pa.array([name.encode("utf-8", "surrogateescape") for name, _ in pairs], pa.binary())
        return Headers(rows, names, pa.array([value for _, value in pairs], pa.binary()))

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: npt.NDArray[np.bool_]) -> "Headers":
        return Headers(self.rows[keep], self.names.filter(pa.array(keep)), self.values.filter(pa.array(keep)))

    def between(self, start: int, stop: int) -> "Headers":
        """Those of records [start, stop), which count from 0 then."""
        found = self.where((self.rows >= start) & (self.rows < stop))
        return Headers(found.rows - start, found.names, found.values)

    def named(self, name: bytes) -> tuple[Numbers, pa.Array]:
        """The records that have a header of this name, and its value; the last, if there are several."""
        if not len(self):
            return self.rows, self.values
        found = self.where(pc.equal(self.names, pa.scalar(name)).to_numpy(zero_copy_only=False))
        last = np.append(found.rows[1:] != found.rows[:-1], True)[: len(found)]
        found = found if last.all() else found.where(last)
        return found.rows, found.values


NO_HEADERS = Headers.of({})


@dataclass(frozen=True)
class Fetched:
    """Some records in the order of their offsets."""

    offsets: Numbers
    times: Numbers  # milliseconds
    keys: pa.Array  # binary
    values: pa.Array  # binary
    headers: Headers = NO_HEADERS
    end: int = -1  # the partition was found to end here; -1: it goes on
    since: int = 0  # of what a reader gives out: offsets [since, upto) are covered by this piece; those without a record have none
    upto: int = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, stop: int) -> "Fetched":
        if start == 0 and stop >= len(self):
            return self
        count = stop - start
        return Fetched(
            self.offsets[start:stop],
            self.times[start:stop],
            self.keys.slice(start, count),
            self.values.slice(start, count),
            self.headers.between(start, stop),
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
    """By the client's own objects. committed: without records whose transaction is open or was given up."""

    def __init__(self, settings: KafkaSettings, name: str, partition: int, *, committed: bool = True) -> None:
        self._settings, self._kafka = settings, library()
        self._place = self._kafka.TopicPartition(name, partition)
        self._name = name
        with translated(settings, name):
            level = {} if committed else {"isolation.level": "read_uncommitted"}
            self._consumer = self._kafka.Consumer(settings.client(**READING | level))
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
                raise as_error(self._settings, error, self._name)
        headers = {i: m.headers() for i, m in enumerate(good) if m.headers()}
        return Fetched(
            np.fromiter((m.offset() for m in good), np.int64, len(good)),
            np.fromiter((m.timestamp()[1] for m in good), np.int64, len(good)),
            pa.array([m.key() for m in good], pa.binary()),
            pa.array([m.value() for m in good], pa.binary()),
            Headers.of(headers),
            end,
        )

    def rest(self) -> None:
        with translated(self._settings, self._name):
            self._consumer.pause([self._place])
        self._resting = True

    def close(self) -> None:
        self._consumer.close()

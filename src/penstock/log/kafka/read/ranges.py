"""Ranges of a partition: every offset is covered, or the read fails. A few consumers per process stay open.

What proves that an offset holds no record: the client's position went over it. It starts where `seek` put it and moves only over
batches that it was sent and has parsed, so a record, or the end of the partition, behind the offset is such a proof, as long as
nothing went wrong between `seek` and there. Then the position is worth nothing, and the reader is thrown away.
"""

import atexit
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from penstock.errors import Unreachable
from penstock.log.kafka.client import PerProcess, away, ends
from penstock.log.kafka.read.fetching import Fetched, Fetcher, PlainFetcher
from penstock.log.kafka.read.native import NativeFetcher, Taken, native_library
from penstock.log.kafka.settings import KafkaSettings

PIECE = 100_000  # records of one piece
_MOST_OPEN = 24
_WAIT = 0.2


class PartitionReader:
    """One consumer, and where it stands."""

    def __init__(self, settings: KafkaSettings, name: str, partition: int, fetcher: Fetcher | None = None) -> None:
        self._settings, self._name, self._partition = settings, name, partition
        self._fetcher = fetcher or fetcher_of(settings, name, partition)
        self._at = -1
        self._held: Fetched | None = None  # fetched, but behind the stop of the last read

    def pieces(self, start: int, stop: int) -> Iterator[Fetched]:
        """The records of [start, stop), which must lie before the last stable offset. The pieces follow each other without a gap in
        what they cover (`since`, `upto`): offsets that hold no record, or an aborted one, are covered by the piece that spans them.
        Unreachable if the partition does not come to stop."""
        if self._held is None or self._at != start:
            self._held = None
            self._fetcher.seek(start)
            self._at = start
        while self._at < stop:
            piece = self._next()
            inside = int(piece.offsets.searchsorted(stop))
            since, self._at = self._at, stop if inside < len(piece) else min(stop, _reached(piece))
            if inside < len(piece):
                self._held, piece = piece.slice(inside, len(piece)), piece.slice(0, inside)
            if self._at >= stop and self._held is None:
                self._fetcher.rest()  # else it would go on asking for what is not there
            yield replace(piece, since=since, upto=self._at)

    def _next(self) -> Fetched:
        """What leads on from here: records, or the end of the partition behind this place."""
        if self._held is not None:
            held, self._held = self._held, None
            return held
        patience = self._settings.patience
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            found = self._fetcher.fetch(PIECE, _WAIT)
            self._check(found)
            if _reached(found) > self._at:
                return found
        raise away(self._settings, f"{self._name}/{self._partition} gave nothing from offset {self._at} for {patience:.0f} seconds")

    def _check(self, found: Fetched) -> None:
        """What is out of place says that the position is another than we think."""
        records = found.offsets
        if (len(records) and records[0] < self._at) or (records[1:] <= records[:-1]).any() or 0 <= found.end < self._at:
            got = [f"records {records[0]} to {records[-1]}"] if len(records) else []
            got += [f"its end at {found.end}"] if found.end >= 0 else []
            raise Unreachable(
                f"{self._name}/{self._partition} gave {' and '.join(got)} where offset {self._at} was to be read",
                hint="the log may have been cut back when its broker restarted; it is read again",
            )

    def close(self) -> None:
        self._fetcher.close()


def _reached(piece: Fetched) -> int:
    """The offset behind the last that a piece tells of."""
    return max(piece.end, int(piece.offsets[-1]) + 1 if len(piece) else -1)


def fetcher_of(settings: KafkaSettings, name: str, partition: int) -> Fetcher:
    """The quick one where the library can be had and nobody reads the partition by it, unless PENSTOCK_KAFKA_FETCH=plain."""
    if native_library() is not None and os.environ.get("PENSTOCK_KAFKA_FETCH") != "plain":
        with suppress(Taken):
            return NativeFetcher(settings, name, partition)
    return PlainFetcher(settings, name, partition)


_OPEN = PerProcess()


def read_range(settings: KafkaSettings, name: str, id: str, partition: int, start: int, stop: int) -> Iterator[Fetched]:
    """The committed records of [start, stop) of a partition of the topic with this id."""
    key = (settings.connection, name, id, partition)
    reader = _OPEN.take(key) or PartitionReader(settings, name, partition)
    try:
        yield from reader.pieces(start, stop)
    except GeneratorExit:  # left in the middle: where it stands is known
        _put_back(key, reader)
        raise
    except BaseException:  # what the client has given out meanwhile is not known
        reader.close()
        raise
    _put_back(key, reader)


def read_open(settings: KafkaSettings, name: str, partition: int, start: int, stop: int) -> Iterator[Fetched]:
    """The records of [start, stop), whatever has become of their transactions."""
    reader = PartitionReader(settings, name, partition, PlainFetcher(settings, name, partition, committed=False))
    try:
        yield from reader.pieces(start, stop)
    finally:
        reader.close()


def settled(settings: KafkaSettings, name: str, partition: int) -> int:
    """The end of the partition as it is now, once every transaction before it has come to its end."""
    end = ends(settings, [(name, partition)], committed=False)[name, partition]
    wait_until_seen(settings, {(name, partition): end})
    return end


def wait_until_seen(settings: KafkaSettings, wanted: Mapping[tuple[str, int], int]) -> None:
    """Returns once readers of committed records see up to these offsets."""
    unseen = still_unseen(settings, wanted, settings.patience + settings.transaction_timeout / 1000)
    for (name, partition), end in unseen.items():
        raise away(settings, f"a transaction before offset {end} of {name}/{partition} does not end")


def still_unseen(settings: KafkaSettings, wanted: Mapping[tuple[str, int], int], seconds: float) -> dict[tuple[str, int], int]:
    """Those to whose offset readers of committed records do not come within that time."""
    left, deadline = {place: end for place, end in wanted.items() if end > 0}, time.monotonic() + seconds
    while left:
        seen = ends(settings, list(left))
        left = {place: end for place, end in left.items() if seen[place] < end}
        if time.monotonic() >= deadline:
            break
        if left:
            time.sleep(0.002)
    return left


def _put_back(key: object, reader: PartitionReader) -> None:
    for old in _OPEN.give(key, reader, _MOST_OPEN):
        old.close()


@atexit.register
def close_readers() -> None:
    """Closes what this process has open."""
    for key in _OPEN.held():
        _OPEN.drop(key, PartitionReader.close)

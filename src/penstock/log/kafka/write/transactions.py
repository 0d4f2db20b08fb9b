"""Transactions under a stable id: what is written in one is there as a whole or not at all, and a returning zombie is shut out.

After a time-out, an error or an answer that never came, nothing is assumed: the producer is thrown away, a new one of the same id
ends whatever the old one left open, and what is in the log then decides (Kafka's own protocol may tear a transaction otherwise).
"""

import atexit
import threading
import time
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Protocol, TypeVar

from penstock.errors import NotFound, PenstockError
from penstock.log.kafka.client import PATIENCE, PerProcess, away, library, new_producer, translated
from penstock.log.kafka.headers import end_headers
from penstock.log.kafka.read.fetching import Header
from penstock.log.kafka.settings import KafkaSettings
from penstock.log.kafka.write.hanging import Partition

_ATTEMPTS = 5
_MOST_OPEN = 16
_FULL = 0.05  # seconds to wait when the client's queue is full

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """What is to be written, all or nothing."""

    def known(self) -> bool:
        """Whether a producer that is open may write without a look at the log."""
        ...

    def find(self, transaction: "KafkaTransactions", new: bool) -> T_co | None:
        """Looks in the log (committed records) for what an earlier attempt, here or in another process, has written, and ends what
        hangs there (`end`). Asked with every new producer, and with one that is open unless all is known, before anything is
        written. It may raise: then nothing is."""
        ...

    def write(self, transaction: "KafkaTransactions") -> T_co:
        """Calls `produce`."""
        ...

    def seen(self, transaction: "KafkaTransactions") -> None:
        """Called after the commit, before anybody is notified: returns once readers see it."""
        ...


class KafkaTransactions:
    """One transactional producer of this process. `deliver` is the way to use it; for one thread at a time."""

    def __init__(self, settings: KafkaSettings, id: str) -> None:
        self._settings, self._id = settings, id
        self._producer: Any = None
        self._places: list[Place] = []  # of the transaction under way
        self._guard = threading.RLock()

    def deliver(self, work: "Work[T]") -> T:
        """Does this work as one transaction, and returns what `write` returned once that is committed."""
        with self._guard:
            last: PenstockError | None = None
            deadline = time.monotonic() + self._settings.patience
            for attempt in range(_ATTEMPTS):
                if attempt and time.monotonic() > deadline:
                    break
                try:
                    there = self._found(work)
                    if there is not None:
                        return there
                    return self._commit(work)
                except _Unsettled as error:
                    last = error.why
                    self.discard()
                except BaseException:
                    self.discard()
                    raise
            raise last or away(self._settings, "a transaction could not be written")

    def _found(self, work: "Work[T]") -> T | None:
        new = self._producer is None
        if new:
            self._open()
        return work.find(self, new) if new or not work.known() else None

    def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Sequence[Header] | None] | None = None,
        time: int = -1,
        first: Sequence[Header] = (),
    ) -> "Place":
        """Adds records, all of one append time (milliseconds; -1: now). first: headers of the first of them, before its own.
        The place of the first and of the last is known after `flush`; an error of any of them ends the whole transaction."""
        place, send, last = Place(), self._producer.produce, len(values) - 1
        self._places.append(place)
        records = zip(values, keys or repeat(None), headers or repeat(None), strict=False)
        for i, (value, key, own) in enumerate(records):
            on_delivery = place.take_last if i == last else place.take if i == 0 else None
            named = [*first, *(own or ())] if i == 0 and first else own
            record = (topic, value, key, partition, on_delivery, None, max(time, 0), named)
            try:
                send(*record)
            except BufferError:
                self._wait(record)
        return place

    def _wait(self, record: tuple[Any, ...]) -> None:
        """Prefetch a record over, once there is room for it."""
        while True:
            self._producer.poll(_FULL)
            try:
                self._producer.produce(*record)
                return
            except BufferError:
                continue

    def end(self, partitions: Sequence[Partition], *, commit: bool) -> None:
        """Ends whatever this producer has open in these partitions: by a transaction that goes there, with records that tell
        nothing, and is committed or given up."""
        if not partitions:
            return
        self._places.clear()
        with _unsettled(self._settings):
            self._producer.begin_transaction()
            for topic, number in partitions:
                self.produce(topic, number, [None], [b""], [end_headers(self._id)])  # with a key: the topic may be compacted
            self.flush()
            self._producer.commit_transaction(PATIENCE) if commit else self._producer.abort_transaction(PATIENCE)

    def flush(self) -> None:
        """Returns once the broker has every record of the transaction so far; it ends where one was refused."""
        if self._producer.flush(PATIENCE):
            raise _Unsettled(away(self._settings, f"records were not taken within {PATIENCE:.0f} seconds"))
        if refused := next((place.error for place in self._places if place.error is not None), None):
            raise library().KafkaException(refused)  # a commit would only say that some were

    def discard(self) -> None:
        """Throws the producer away; the next call makes a new one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            del producer

    def close(self) -> None:
        """Waits until nobody uses it, and closes it."""
        with self._guard:
            self.discard()

    def _open(self) -> None:
        """A new producer of our id: ends what an older one left open, and shuts it out."""
        options = {
            "transactional.id": self._id,
            "transaction.timeout.ms": self._settings.transaction_timeout,
            "message.timeout.ms": self._settings.transaction_timeout,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "batch.num.messages": 100_000,
            "compression.type": "lz4",
            "message.max.bytes": 64 << 20,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "socket.keepalive.enable": True,
        }
        with _unsettled(self._settings):
            self._producer = new_producer(self._settings, options)
            self._producer.init_transactions(self._settings.patience)

    def _commit(self, work: "Work[T]") -> T:
        self._places.clear()
        with _unsettled(self._settings):
            self._producer.begin_transaction()
            try:
                result = work.write(self)
            except NotFound:  # the topic is gone: what stands in the one that has its name holds nobody back
                self._producer.abort_transaction(PATIENCE)
                raise
            self.flush()
            self._producer.commit_transaction(PATIENCE)
        work.seen(self)
        return result


class Place:
    """Where a record came to stand, once the broker has said so."""

    def __init__(self) -> None:
        self.offset = -1
        self.last = -1  # of the last one that was given with it
        self.error: Any = None  # why the broker did not take it

    def take(self, error: Any, message: Any) -> None:
        if error is not None:
            self.error = error
        else:
            self.offset = message.offset()

    def take_last(self, error: Any, message: Any) -> None:
        if error is not None:
            self.error = error
        else:
            self.last = message.offset()
            self.offset = self.offset if self.offset >= 0 else self.last


class _Unsettled(Exception):
    """Nobody knows what became of it."""

    def __init__(self, why: PenstockError) -> None:
        self.why = why


class _unsettled:
    """Errors of the client inside mean that the outcome is not known."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, PenstockError | _Unsettled):
            return
        try:
            with translated(self._settings):
                raise error
        except PenstockError as ours:
            raise _Unsettled(ours) from error


_OPEN = PerProcess()


def deliver(settings: KafkaSettings, id: str, work: Work[T]) -> T:
    """`KafkaTransactions.deliver` with the producer of this id, which stays open in this process."""
    mine = _OPEN.get((settings, id), lambda: KafkaTransactions(settings, id))
    try:
        return mine.deliver(work)
    finally:
        while len(_OPEN.held()) > _MOST_OPEN:
            _OPEN.drop(_OPEN.held()[0], KafkaTransactions.close)


def discarded(settings: KafkaSettings, id: str) -> None:
    """Throws the producer of this id away: the next one asks what the log holds before it writes."""
    _OPEN.drop((settings, id), KafkaTransactions.close)


@atexit.register
def close_producers() -> None:
    """Closes what this process has open."""
    for key in _OPEN.held():
        _OPEN.drop(key, KafkaTransactions.discard)

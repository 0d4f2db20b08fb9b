"""A consumer of a queue: receives messages, and waits for them."""

import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from penstock.core.time import duration
from penstock.errors import PenstockError
from penstock.queue.client.prefetch import FIRST_PAUSE, Prefetch, longer
from penstock.queue.message import Received
from penstock.queue.options import Time
from penstock.queue.port import Consumer, QueuePort


class QueueConsumer:
    """One consumer of a queue, for the time of a `with`; made by `Queue.consumer`.

    >>> with emails.consumer() as consumer:  # doctest: +SKIP
    ...     for message in consumer:
    ...         with message:
    ...             deliver(message.json())

    Messages that are not settled when the `with` is left are given back; those that were only prefetched, without counting as a
    try. Several threads may share a consumer."""

    def __init__(self, port: QueuePort, consumer: Consumer, auto: bool = False) -> None:
        self._prefetch, self._stopped = Prefetch(port, consumer, auto), False

    @property
    def name(self) -> str:
        """The name that `penstock queue describe` shows."""
        return self._prefetch.consumer.name

    def __enter__(self) -> "QueueConsumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped = True
        try:
            self._prefetch.give_back()
        except PenstockError:
            if error is None:
                raise

    def __iter__(self) -> Iterator[Received]:
        """Messages as they come, until `stop`. A message that was not settled when the loop goes on is still leased to you."""
        while not self._stopped:
            yield from self._wait(1, None, 1 if self._prefetch.auto else self._prefetch.consumer.prefetch)

    def receive(self, most: int = 1, wait: Time | None = None) -> list[Received]:
        """Messages that are ready, at most so many; if there are none, waits for as long as `wait`."""
        return self._wait(most, 0.0 if wait is None else duration(wait, "wait").total_seconds(), most)

    def ack(self, messages: Sequence[Received]) -> None:
        """They are done, all in one call. LeaseLost if the leases of some had run out; the others are done nevertheless."""
        if messages:
            self._prefetch.settle([(message, message.settlement("ack")) for message in messages])

    def stop(self) -> None:
        """Ends the loop before its next message; from another thread or a signal handler."""
        self._stopped = True

    def _wait(self, most: int, wait: float | None, ahead: int) -> list[Received]:
        deadline, pause = None if wait is None else time.monotonic() + wait, FIRST_PAUSE
        while not self._stopped:
            self._prefetch.fill(ahead)
            taken = self._prefetch.pick(most, lambda delivery: Received(delivery, self._prefetch.settle))
            if taken or (deadline is not None and time.monotonic() >= deadline):
                return taken
            time.sleep(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))
            pause = longer(pause)
        return []


def consumer_of(name: str | None, prefetch: int, lease: Time | None) -> Consumer:
    """A consumer; by default with a unique name of host and process."""
    unique = name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
    return Consumer(unique, prefetch, None if lease is None else duration(lease, "lease"), confirms=True)

"""Takes messages from a queue, and waits for them."""

import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from penstock.core.time import duration
from penstock.errors import PenstockError
from penstock.queue.client.prefetch import FIRST, Prefetch, longer
from penstock.queue.message import Received
from penstock.queue.options import Time, seconds
from penstock.queue.port import Consumer, QueuePort


class QueueConsumer:
    """One consumer of a queue, for the time of a `with`; made by `Queue.consumer`.

    >>> with emails.consumer() as consumer:  # doctest: +SKIP
    ...     for message in consumer:
    ...         with message:
    ...             deliver(message.json())

    Messages that are not settled when the `with` is left are given back; those that were never handed out, without counting as a
    try. Several threads may share a consumer."""

    def __init__(self, port: QueuePort, consumer: Consumer, auto: bool = False) -> None:
        self._hands, self._stopped = Prefetch(port, consumer, auto), False

    @property
    def name(self) -> str:
        """How others see it: `penstock queue describe` tells what it holds."""
        return self._hands.consumer.name

    def __enter__(self) -> "QueueConsumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped = True
        try:
            self._hands.give_back()
        except PenstockError:
            if error is None:
                raise

    def __iter__(self) -> Iterator[Received]:
        """Messages as they come, until `stop`. What was not settled when the loop comes back is still in your hands."""
        while not self._stopped:
            yield from self._wait(1, None, 1 if self._hands.auto else self._hands.consumer.prefetch)

    def receive(self, most: int = 1, wait: Time | None = None) -> list[Received]:
        """What is there, at most so many; if nothing is, waits for it so long."""
        return self._wait(most, 0.0 if wait is None else seconds(wait, "wait"), most)

    def ack(self, messages: Sequence[Received]) -> None:
        """They are done, all in one go. LeaseLost if some were lost; the others are done nevertheless."""
        if messages:
            self._hands.settle([(message, message.settlement("ack")) for message in messages])

    def stop(self) -> None:
        """Ends the loop before its next message; from another thread or a signal handler."""
        self._stopped = True

    def _wait(self, most: int, wait: float | None, ahead: int) -> list[Received]:
        deadline, pause = None if wait is None else time.monotonic() + wait, FIRST
        while not self._stopped:
            self._hands.fill(ahead)
            taken = self._hands.pick(most, lambda delivery: Received(delivery, self._hands.settle))
            if taken or (deadline is not None and time.monotonic() >= deadline):
                return taken
            time.sleep(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))
            pause = longer(pause)
        return []


def consumer_of(name: str | None, prefetch: int, lease: Time | None) -> Consumer:
    """Who asks: by default a name that nobody else has, with host and process."""
    given = name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
    return Consumer(given, prefetch, None if lease is None else duration(lease, "lease"), tells=True)

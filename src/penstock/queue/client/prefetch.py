"""Prefetch: the messages that are leased to one consumer, those waiting to be handed out and those not settled yet."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from penstock.queue.message import LeasedMessage, note_outcomes
from penstock.queue.port import Consumer, Delivery, QueuePort, Settlement

FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.001, 0.1, 1.5  # seconds between two looks at an empty queue
AT_ONCE = timedelta(0)
L = TypeVar("L", bound=LeasedMessage)


def longer(pause: float) -> float:
    """The next pause between two looks, after this one."""
    return min(max(pause * GROWTH, FIRST_PAUSE), LONGEST_PAUSE)


class Prefetch:
    """Of one consumer; several threads may use it."""

    def __init__(self, port: QueuePort, consumer: Consumer, auto: bool, now: Callable[[], float] = time.monotonic) -> None:
        self.port, self.consumer, self.auto, self._now = port, consumer, auto, now
        self._half = (consumer.lease or port.spec.lease).total_seconds() / 2
        self._ahead: deque[tuple[Delivery, float]] = deque()  # leased and not handed out yet, and since when
        self._out: dict[str, LeasedMessage] = {}  # by receipt: handed out and not settled yet
        self._asking, self._closed = threading.Lock(), False  # held while the queue is asked
        self._guard = threading.Lock()  # held for a moment

    def fill(self, most: int) -> None:
        """Receives messages if none are waiting, and extends the leases of those that are."""
        with self._asking:
            with self._guard:
                if self._closed or (self._ahead and self._fresh()):
                    return
                waiting = [delivery for delivery, _ in self._ahead]
            lost = set(self.port.settle(self._extensions(waiting))) if waiting else set()
            received = () if waiting else self.port.receive(self.consumer, most, self.auto)
            with self._guard:
                now = self._now()
                self._ahead = deque((delivery, now) for delivery, _ in self._ahead if delivery.receipt not in lost)
                self._ahead.extend((delivery, now) for delivery in received)

    def pick(self, most: int, make: Callable[[Delivery], L]) -> list[L]:
        """Hands out what is waiting, at most so many; about half of its lease, or more, is left of each."""
        made: list[L] = []
        with self._guard:
            while self._ahead and len(made) < most and self._fresh():
                leased = make(self._ahead.popleft()[0])
                made.append(leased)
                if self.auto:
                    leased.fate = "auto"
                else:
                    self._out[leased.delivery.receipt] = leased
        watched = [Settlement(one.delivery.receipt, "begin") for one in made if one.delivery.watched and not self.auto]
        return self._begun(made, watched) if watched else made

    def _begun(self, made: list[L], watched: Sequence[Settlement]) -> list[L]:
        """Tells the queue that work begins; messages whose lease has run out meanwhile are not handed out."""
        lost = set(self.port.settle(watched))
        with self._guard:
            for receipt in lost:
                self._out.pop(receipt, None)
        return [one for one in made if one.delivery.receipt not in lost]

    def settle(self, pairs: Sequence[tuple[LeasedMessage, Settlement]]) -> None:
        """Settles messages that were handed out. LeaseLost if the leases of some had run out."""
        lease = self.consumer.lease
        asked = [s._replace(delay=lease) if s.fate == "extend" and s.delay is None else s for _, s in pairs]
        lost = set(self.port.settle(asked))
        with self._guard:
            for settlement in asked:
                if settlement.receipt in lost or settlement.fate != "extend":
                    self._out.pop(settlement.receipt, None)
        note_outcomes(self.port, pairs, lost)

    def give_back(self) -> None:
        """Gives back all that is not settled; what was never handed out, without counting as a try."""
        with self._asking, self._guard:
            self._closed = True
            back = [Settlement(d.receipt, "nack", AT_ONCE, tried=False) for d, _ in self._ahead] if not self.auto else []
            back += [Settlement(receipt, "nack", reason="its consumer left") for receipt in self._out]
            self._ahead.clear()
            self._out.clear()
            if back:
                self.port.settle(back)

    def _fresh(self) -> bool:
        return self.auto or self._now() - self._ahead[0][1] <= self._half

    def _extensions(self, deliveries: Sequence[Delivery]) -> list[Settlement]:
        return [Settlement(delivery.receipt, "extend", self.consumer.lease) for delivery in deliveries]

"""Extends leases while work goes on, and settles what is finished: in one call what finishes at the same time."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from types import TracebackType

from penstock.queue.port import QueuePort, Settlement

_KEEPS = ("extend", "begin")  # fates that do not end a delivery


class LeaseKeeper:
    """A thread beside the work, for the time of a `with`; at its end everything that was handed in is settled.

    `settled`: what became of messages, by fate; "lost" are those whose lease had run out before they were settled."""

    def __init__(self, port: QueuePort, lease: timedelta | None, changed: Callable[[], None] = lambda: None) -> None:
        """lease: that of the consumer, None for the queue's. changed: called when something was settled, or failed."""
        self._port, self._lease, self._changed = port, lease, changed
        self._every = (lease or port.spec.lease).total_seconds() / 3
        self.settled: Counter[str] = Counter()
        self.delayed_until = 0.0  # the latest end of a delay given here, by time.monotonic; brokers may round up by a tenth
        self.error: BaseException | None = None  # after this nothing more is settled
        self._held: set[str] = set()
        self._handed_in: list[Settlement] = []
        self._going = 0  # settlements that are under way
        self._wake, self._ended, self._beat = threading.Condition(), False, 0.0
        self._thread = threading.Thread(target=self._run, name=f"penstock-queue-{port.spec.name}", daemon=True)

    def __enter__(self) -> "LeaseKeeper":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._thread.join()
        if self.error and error is None:
            raise self.error

    @property
    def busy(self) -> int:
        """Messages that are not settled yet."""
        with self._wake:
            return len(self._held) + len(self._handed_in) + self._going

    def hold(self, receipts: Iterable[str]) -> None:
        """Their leases are extended from now on."""
        with self._wake:
            self._held.update(receipts)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """They are settled soon, and at the end of the `with` at the latest."""
        with self._wake:
            self._held.difference_update(s.receipt for s in settlements)
            self._handed_in += settlements
            self._wake.notify()

    def give_back(self) -> None:
        """Gives back all that is held, without counting as a try."""
        with self._wake:
            back, self._held = [Settlement(receipt, "nack", timedelta(0), tried=False) for receipt in self._held], set()
            self._handed_in += back
            self._wake.notify()

    def settle_now(self, settlements: Sequence[Settlement]) -> set[str]:
        """Settles them at once; the receipts that were lost."""
        with self._wake:
            self._held.difference_update(s.receipt for s in settlements if s.fate not in _KEEPS)
            self._going += len(settlements)
        try:
            return self._carry_out(settlements)
        finally:
            with self._wake:
                self._going -= len(settlements)
            self._changed()

    def _run(self) -> None:
        self._beat = time.monotonic() + self._every
        try:
            while self._round():
                pass
        except BaseException as error:  # of whatever kind: nobody else settles anything, so the work must end with it
            self.error = error
            self._changed()

    def _round(self) -> bool:
        """Waits until there is something to do, and does it; whether to go on."""
        with self._wake:
            self._wake.wait_for(lambda: self._handed_in or self._ended, max(0.0, self._beat - time.monotonic()))
            done, self._handed_in = self._handed_in, []
            kept = self._due()
            self._going += len(done)
            last = self._ended
        if done or kept:
            try:
                self._carry_out([*kept, *done])
            finally:
                with self._wake:
                    self._going -= len(done)
            self._changed()
        return not last

    def _due(self) -> list[Settlement]:
        now = time.monotonic()
        if now < self._beat:
            return []
        self._beat = now + self._every
        return [Settlement(receipt, "extend", self._lease) for receipt in self._held]

    def _carry_out(self, settlements: Sequence[Settlement]) -> set[str]:
        lost = set(self._port.settle(settlements))
        with self._wake:
            self._held -= lost
            for s in settlements:
                if s.fate == "nack":
                    delay = self._port.spec.retry if s.delay is None else s.delay
                    self.delayed_until = max(self.delayed_until, time.monotonic() + 1.1 * delay.total_seconds())
                if s.fate not in _KEEPS:
                    self.settled["lost" if s.receipt in lost else s.fate if s.tried else "untried"] += 1
        return lost

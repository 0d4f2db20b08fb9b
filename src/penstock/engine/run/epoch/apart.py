"""Sinks that may be away for long: a slow or absent store holds back only itself, and catches up in larger batches."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.run.epoch.sink_status import Tell, tell_nobody
from penstock.engine.run.waiting import Waiting, WaitMessages
from penstock.errors import Passing, SinkLost, SinkUnavailable
from penstock.sinks.port import Delivery, Together

if TYPE_CHECKING:
    from penstock.engine.run.epoch.deliver import Target

MOST_OWED = 10_000  # epochs that a sink may lag behind before the flow waits for it
MOST_TOGETHER = 100  # epochs that a sink gets in one transaction
_CLOSING = 30.0  # seconds that the end of a run gives a call that is under way


@dataclass(frozen=True)
class Start:
    """What a sink is opened with, at the start of a run and whenever it has come back."""

    incarnation: str
    generation: int
    oldest: int  # the first epoch that is kept
    check: Callable[[int], None]  # raises Mismatch if the flow cannot go on from this epoch of the sink
    again: Callable[[int, int], list[Delivery]]  # what is kept behind an epoch, up to another; Mismatch if some of it is not


def owed_from(has: int, had: int, owed: Iterable[Delivery], start: Start, lenient: bool = False) -> list[Delivery]:
    """What a sink that was opened again lacks. It may have less than it had: a store that was restored from a copy, or emptied."""
    lost = start.again(has, had) if has < had and not lenient else []
    return [*lost, *(delivery for delivery in owed if delivery.marker.epoch > has)]


class ApartLane:
    """One sink with a thread of its own, which opens it, gives it what it is owed, and tries again for as long as it takes."""

    def __init__(self, target: "Target", messages: WaitMessages | None = None, tell: Tell = tell_nobody) -> None:
        self.target, self._tell = target, tell
        self.delivered = -1
        self.failed: BaseException | None = None  # what does not pass by itself
        self.away: Passing | None = None
        self.owed: deque[Delivery] = deque()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._waiting = Waiting(f"sink {target.id}", self._stop, messages, limit=None)
        self._thread: threading.Thread | None = None
        self._opened = False

    def open(self, start: Start) -> None:
        """Returns once the sink is open, or known to be away: then it is taken to have nothing that is still kept."""
        self.delivered = start.oldest - 1
        self._thread = threading.Thread(target=self._run, args=(start,), name=f"deliver-{self.target.id}", daemon=True)
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._opened or self.away or self.failed)
        self.settle()

    def give(self, delivery: Delivery) -> None:
        with self._changed:
            self.owed.append(delivery)
            self._changed.notify_all()

    def again(self) -> None:
        """What the sink is owed it gets by itself."""
        self.settle()

    def settle(self, allowed: int = 0) -> None:
        """Raises what does not pass, or that the sink lags too far behind; waits for nothing."""
        with self._changed:
            if self.failed:
                raise self.failed
            if len(self.owed) < MOST_OWED:
                return
            behind, cause = len(self.owed), self.away
        raise SinkUnavailable(
            f"{self.target.id} is {behind:,} epochs behind, which is as far as a sink may be",
            cause.what if cause else "it is slower than the flow",
            hint="the flow goes on when it has caught up; nothing is lost",
        )

    def caught_up(self, patience: float) -> None:
        """Waits until the sink has everything. Raises what keeps it away, once that has lasted for so many seconds."""
        with self._changed:
            while self.owed and not self.failed:
                if isinstance(self.away, SinkLost):  # that does not pass by itself
                    raise self.away
                before = len(self.owed)
                here = self._changed.wait_for(lambda n=before: len(self.owed) < n or self.failed, patience)  # type: ignore[misc]
                if not here and self.away:
                    raise self.away
        self.settle()

    def finish(self) -> str:
        """Waits for what is on its way, unless the sink is away: then a line on what it has not got."""
        with self._changed:
            self._changed.wait_for(lambda: not self.owed or self.away or self.failed)
            if self.failed:
                raise self.failed
            if not self.owed or not self.away:
                return ""
            first, last, why = self.owed[0].marker.epoch, self.owed[-1].marker.epoch, self.away.what
        epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        return f"{epochs} of {self.target.id} will be delivered by the next start: {why}"

    def close(self) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(_CLOSING)

    def _run(self, start: Start) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._open(start)
                    while self._deliver():
                        pass
                except Passing as passing:
                    with self._changed:
                        self.away = passing
                        self._changed.notify_all()
                    self._told()
                    if isinstance(passing, SinkLost):
                        self._waiting.tries = 1  # somebody fills it, and it is soon looked at again
                    self._waiting.over(passing)
        except BaseException as failure:
            with self._changed:
                self.failed = failure
                self._changed.notify_all()
        finally:
            self.target.sink.close()

    def _open(self, start: Start) -> None:
        has, first = self.target.sink.open(start.incarnation, start.generation), not self._opened
        if first:
            start.check(has)
        self._waiting.ended()
        with self._changed:
            self.owed = deque(owed_from(has, has if first else self.delivered, self.owed, start))
            self.delivered, self.away, self._opened = has, None, True
            self._changed.notify_all()
        self._told()

    def _deliver(self) -> bool:
        """The next epochs, when there are any. False: the run is over."""
        with self._changed:
            self._changed.wait_for(lambda: self.owed or self._stop.is_set())
            if self._stop.is_set():
                return False
            taken = [*self.owed][: MOST_TOGETHER if isinstance(self.target.sink, Together) else 1]
        if isinstance(self.target.sink, Together):
            self.target.sink.deliver_together(taken)
        else:
            self.target.sink.deliver(taken[0])
        with self._changed:
            for _ in taken:
                self.owed.popleft()
            self.delivered = taken[-1].marker.epoch
            self._changed.notify_all()
        self._told()
        return True

    def _told(self) -> None:
        self._tell(self.target.id, self.delivered, len(self.owed), self.away)

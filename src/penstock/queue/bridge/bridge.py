"""Bridges between queues and topics: what they count, and how they run.

QueueToTopic(queue, topic).run()          a message is acknowledged once the topic has it on disk, and is there once
TopicToQueue(log, "orders", queue).run()  an offset is committed once the queue has confirmed; a message may come twice
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from penstock.errors import Damaged, Fenced, LogError, OffsetGone, SequenceGap, Unroutable

OFTEN = 0.5  # seconds between two reports
_FINAL = (Damaged, Fenced, OffsetGone, SequenceGap, Unroutable)  # asking again does not help
_PAUSE, _LONGEST = 0.1, 5.0  # seconds after a broker did not answer
_LOOK = 0.1  # seconds after which it is noticed that it was stopped


@dataclass
class Moved:
    """What a bridge did since it was started."""

    taken: int = 0  # messages or records that it read
    moved: int = 0  # those that the other side has now
    doubles: int = 0  # those that the topic had already
    refused: int = 0  # those that the other side does not take: to the dead letters, or passed over
    lost: int = 0  # those whose lease ran out meanwhile: they come again, and are known then
    troubles: int = 0  # times that a broker did not answer, and was asked again

    def __str__(self) -> str:
        words = {"moved": "moved", "doubles": "doubles", "refused": "refused", "lost": "lent again", "troubles": "tries in vain"}
        parts = [f"{count:,} {words[name]}" for name, count in asdict(self).items() if name in words and (count or name == "moved")]
        return " · ".join(parts)


Report = Callable[[Moved, str], None]  # called now and then, with what went wrong, if anything


class Runner:
    """Runs a bridge until it is stopped."""

    def __init__(self, report: Report | None = None) -> None:
        self.moved = Moved()
        self._report, self._reported = report or (lambda moved, trouble: None), 0.0
        self.stopped = False

    def stop(self) -> None:
        """Ends it after the messages that it has read; from another thread or a signal handler."""
        self.stopped = True  # an Event has a lock, which whoever the signal interrupts may hold

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.stopped and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))

    def report(self) -> None:
        if time.monotonic() - self._reported >= OFTEN:
            self._reported = time.monotonic()
            self._report(self.moved, "")

    def run(self, work: Callable[[bool], None], follow: bool) -> Moved:
        """Calls `work` with `follow`; if that is set, again whenever a broker did not answer, until it is stopped."""
        if follow:
            self._keep_on(lambda: work(True))
        else:
            work(False)
        return self.moved

    def _keep_on(self, work: Callable[[], None]) -> None:
        pause = _PAUSE
        while not self.stopped:
            before = self.moved.taken
            try:
                work()
                return
            except _FINAL:
                raise
            except LogError as error:
                self.moved.troubles += 1
                self._report(self.moved, error.what)
                pause = _PAUSE if self.moved.taken > before else min(2 * pause, _LONGEST)
                self.wait(pause)

"""The worker loop: takes messages, gives them to a handler in several threads, and settles them by what the handler does."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue

from penstock.core.time import duration
from penstock.errors import BadInput
from penstock.queue.client.consumer import consumer_of
from penstock.queue.client.lease_keeper import LeaseKeeper
from penstock.queue.client.prefetch import AT_ONCE, FIRST_PAUSE, longer
from penstock.queue.client.reasons import reason_of
from penstock.queue.message import LeasedMessage, Received, Reject, note_outcomes
from penstock.queue.options import WorkOptions
from penstock.queue.port import Delivery, QueuePort, Settlement

Handler = Callable[[Received], object]
RETRY, LONGEST = timedelta(seconds=1), timedelta(minutes=5)  # the first delay after a failure, and the longest: it doubles
_LOOK = 0.05  # seconds between two looks whether a second signal has come
SLACK = 1.0  # seconds that a broker may take to deliver a message whose delay is over
_LOGGER = logging.getLogger("penstock.queue")


@dataclass(frozen=True)
class Worked:
    """What a worker did, in deliveries."""

    done: int  # the handler returned
    failed: int  # it raised: they are tried again, or are dead letters if it was their last try
    rejected: int  # to the dead letters at once
    lost: int  # their lease had run out when they were finished: they are delivered again


class Worker:
    """Works until it is stopped; made by `Queue.worker`. Only `run` and `stop` are for users."""

    def __init__(self, port: QueuePort, handler: Handler, workers: int, options: WorkOptions) -> None:
        if workers < 1:
            raise BadInput(f"workers cannot be {workers}", hint="workers=1 handles one message after the other")
        prefetch, retry = options.get("prefetch"), options.get("retry")
        self._port, self._handler, self._count = port, handler, workers
        self._consumer = consumer_of(options.get("name"), 2 * workers if prefetch is None else prefetch, options.get("lease"))
        self._retry = port.spec.retry or RETRY if retry is None else duration(retry, "retry")
        self._until_empty = options.get("until_empty", False)
        self._jobs: SimpleQueue[Delivery | None] = SimpleQueue()
        self._changed, self._begun, self._stopped, self._asked = threading.Event(), False, False, False
        self._keeper = LeaseKeeper(port, self._consumer.lease, self._changed.set)
        self._broke: list[BaseException] = []
        self._at_once = False  # a second signal came: what was begun is not waited for
        self._receiving = False  # the broker is asked for messages

    def stop(self) -> None:
        """Takes no more messages; `run` returns when those that were begun are finished. From anywhere, the handler too."""
        self._stopped = True

    def run(self) -> Worked:
        """Works until `stop`, SIGINT or SIGTERM; with until_empty until nothing is left. What was begun is finished and settled,
        what was not is given back. A second signal ends it at once: what was begun comes back when its lease has run out."""
        if self._begun:
            raise BadInput("a worker runs once", hint="make another one: queue.worker(handler)")
        self._begun = True
        threads = [threading.Thread(target=self._serve, name=f"penstock-worker-{n}", daemon=True) for n in range(self._count)]
        with self._signals(), self._keeper:
            for thread in threads:
                thread.start()
            try:
                self._fetch()
            finally:
                self._end(threads)
        if self._at_once:
            raise KeyboardInterrupt
        if self._broke:
            raise self._broke[0]
        settled = self._keeper.settled
        return Worked(settled["ack"], settled["nack"], settled["reject"], settled["lost"])

    # In the thread that called run

    def _fetch(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopped and self._keeper.error is None:
            deliveries = self._received()
            if deliveries:
                self._keeper.hold(delivery.receipt for delivery in deliveries)
                for delivery in deliveries:
                    self._jobs.put(delivery)
                pause = FIRST_PAUSE
            elif self._until_empty and self._keeper.busy == 0 and self._is_empty():
                return
            else:
                self._changed.wait(pause)
                self._changed.clear()
                pause = longer(pause)

    def _received(self) -> Sequence[Delivery]:
        """More messages, if a thread is about to have nothing to do: in few calls, where many are ready."""
        busy = self._keeper.busy
        room = self._consumer.prefetch - busy
        needed = room > 0 and (busy < self._count or 2 * room >= self._consumer.prefetch)
        if not needed:
            return ()
        self._receiving = True
        try:
            return self._port.receive(self._consumer, room)
        finally:
            self._receiving = False

    def _is_empty(self) -> bool:
        state = self._port.state()
        if state.delayed is None and time.monotonic() < self._keeper.delayed_until + SLACK:  # the broker does not know
            return False
        return not (state.ready or state.delayed or state.lent)

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        """Gives back what was not begun, and waits for what was."""
        self._keeper.settle([_untried(delivery) for delivery in self._waiting()])
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            while thread.is_alive() and not self._at_once:
                thread.join(_LOOK)

    def _waiting(self) -> Iterator[Delivery]:
        while True:
            try:
                delivery = self._jobs.get_nowait()
            except Empty:
                return
            if delivery is not None:
                yield delivery

    # In the threads of the workers

    def _serve(self) -> None:
        while (delivery := self._jobs.get()) is not None:
            end = _untried(delivery) if self._stopped else self._handled(Received(delivery, self._settle))
            if end is not None:
                self._keeper.settle([end])

    def _handled(self, message: Received) -> Settlement | None:
        try:
            if not self._begins(message.delivery):
                return None
            self._handler(message)
            return message.ending(None)
        except Exception as error:
            return self._after(message, error)
        except BaseException as error:  # such as SystemExit: not the message's fault
            self._broke.append(error)
            self.stop()
            return None if message.fate else _untried(message.delivery)

    def _begins(self, delivery: Delivery) -> bool:
        """Tells the queue so, where the delivery is watched; False if its lease had run out."""
        return not (delivery.watched and self._keeper.settle_now([Settlement(delivery.receipt, "begin")]))

    def _after(self, message: Received, error: Exception) -> Settlement | None:
        """What becomes of a message that the handler failed with."""
        if message.fate is not None:
            _LOGGER.warning("%s: message %s was settled, and then failed: %r", self._port.spec.name, message.id, error)
            return None
        if isinstance(error, Reject):
            return message.settlement("reject", reason=str(error))
        reason, spec = reason_of(error), self._port.spec
        _LOGGER.warning("%s: message %s failed, try %d of %d: %r", spec.name, message.id, message.attempt, spec.tries, error)
        return message.settlement("nack", min(self._retry * 2 ** min(message.attempt - 1, 30), max(LONGEST, self._retry)), reason)

    def _settle(self, pairs: Sequence[tuple[LeasedMessage, Settlement]]) -> None:
        """For a handler that settles its message itself."""
        note_outcomes(self._port, pairs, self._keeper.settle_now([settlement for _, settlement in pairs]))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM stops in order, where signals are ours to handle; behind a second one `run` raises
        KeyboardInterrupt. It is raised in the handler only while a broker is asked for messages, which may take long: anywhere else
        it could leave a lock held for good."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, *_: object) -> None:
        if self._asked:
            self._at_once = True
            if self._receiving:
                raise KeyboardInterrupt
        self._asked = self._stopped = True


def _untried(delivery: Delivery) -> Settlement:
    return Settlement(delivery.receipt, "nack", AT_ONCE, tried=False)

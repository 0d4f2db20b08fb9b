"""From a queue into a topic: acknowledged once the topic has it on disk, and there once (G24)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import orjson

from penstock.core.names import check_name
from penstock.core.time import Clock, SystemClock, duration, micros
from penstock.errors import BadInput, Fenced, PenstockError
from penstock.log.intake.attributes import Given
from penstock.log.intake.rows_in import Intake
from penstock.log.port import Sender, Topic
from penstock.queue.batches import batches
from penstock.queue.bridge.bridge import Moved, Report, Runner
from penstock.queue.bridge.deduplication import SeenIds
from penstock.queue.client.prefetch import FIRST_PAUSE, longer
from penstock.queue.on_log.records import HEADER
from penstock.queue.port import Consumer, Delivery, Message, QueuePort, Settlement

REMEMBER, SPAN, BATCH = 100_000, "1 day", 1_000


class QueueToTopic:
    """Moves what is ready in a queue into a topic, until it is empty or the bridge is stopped.

    A message whose id is among the last `remember` that this bridge wrote, and not older than `span`, is a duplicate: it is
    acknowledged and not written. Which those are is read from the topic itself when the bridge starts. Messages without an id are
    written as often as they come. Of one name, one bridge writes at a time: one that is started shuts the one before it out."""

    def __init__(
        self,
        queue: QueuePort,
        topic: Topic,
        name: str | None = None,
        *,
        batch: int = BATCH,
        remember: int = REMEMBER,
        span: str | timedelta = SPAN,
        report: Report | None = None,
        clock: Clock | None = None,
    ) -> None:
        if batch < 1 or remember < 0:
            raise BadInput("batch must be at least 1, and remember at least 0")
        self.name = check_name(name or f"{queue.spec.name}-to-{topic.spec.name}", "bridge")
        self._queue, self._topic, self._runner = queue, topic, Runner(report)
        self._consumer, self._batch = Consumer(f"bridge {self.name}"[:200], prefetch=batch), batch
        self._ids = SeenIds(remember, micros(duration(span, "span")), clock or SystemClock())
        self._sender, self._epoch = f"bridge.{self.name}", -1
        self._sequences: dict[int, int] = {}

    @property
    def moved(self) -> Moved:
        return self._runner.moved

    def stop(self) -> None:
        """Ends it once what it has received is written and acknowledged; from another thread or a signal handler."""
        self._runner.stop()

    def run(self, follow: bool = False) -> Moved:
        """Until nothing is ready; follow: on and on, also while a broker is away."""
        return self._runner.run(self._work, follow)

    def _work(self, follow: bool) -> None:
        self._begin()
        pause = FIRST_PAUSE
        while not self._runner.stopped:
            deliveries = self._queue.receive(self._consumer, self._batch)
            if deliveries:
                self._move(deliveries)
                pause = FIRST_PAUSE
            elif not follow and not self._queue.state().ready:
                return
            else:
                self._runner.wait(pause)
                pause = longer(pause)
            self._runner.report()

    # Who writes

    def _begin(self) -> None:
        """Fences off the bridge that wrote under this name before, and only then reads what it wrote."""
        self._epoch = self._known_epoch() + 1
        while not self._fenced_off():  # another one begins at this moment
            self._epoch = max(self._epoch, self._known_epoch()) + 1
        self._ids.read_back(self._topic, self.name)

    def _fenced_off(self) -> bool:
        self._sequences = {}
        try:
            return all(self._fence(number) for number in range(self._topic.spec.partitions))
        except Fenced:
            return False

    def _known_epoch(self) -> int:
        stamps = [self._topic.senders(number).get(self._sender) for number in range(self._topic.spec.partitions)]
        return max((stamp.epoch for stamp in stamps if stamp), default=-1)

    def _fence(self, partition: int) -> bool:
        """A frame without rows, that nobody of an earlier epoch can write behind. False if another one has this epoch, too."""
        nothing = Intake(self._topic.spec).lines([]).rows
        return not self._append(partition, nothing)

    def _append(self, partition: int, rows: Any) -> bool:
        """Whether the log had it already."""
        sequence = self._sequences.get(partition, -1) + 1
        appended = self._topic.append(partition, rows, sender=Sender(self._sender, self._epoch, sequence))
        self._sequences[partition] = sequence
        return appended.duplicate

    # What is written

    def _move(self, deliveries: Sequence[Delivery]) -> None:
        try:
            refused = self._write(deliveries)
        except Fenced as error:
            self._give_back(deliveries)
            raise Fenced(
                f"another bridge called {self.name} has taken over", hint="give this one a name of its own: --name"
            ) from error
        except PenstockError:
            self._give_back(deliveries)  # some of it may be in the topic: what is there is read when the bridge begins anew
            raise
        settlements = [
            Settlement(d.receipt, "reject", reason=refused[d.receipt]) if d.receipt in refused else Settlement(d.receipt, "ack")
            for d in deliveries
        ]
        self.moved.lost += len(self._queue.settle(settlements))

    def _write(self, deliveries: Sequence[Delivery]) -> Mapping[str, str]:
        """Writes those that are new. The receipts of those that the topic does not take, and why."""
        fresh, refused, at = self._fresh(deliveries), dict[str, str](), 0
        for part in batches(delivery.message for delivery in fresh):
            for index, reason in self._write_part(part).items():
                refused[fresh[at + index].receipt] = reason
            at += len(part)
        for delivery in fresh:
            if delivery.message.id and delivery.receipt not in refused:  # what was refused may be sent again, mended
                self._ids.add(delivery.message.id)
        self.moved.taken += len(deliveries)
        self.moved.moved += len(fresh) - len(refused)
        self.moved.doubles += len(deliveries) - len(fresh)
        self.moved.refused += len(refused)
        return refused

    def _fresh(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        found, here = list[Delivery](), set[str]()
        for delivery in deliveries:
            id = delivery.message.id
            if not id or (id not in self._ids and (id not in here or not self._ids.most)):
                found.append(delivery)
                here.add(id)
        return found

    def _write_part(self, messages: Sequence[Message]) -> Mapping[int, str]:
        given = Given(
            keys=[m.key.encode() if m.key is not None else None for m in messages],
            headers=[{**m.headers, HEADER: self._header(m)} for m in messages],
        )
        rows = Intake(self._topic.spec).lines([m.body for m in messages], given)
        for partition, batch, _ in rows.by_partition():
            if partition not in self._sequences:  # the topic got more partitions
                self._fence(partition)
            self._append(partition, batch)
        return {rejected.index: rejected.reason for rejected in rows.rejected}

    def _header(self, message: Message) -> bytes:
        header: dict[str, Any] = {"id": message.id, "bridge": self.name}
        header |= {"route": message.route} if message.route else {}
        header |= {"priority": message.priority} if message.priority else {}
        return orjson.dumps(header)

    def _give_back(self, deliveries: Sequence[Delivery]) -> None:
        with suppress(PenstockError):  # if not, their leases run out
            self._queue.settle([Settlement(d.receipt, "nack", timedelta(0), tried=False) for d in deliveries])

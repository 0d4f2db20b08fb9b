"""One queue on the log: a topic, how far it was read, and the state of its messages."""

import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from penstock.core.time import Clock
from penstock.errors import NotFound, PenstockError
from penstock.log.file.log import FileLog
from penstock.log.groups.port import QUEUE, Groups, Source
from penstock.log.port import Sender, Topic
from penstock.queue.checks import Ids, check_consumer, check_messages
from penstock.queue.dead_letters import as_dead_letter
from penstock.queue.errors import full, too_large
from penstock.queue.on_log.events import AnyEvent, Deleted
from penstock.queue.on_log.intake import AHEAD, Intake
from penstock.queue.on_log.position import origin_of, partition_and_offset
from penstock.queue.on_log.publisher import Publisher
from penstock.queue.on_log.records import encode_messages
from penstock.queue.on_log.shared_journal import SharedJournal
from penstock.queue.on_log.state import LogQueueState
from penstock.queue.port import Consumer, Delivery, Message, QueueSpec, QueueState, Settlement
from penstock.queue.state import transitions
from penstock.queue.state.clock import Now
from penstock.queue.state.item import Item
from penstock.queue.state.limits import room_for, too_many
from penstock.queue.state.stats import state_of

DIRECTORY = "queues"
_ROOM = 0.02  # seconds between two looks for room
_PROGRESS = 1.0  # seconds between two notes of how far a queue has come


def directory_of(name: str) -> str:
    return f"{DIRECTORY}/{name}"


class Siblings(Protocol):
    """The queues of the same log, as one of them sees them."""

    log: FileLog
    clock: Clock
    groups: Groups | None
    ids: Ids
    sent: dict[str, float]

    def now(self) -> Now: ...

    def dead_letter_topic(self, spec: QueueSpec) -> Topic: ...

    def route(self, name: str, source: str, messages: Sequence[Message]) -> "LogQueue | None": ...


class _Lease(NamedTuple):
    """A message on its way to a consumer."""

    position: int
    receipt: str
    attempt: int
    sent: int
    watched: bool


class _Local(NamedTuple):
    """What a queue has in one process: a fork may leave locks behind that are held by threads of the parent."""

    pid: int
    intake: Intake
    publisher: Publisher
    journal: SharedJournal


class LogQueue:
    """One queue of a LogQueues."""

    def __init__(self, queues: Siblings, spec: QueueSpec, id: str) -> None:
        self._queues, self._spec, self._id, self._source = queues, spec, id, spec.origin
        self._topic = queues.log.topic(spec.origin)
        self._opened = self._open()
        self._progress_at = 0.0

    @property
    def spec(self) -> QueueSpec:
        return self._spec

    def _open(self) -> _Local:
        queues, directory = self._queues, directory_of(self._spec.name)
        journal = SharedJournal(queues.log.storage, directory, queues.now, self._store_dead_letter)
        return _Local(os.getpid(), Intake(self._topic, self._spec), Publisher(self._topic, queues.clock), journal)

    @property
    def local(self) -> _Local:
        if self._opened.pid != os.getpid():
            self._opened = self._open()
        return self._opened

    def send(self, messages: Sequence[Message], wait: float = 0.0) -> Sequence[str | None]:
        check_messages(messages)
        messages = self._queues.ids.named(messages)
        limited = self._queues.route(self._spec.name, self._source, messages)
        if limited:
            return limited.send_limited(messages, wait)
        if messages:
            self.local.publisher.send(messages)
            self._queues.sent[self._source] = time.monotonic()
        return [message.id for message in messages]

    def receive(self, consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
        check_consumer(consumer, most)
        _, intake, _, journal = self.local

        def lease(state: LogQueueState, now: Now) -> tuple[list[_Lease], list[AnyEvent]]:
            machine = state.machine
            events = intake.poll(state, most, self._queues.sent.get(self._source, 0.0), now)
            items = transitions.lease(machine, self._spec, consumer, most, now)
            events += transitions.leased(consumer, items)
            leases = [_Lease(i.position, f"{i.position}-{i.token}", i.attempts, i.sent, not i.begun) for i in items]
            if auto:
                events += transitions.finish(machine, items, "acked")
            return leases, events

        deliveries = self._deliveries(journal.run(lease, durable=auto))
        if time.monotonic() >= self._progress_at:
            self.note_progress()
        return deliveries

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
        def settle(state: LogQueueState, now: Now) -> tuple[Sequence[str], Sequence[AnyEvent]]:
            return transitions.settle(state.machine, self._spec, settlements, now)

        durable = any(settlement.fate != "begin" for settlement in settlements)  # a power loss ends all leases anyway
        lost = self.local.journal.run(settle, durable) if settlements else []
        if time.monotonic() >= self._progress_at:
            self.note_progress()
        return lost

    def peek(self, most: int = 10) -> Sequence[Delivery]:
        _, intake, _, journal = self.local

        def look(state: LogQueueState, now: Now) -> tuple[list[_Lease], list[AnyEvent]]:
            events = intake.read(state, max(most, AHEAD), now)
            items = islice(state.machine.waiting(), max(most, 0))
            return [_Lease(item.position, "", item.attempts, item.sent, False) for item in items], events

        return self._deliveries(journal.run(look, durable=False))

    def state(self) -> QueueState:
        _, intake, _, journal = self.local

        def look(state: LogQueueState, now: Now) -> tuple[QueueState, list[AnyEvent]]:
            events = intake.read(state, AHEAD, now)
            unread = intake.unread(state)
            found = state_of(state.machine, self._spec, now, self._notes(unread))
            return replace(found, ready=found.ready + unread), events

        return journal.run(look, durable=False)

    def purge(self) -> int:
        """Removes what nobody holds; how many messages there were."""
        _, intake, _, journal = self.local

        def purge(state: LogQueueState, now: Now) -> tuple[int, list[AnyEvent]]:
            waiting = list(state.machine.waiting())
            count, events = intake.skip_all(state)
            return len(waiting) + count, [*transitions.finish(state.machine, waiting, "purged"), *events]

        return journal.run(purge)

    def delete(self) -> None:
        with suppress(NotFound):
            self.local.journal.run(lambda state, now: (None, [Deleted()]), alone=True)

    # Sending within a limit

    def send_limited(self, messages: Sequence[Message], wait: float) -> Sequence[str | None]:
        """Sends what this queue's limit leaves room for, for all queues of its source."""
        if self._spec.limit.policy == "push-back" and not room_for(self._spec, messages):
            raise too_large(self._spec)
        deadline = time.monotonic() + wait
        while True:
            last = time.monotonic() >= deadline
            fitting = partial(self._send_fitting, messages=messages, last=last)
            sent = self.local.journal.run(fitting, durable=False, alone=True)
            if sent is not None:
                return sent
            if last:
                raise full(self._spec, wait)
            time.sleep(_ROOM)

    def _send_fitting(
        self, state: LogQueueState, now: Now, messages: Sequence[Message], last: bool
    ) -> tuple[Sequence[str | None] | None, list[AnyEvent]]:
        """The ids of the messages that were sent; None if they have to wait."""
        machine, policy, (_, intake, publisher, _) = state.machine, self._spec.limit.policy, self.local
        events = intake.read(state, None, now)
        dropped: Collection[int] = ()
        if policy == "push-back" and not room_for(self._spec, messages, machine):
            return None, [*events, *(transitions.counted(machine, "refused", len(messages)) if last else [])]
        if policy == "drop-newest":
            dropped = too_many(self._spec, messages, machine)
            events += transitions.count_dropped(machine, len(dropped))
        kept = [m for i, m in enumerate(messages) if i not in dropped]
        if kept:
            publisher.send(kept)
            self._queues.sent[self._source] = time.monotonic()
        if policy == "drop-oldest":
            events += intake.read(state, None, now)
        return [None if i in dropped else m.id for i, m in enumerate(messages)], events

    # Delivering

    def _deliveries(self, leases: Sequence[_Lease]) -> Sequence[Delivery]:
        found = self.local.intake.stored.messages([lease.position for lease in leases])
        return [
            Delivery(found[position], receipt, attempt, sent, origin_of(self._source, position), watched)
            for position, receipt, attempt, sent, watched in leases
        ]

    def _store_dead_letter(self, state: LogQueueState, position: int, number: int) -> None:
        message, item = self.local.intake.stored.messages([position])[position], state.machine.items[position]
        topic, now = self._queues.dead_letter_topic(self._spec), self._queues.clock.now()
        rows = encode_messages(topic, [self._dead_letter(message, item, state.machine.dying[position], now)], now)
        topic.append(0, rows.rows, sender=Sender(f"{QUEUE}{self._spec.name}.{self._id}", 0, number, gaps=True))

    def _dead_letter(self, message: Message, item: Item, reason: str, now: int) -> Message:
        return as_dead_letter(message, self._spec.name, origin_of(self._source, item.position), item.attempts, reason, now)

    # What others see

    def _notes(self, unread: int) -> list[str]:
        trouble, limit = self.local.journal.trouble, self._spec.limit
        notes = [f"dead letters cannot be stored: {trouble.what}"] if trouble else []
        if unread and self._spec.bindings:
            notes.append(f"{unread:,} records of {self._source} were not read yet; not all of them may be for this queue")
        if limit.policy == "buffer" and limit.messages is not None and unread > limit.messages:
            notes.append(f"more than the {limit.messages:,} messages that are worth a look")
        return notes

    def note_progress(self) -> None:
        """Notes how far the queue has come: retention waits for it, and groups show it."""
        self._progress_at = time.monotonic() + _PROGRESS
        if self._queues.groups is not None:
            source = Source(self._source, self._topic.id, self._topic.spec.partitions)
            with suppress(PenstockError):  # it is noted again
                first = self.local.journal.run(_first_undone, durable=False)
                self._queues.groups.put(f"{QUEUE}{self._spec.name}", source, first)


def _first_undone(state: LogQueueState, _: Now) -> tuple[dict[int, int], list[AnyEvent]]:
    """By partition: everything before it is done."""
    first = dict(state.next)
    for position in state.machine.items:
        partition, offset = partition_and_offset(position)
        first[partition] = min(first[partition], offset)
    return first, []

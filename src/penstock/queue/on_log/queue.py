"""One queue on the log: a topic, what was seen of it, and who holds which of its messages."""

import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from penstock.errors import NotFound, PenstockError
from penstock.log.file.log import FileLog
from penstock.log.groups.port import QUEUE, Groups, Source
from penstock.log.port import Sender, Topic
from penstock.queue.checks import Ids, check_consumer, check_messages
from penstock.queue.dead_letters import as_dead_letter
from penstock.queue.errors import full, too_large
from penstock.queue.on_log import commands
from penstock.queue.on_log.commands import Event
from penstock.queue.on_log.group_commit import Outbox
from penstock.queue.on_log.intake import AHEAD, Lookout
from penstock.queue.on_log.journal import DELETED
from penstock.queue.on_log.records import prepared
from penstock.queue.on_log.share import Share, where
from penstock.queue.on_log.shared_journal import SharedJournal
from penstock.queue.port import Consumer, Delivery, Message, QueueSpec, QueueState, Settlement
from penstock.queue.state.limits import room_for, too_many
from penstock.queue.state.machine import Book, Now
from penstock.queue.state.stats import state_of

DIRECTORY = "queues"
_ROOM = 0.02  # seconds between two looks for room
_TOLD = 1.0  # seconds between two notes of how far a queue has come


def directory_of(name: str) -> str:
    return f"{DIRECTORY}/{name}"


class Around(Protocol):
    """What a queue has to know of the others."""

    log: FileLog
    groups: Groups | None
    ids: Ids
    sent: dict[str, float]

    def now(self) -> Now: ...

    def dead(self, spec: QueueSpec) -> Topic: ...

    def check_routes(self, spec: QueueSpec, messages: Sequence[Message]) -> None: ...

    def limited(self, source: str) -> "LogQueue | None": ...


class _Lent(NamedTuple):
    """A message on its way out."""

    place: int
    receipt: str
    attempt: int
    sent: int
    watched: bool


class _Own(NamedTuple):
    """What a queue has in one process."""

    pid: int
    lookout: Lookout
    outbox: Outbox


class LogQueue:
    """One queue of a LogQueues."""

    def __init__(self, queues: Around, spec: QueueSpec, id: str) -> None:
        self._queues, self._spec, self._id = queues, spec, id
        self._topic = queues.log.topic(spec.origin)
        self._own = self._owned()
        self._journal = SharedJournal(queues.log.storage, directory_of(spec.name), queues.now, self._bury)
        self._told = 0.0

    @property
    def spec(self) -> QueueSpec:
        return self._spec

    def _owned(self) -> _Own:
        return _Own(os.getpid(), Lookout(self._topic, self._spec), Outbox(self._topic, lambda: self._queues.now().wall))

    @property
    def _here(self) -> _Own:
        """What belongs to this process: locks may be held by threads that a fork left behind."""
        if self._own.pid != os.getpid():
            self._own = self._owned()
        return self._own

    def send(self, messages: Sequence[Message], wait: float = 0.0) -> Sequence[str | None]:
        check_messages(messages)
        messages = self._queues.ids.named(messages)
        self._queues.check_routes(self._spec, messages)
        limited = self._queues.limited(self._spec.origin)
        if limited:
            return limited.send_limited(messages, wait)
        if messages:
            self._append(messages)
        return [message.id for message in messages]

    def receive(self, consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
        check_consumer(consumer, most)

        def act(share: Share, now: Now) -> tuple[list[_Lent], list[Event]]:
            events = self._here.lookout.glance(share, most, self._queues.sent.get(self._spec.origin, 0.0), now)
            items, taken = commands.lend(share.book, self._spec, consumer, most, now)
            lent = [_Lent(item.place, commands.receipt(item), item.count, item.sent, not item.begun) for item in items]
            return lent, [*events, *taken, *(commands.finish(share.book, items, "acked") if auto else [])]

        lent = self._journal.run(act, durable=auto)
        deliveries = self._deliveries(lent)
        self.tell()
        return deliveries

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
        durable = any(settlement.fate != "begin" for settlement in settlements)  # a power loss ends all leases anyway
        act = partial(_settled, spec=self._spec, settlements=settlements)
        lost = self._journal.run(act, durable) if settlements else []
        self.tell()
        return lost

    def peek(self, most: int = 10) -> Sequence[Delivery]:
        def act(share: Share, now: Now) -> tuple[list[_Lent], list[Event]]:
            events = self._here.lookout.look(share, max(most, AHEAD), now)
            return [
                _Lent(item.place, "", item.count, item.sent, False) for item in islice(share.book.in_line(), max(most, 0))
            ], events

        return self._deliveries(self._journal.run(act, durable=False))

    def state(self) -> QueueState:
        def act(share: Share, now: Now) -> tuple[QueueState, list[Event]]:
            events = self._here.lookout.look(share, AHEAD, now)
            unread = self._here.lookout.unread(share)
            found = state_of(share.book, self._spec, now, self._notes(unread))
            return replace(found, ready=found.ready + unread), events

        return self._journal.run(act, durable=False)

    def purge(self) -> int:
        """Removes what nobody holds; how many messages there were."""

        def act(share: Share, now: Now) -> tuple[int, list[Event]]:
            there = list(share.book.in_line())
            count, events = self._here.lookout.pass_over(share)
            return len(there) + count, [*commands.finish(share.book, there, "purged"), *events]

        return self._journal.run(act)

    def delete(self) -> None:
        with suppress(NotFound):
            self._journal.run_alone(lambda share, now: (None, [[DELETED]]))

    # What comes in

    def _append(self, messages: Sequence[Message]) -> None:
        self._here.outbox.put(messages)
        self._queues.sent[self._spec.origin] = time.monotonic()

    def send_limited(self, messages: Sequence[Message], wait: float) -> Sequence[str | None]:
        """Sends what this queue's limit leaves room for, for all queues of its source."""
        if self._spec.limit.policy == "push-back" and not room_for(self._spec, messages):
            raise too_large(self._spec)
        deadline = time.monotonic() + wait
        while True:
            last = time.monotonic() >= deadline
            sent = self._journal.run_alone(partial(self._fitted, messages=messages, last=last), durable=False)
            if sent is not None:
                return sent
            if last:
                raise full(self._spec, wait)
            time.sleep(_ROOM)

    def _fitted(
        self, share: Share, now: Now, messages: Sequence[Message], last: bool
    ) -> tuple[Sequence[str | None] | None, list[Event]]:
        """The ids of the messages that were sent; None if they have to wait."""
        events = self._here.lookout.look(share, None, now)
        away: Collection[int] = ()
        if self._spec.limit.policy == "push-back" and not room_for(self._spec, messages, share.book):
            return None, [*events, *(_refused(share.book, len(messages)) if last else [])]
        if self._spec.limit.policy == "drop-newest":
            away = too_many(self._spec, messages, share.book)
            events += commands.turn_away(share.book, len(away))
        kept = [m for i, m in enumerate(messages) if i not in away]
        if kept:
            self._append(kept)
        if self._spec.limit.policy == "drop-oldest":
            events += self._here.lookout.look(share, None, now)
        return [None if i in away else m.id for i, m in enumerate(messages)], events

    # What goes out

    def _deliveries(self, lent: Sequence[_Lent]) -> Sequence[Delivery]:
        found = self._here.lookout.stored.messages([one.place for one in lent])
        return [
            Delivery(found[one.place], one.receipt, one.attempt, one.sent, self._origin(one.place), one.watched) for one in lent
        ]

    def _origin(self, place: int) -> str:
        partition, offset = where(place)
        return f"{self._spec.origin}/{partition}/{offset}"

    def _bury(self, share: Share, place: int, number: int) -> None:
        message, item, now = self._here.lookout.stored.messages([place])[place], share.book.items[place], self._queues.now().wall
        letter = as_dead_letter(message, self._spec.name, self._origin(place), item.count, share.book.leaving[place], now)
        topic = self._queues.dead(self._spec)
        rows = prepared(topic, [letter], now)
        topic.append(0, rows.rows, sender=Sender(f"{QUEUE}{self._spec.name}.{self._id}", 0, number, gaps=True))

    def _notes(self, unread: int) -> list[str]:
        notes = [f"dead letters cannot be put away: {self._journal.trouble.what}"] if self._journal.trouble else []
        if unread and self._spec.bindings:
            notes.append(f"{unread:,} records of {self._spec.origin} were not looked at yet; not all of them may be for this queue")
        limit = self._spec.limit
        if limit.policy == "buffer" and limit.messages is not None and unread > limit.messages:
            notes.append(f"more than the {limit.messages:,} messages that are worth a look")
        return notes

    def tell(self) -> None:
        """Notes how far the queue has come, now and then: retention waits for it, and groups show it."""
        groups, now = self._queues.groups, time.monotonic()
        if groups is None or now - self._told < _TOLD:
            return
        self._told = now
        source = Source(self._spec.origin, self._topic.id, self._topic.spec.partitions)
        with suppress(PenstockError):  # it is told again
            groups.put(f"{QUEUE}{self._spec.name}", source, self._journal.run(_first_undone, durable=False))


def _settled(share: Share, now: Now, spec: QueueSpec, settlements: Sequence[Settlement]) -> tuple[list[str], list[Event]]:
    return commands.settle(share.book, spec, settlements, now)


def _first_undone(share: Share, _: Now) -> tuple[dict[int, int], list[Event]]:
    """By partition: everything before it is done."""
    first = dict(share.next)
    for place in share.book.items:
        partition, offset = where(place)
        first[partition] = min(first[partition], offset)
    return first, []


def _refused(book: Book, count: int) -> list[Event]:
    event: Event = ["count", "refused", count]
    commands.told(book, event)
    return [event]

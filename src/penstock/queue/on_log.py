"""Queues on the log: any topic, read as a queue, while others read it as a log. Format: docs/adr/0009-queues-on-the-log.md."""

import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import orjson

from penstock.errors import AlreadyThere, NotFound, PenstockError
from penstock.log.file import FileLog
from penstock.log.groups.leases import LeaseClock, MachineClock
from penstock.log.groups.port import QUEUE, Groups, Source
from penstock.log.port import Sender, Topic, TopicSpec
from penstock.queue import desk
from penstock.queue.book import Book, Now
from penstock.queue.checks import Ids, check_consumer, check_messages, check_spec
from penstock.queue.dead import as_dead_letter, no_queue
from penstock.queue.desk import Event
from penstock.queue.journal import DELETED, Journal
from penstock.queue.ledger import Ledger
from penstock.queue.looking import AHEAD, Lookout
from penstock.queue.port import Consumer, Delivery, Message, QueueSpec, QueueState, Settlement
from penstock.queue.records import prepared
from penstock.queue.refusals import full, too_large, unroutable
from penstock.queue.room import room_for, too_many
from penstock.queue.routing import FOR, takes
from penstock.queue.settings import decode_spec, encode_spec
from penstock.queue.share import Share, where
from penstock.queue.telling import state_of

_ROOM = 0.02  # seconds between two looks for room
_TOLD = 1.0  # seconds between two notes of how far a queue has come
DIRECTORY, _SETTINGS, _ENDED = "queues", ".json", ".ended"
MAX_MESSAGE = 64 << 20  # bytes of a record, in topics that are made for queues


class _Lent(NamedTuple):
    """A message on its way out."""

    place: int
    receipt: str
    attempt: int
    sent: int


class LogQueue:
    """One queue of a LogQueues."""

    def __init__(self, queues: "LogQueues", spec: QueueSpec, id: str) -> None:
        self._queues, self._spec, self._id = queues, spec, id
        self._topic = queues.log.topic(spec.origin)
        self._lookout = Lookout(self._topic, spec)
        self._ledger = Ledger(queues.log.storage, directory_of(spec.name), queues.now, self._bury)
        self._told = 0.0

    @property
    def spec(self) -> QueueSpec:
        return self._spec

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

        def act(share: Share, now: Now) -> tuple[tuple[list[_Lent], bool], list[Event]]:
            events = self._lookout.glance(share, most, self._queues.sent.get(self._spec.origin, 0.0), now)
            items, taken = desk.lend(share.book, self._spec, consumer, most, now)
            lent = [_Lent(item.place, desk.receipt(item), item.count, item.sent) for item in items]
            done = desk.finish(share.book, items, "acked") if auto else []
            return (lent, bool(share.book.leaving)), [*events, *taken, *done]

        lent, leaving = self._ledger.run(act, durable=auto)
        if leaving and not lent:  # by now they are among the dead letters, and others may have come forward
            lent, _ = self._ledger.run(act, durable=auto)
        deliveries = self._deliveries(lent)
        self.tell()
        return deliveries

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
        lost = self._ledger.run(lambda share, now: desk.settle(share.book, self._spec, settlements, now)) if settlements else []
        self.tell()
        return lost

    def peek(self, most: int = 10) -> Sequence[Delivery]:
        def act(share: Share, now: Now) -> tuple[list[_Lent], list[Event]]:
            events = self._lookout.look(share, max(most, AHEAD), now)
            return [_Lent(item.place, "", item.count, item.sent) for item in islice(share.book.in_line(), max(most, 0))], events

        return self._deliveries(self._ledger.run(act, durable=False))

    def state(self) -> QueueState:
        def act(share: Share, now: Now) -> tuple[QueueState, list[Event]]:
            events = self._lookout.look(share, AHEAD, now)
            unread = self._lookout.unread(share)
            found = state_of(share.book, self._spec, now, self._notes(unread))
            return replace(found, ready=found.ready + unread), events

        return self._ledger.run(act, durable=False)

    def purge(self) -> int:
        """Removes what nobody holds; how many messages there were."""

        def act(share: Share, now: Now) -> tuple[int, list[Event]]:
            there = list(share.book.in_line())
            count, events = self._lookout.pass_over(share)
            return len(there) + count, [*desk.finish(share.book, there, "purged"), *events]

        return self._ledger.run(act)

    def delete(self) -> None:
        with suppress(NotFound):
            self._ledger.run_alone(lambda share, now: (None, [[DELETED]]))

    # What comes in

    def _append(self, messages: Sequence[Message]) -> None:
        rows = prepared(self._topic, messages, self._queues.now().wall)
        for partition, batch, _ in rows.by_partition():
            self._topic.append(partition, batch)
        self._queues.sent[self._spec.origin] = time.monotonic()

    def send_limited(self, messages: Sequence[Message], wait: float) -> Sequence[str | None]:
        """Sends what this queue's limit leaves room for, for all queues of its source."""
        if self._spec.limit.policy == "push-back" and not room_for(self._spec, messages):
            raise too_large(self._spec)
        deadline = time.monotonic() + wait
        while True:
            last = time.monotonic() >= deadline
            sent = self._ledger.run_alone(partial(self._fitted, messages=messages, last=last), durable=False)
            if sent is not None:
                return sent
            if last:
                raise full(self._spec, wait)
            time.sleep(_ROOM)

    def _fitted(
        self, share: Share, now: Now, messages: Sequence[Message], last: bool
    ) -> tuple[Sequence[str | None] | None, list[Event]]:
        """The ids of the messages that were sent; None if they have to wait."""
        events = self._lookout.look(share, None, now)
        away: Collection[int] = ()
        if self._spec.limit.policy == "push-back" and not room_for(self._spec, messages, share.book):
            return None, [*events, *(_refused(share.book, len(messages)) if last else [])]
        if self._spec.limit.policy == "drop-newest":
            away = too_many(self._spec, messages, share.book)
            events += desk.turn_away(share.book, len(away))
        kept = [m for i, m in enumerate(messages) if i not in away]
        if kept:
            self._append(kept)
        if self._spec.limit.policy == "drop-oldest":
            events += self._lookout.look(share, None, now)
        return [None if i in away else m.id for i, m in enumerate(messages)], events

    # What goes out

    def _deliveries(self, lent: Sequence[_Lent]) -> Sequence[Delivery]:
        found = self._lookout.shelf.messages([one.place for one in lent])
        return [Delivery(found[one.place], one.receipt, one.attempt, one.sent, self._origin(one.place)) for one in lent]

    def _origin(self, place: int) -> str:
        partition, offset = where(place)
        return f"{self._spec.origin}/{partition}/{offset}"

    def _bury(self, share: Share, place: int, number: int) -> None:
        message, item, now = self._lookout.shelf.messages([place])[place], share.book.items[place], self._queues.now().wall
        letter = as_dead_letter(message, self._spec.name, self._origin(place), item.count, share.book.leaving[place], now)
        topic = self._queues.dead(self._spec)
        rows = prepared(topic, [letter], now)
        topic.append(0, rows.rows, sender=Sender(f"{QUEUE}{self._spec.name}.{self._id}", 0, number, gaps=True))

    def _notes(self, unread: int) -> list[str]:
        notes = [f"dead letters cannot be put away: {self._ledger.trouble.what}"] if self._ledger.trouble else []
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
            groups.put(f"{QUEUE}{self._spec.name}", source, self._ledger.run(_first_undone, durable=False))


class LogQueues:
    """The queues of an embedded log. Any number of processes may use them at once."""

    def __init__(self, log: FileLog, groups: Groups | None = None, leases: LeaseClock | None = None) -> None:
        """groups: where it is noted how far each queue has come."""
        self.log, self.groups = log, groups
        self._leases = leases or MachineClock()
        self.ids = Ids()
        self._open: dict[str, LogQueue] = {}
        self.sent: dict[str, float] = {}  # by source: when this process last sent to it
        self._known: tuple[float, dict[str, QueueSpec]] | None = None

    def create(self, spec: QueueSpec) -> LogQueue:
        check_spec(spec)
        if spec.name in self.names():
            raise AlreadyThere(f"there is a queue {spec.name} already")
        topic = self._topic(spec.origin)
        self._make(spec, topic)
        with suppress(AlreadyThere):
            self._make(QueueSpec(spec.dead_letters), self._topic(spec.dead_letters))
        made = self.queue(spec.name)
        made.tell()
        return made

    def queue(self, name: str) -> LogQueue:
        try:
            spec, id = decode_spec(bytes(self.log.storage.read(settings_of(name))), settings_of(name))
        except NotFound:
            raise no_queue(name, self.names()) from None
        known = self._open.get(id)
        if known is None:
            known = self._open[id] = LogQueue(self, spec, id)
        return known

    def names(self) -> list[str]:
        return sorted(name.removesuffix(_SETTINGS) for name in self.log.storage.list(DIRECTORY) if name.endswith(_SETTINGS))

    def delete(self, name: str) -> None:
        """Where it ended is noted: a queue of that name that is made again begins there."""
        queue = self.queue(name)
        topic = self._topic(queue.spec.origin)
        ended = orjson.dumps({"topic": topic.id, "next": [[p, end.next] for p, end in topic.ends().items()]})
        with self.log.storage.lock(f"{DIRECTORY}/lock"):
            self.log.storage.remove(settings_of(name))
            queue.delete()
            self.log.storage.remove(directory_of(name))
            self.log.storage.remove(f"{DIRECTORY}/{name}{_ENDED}")
            self.log.storage.publish(f"{DIRECTORY}/{name}{_ENDED}", ended)
        self._known = None
        if self.groups:
            with suppress(PenstockError):
                self.groups.forget(f"{QUEUE}{name}")

    def purge(self, name: str) -> int:
        return self.queue(name).purge()

    def now(self) -> Now:
        boot, at = self._leases.beat()
        return Now(boot, at, self.log.clock.now())

    def dead(self, spec: QueueSpec) -> Topic:
        """The topic of a queue's dead letters; they are there although somebody deleted the queue of them."""
        with suppress(AlreadyThere):
            if spec.dead_letters not in self.names():
                self._make(QueueSpec(spec.dead_letters), self._topic(spec.dead_letters))
        return self._topic(self.queue(spec.dead_letters).spec.origin)

    def check_routes(self, spec: QueueSpec, messages: Sequence[Message]) -> None:
        """Unroutable if there is a message that no queue of the source takes; NotFound if the queue is gone."""
        known = self._specs()
        if spec.name not in known:
            raise no_queue(spec.name, known)
        takers = [other for other in known.values() if other.origin == spec.origin]
        if all(other.bindings for other in takers) or any(FOR in message.headers for message in messages):
            for message in messages:
                if not any(takes(other.bindings, message.route, message.headers, other.name) for other in takers):
                    raise unroutable(message, spec.origin)

    def limited(self, source: str) -> LogQueue | None:
        """The queue whose limit counts for whoever sends to a source: that of its name."""
        own = self._specs().get(source)
        return self.queue(source) if own and own.origin == source and own.limit.policy != "buffer" else None

    def _specs(self) -> dict[str, QueueSpec]:
        """All queues; those that another process makes or deletes are noticed within a second."""
        if self._known is None or time.monotonic() - self._known[0] > _TOLD:
            found: dict[str, QueueSpec] = {}
            for name in self.names():
                with suppress(NotFound):
                    found[name] = self.queue(name).spec
            self._known = (time.monotonic(), found)
        return self._known[1]

    def _topic(self, name: str) -> Topic:
        try:
            return self.log.topic(name)
        except NotFound:
            with suppress(AlreadyThere):
                return self.log.create(TopicSpec(name, max_record=MAX_MESSAGE))
            return self.log.topic(name)

    def _make(self, spec: QueueSpec, topic: Topic) -> None:
        """The journal first: a queue that can be found is whole."""
        share = Share(Book(spec.ordered, spec.tries), topic.id, self._beginning(spec, topic))
        with self.log.storage.lock(f"{DIRECTORY}/lock"):
            if spec.name in self.names():
                raise AlreadyThere(f"there is a queue {spec.name} already")
            self.log.storage.remove(directory_of(spec.name))  # what a crash left of one that was being made, or deleted
            Journal(self.log.storage, directory_of(spec.name)).begin(share.sum())
            self.log.storage.publish(settings_of(spec.name), encode_spec(spec, secrets.token_hex(8)))
        self._known = None

    def _beginning(self, spec: QueueSpec, topic: Topic) -> dict[int, int]:
        """By partition, the first record: the earliest that no earlier queue of this name had seen, or the next that comes."""
        if spec.start == "latest":
            return {partition: end.next for partition, end in topic.ends().items()}
        try:
            ended = orjson.loads(bytes(self.log.storage.read(f"{DIRECTORY}/{spec.name}{_ENDED}")))
        except NotFound:
            ended = {"topic": ""}
        seen = dict(ended["next"]) if ended["topic"] == topic.id else {}
        return {partition: max(end.first, seen.get(partition, 0)) for partition, end in topic.ends().items()}


def directory_of(name: str) -> str:
    return f"{DIRECTORY}/{name}"


def settings_of(name: str) -> str:
    return f"{DIRECTORY}/{name}{_SETTINGS}"


def _first_undone(share: Share, _: Now) -> tuple[dict[int, int], list[Event]]:
    """By partition: everything before it is done."""
    first = dict(share.next)
    for place in share.book.items:
        partition, offset = where(place)
        first[partition] = min(first[partition], offset)
    return first, []


def _refused(book: Book, count: int) -> list[Event]:
    event: Event = ["count", "refused", count]
    desk.told(book, event)
    return [event]

"""Queues on the log: any topic, read as a queue, while others read it as a log. Format: docs/adr/0009-queues-on-the-log.md."""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from penstock.errors import AlreadyThere, Mismatch, NotFound, OffsetGone, PenstockError
from penstock.log.file import FileLog
from penstock.log.groups.leases import LeaseClock, MachineClock
from penstock.log.groups.port import Groups, Source
from penstock.log.port import Sender, Topic, TopicSpec
from penstock.queue import desk
from penstock.queue.book import Book, Now
from penstock.queue.checks import Ids, check_consumer, check_message, check_spec
from penstock.queue.dead import as_dead_letter, no_queue
from penstock.queue.desk import Event
from penstock.queue.journal import DELETED, Journal
from penstock.queue.ledger import Ledger
from penstock.queue.port import Consumer, Delivery, Message, QueueSpec, QueueState, Settlement
from penstock.queue.records import Shelf, prepared
from penstock.queue.refusals import full, too_large, unroutable
from penstock.queue.routing import takes
from penstock.queue.settings import decode_spec, encode_spec
from penstock.queue.share import Seen, Share, where
from penstock.queue.telling import state_of

AHEAD = 1_000  # messages that are looked at before they are asked for: among so many, the highest priority is found
_ROOM = 0.02  # seconds between two looks for room
_GLANCE = 0.002  # seconds between two looks at what other processes sent
_LOOK = 0.02  # the same while enough is ready: until a message of a higher priority is seen
_TOLD = 1.0  # seconds between two notes of how far a queue has come
DIRECTORY, _SETTINGS = "queues", ".json"
PREFIX = "queue."  # of the groups that such notes are kept under


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
        self._shelf = Shelf(self._topic)
        self._ledger = Ledger(queues.log.storage, directory_of(spec.name), queues.now, self._bury)
        self._told = self._looked = 0.0

    @property
    def spec(self) -> QueueSpec:
        return self._spec

    def send(self, messages: Sequence[Message], wait: float = 0.0) -> Sequence[str | None]:
        for message in messages:
            check_message(message)
        messages = self._queues.ids.named(messages)
        self._queues.check_routes(self._spec.origin, messages)
        if not messages:
            return []
        if self._spec.limit.policy == "buffer" or self._spec.source not in (None, self._spec.name):
            self._append(messages)
            return [message.id for message in messages]
        return self._send_limited(messages, wait)

    def receive(self, consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
        check_consumer(consumer, most)

        def act(share: Share, now: Now) -> tuple[list[_Lent], list[Event]]:
            events = self._look_ahead(share, max(most, AHEAD)) if self._worth_a_look(share, most) else []
            items, taken = desk.lend(share.book, self._spec, consumer, most, now)
            lent = [_Lent(item.place, desk.receipt(item), item.count, item.sent) for item in items]
            return lent, [*events, *taken, *(desk.finish(share.book, items, "acked") if auto else [])]

        lent = self._ledger.run(act, durable=auto)
        deliveries = self._deliveries(lent)
        self._tell()
        return deliveries

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
        lost = self._ledger.run(lambda share, now: desk.settle(share.book, self._spec, settlements, now)) if settlements else []
        self._tell()
        return lost

    def peek(self, most: int = 10) -> Sequence[Delivery]:
        def act(share: Share, _: Now) -> tuple[list[_Lent], list[Event]]:
            events = self._look_ahead(share, max(most, AHEAD))
            return [_Lent(item.place, "", item.count, item.sent) for item in islice(share.book.in_line(), most)], events

        return self._deliveries(self._ledger.run(act, durable=False))

    def state(self) -> QueueState:
        def act(share: Share, now: Now) -> tuple[QueueState, list[Event]]:
            events = self._look_ahead(share, AHEAD)
            unread = sum(end.next - share.next.get(p, 0) for p, end in self._topic.ends().items())
            found = state_of(share.book, self._spec, now, self._notes(unread))
            return replace(found, ready=found.ready + unread), events

        return self._ledger.run(act, durable=False)

    def purge(self) -> int:
        """Removes what nobody holds; how many messages there were."""

        def act(share: Share, _: Now) -> tuple[int, list[Event]]:
            there = list(share.book.in_line())
            events = desk.finish(share.book, there, "purged")
            count = len(there)
            for partition, end in self._topic.ends().items():
                start = max(share.next.get(partition, 0), end.first)
                passed = self._count(partition, start, end.next)
                count += passed
                events.append(share.skip(partition, end.next, passed))
            return count, events

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

    def _send_limited(self, messages: Sequence[Message], wait: float) -> Sequence[str | None]:
        limit, size = self._spec.limit, sum(len(m.body) for m in messages)
        never = (limit.messages is not None and len(messages) > limit.messages) or (limit.bytes is not None and size > limit.bytes)
        if limit.policy == "push-back" and never:
            raise too_large(self._spec)
        deadline = time.monotonic() + wait
        while True:
            last = time.monotonic() >= deadline
            kept = self._ledger.run_alone(partial(self._fitted, messages=messages, last=last), durable=False)
            if kept is not None:
                return [m.id if i < kept else None for i, m in enumerate(messages)]
            if last:
                raise full(self._spec, wait)
            time.sleep(_ROOM)

    def _fitted(self, share: Share, _: Now, messages: Sequence[Message], last: bool) -> tuple[int | None, list[Event]]:
        """How many of the messages were sent; None if they have to wait."""
        limit, events = self._spec.limit, self._look_ahead(share, None)
        if limit.policy == "drop-oldest":
            self._append(messages)
            return len(messages), [*events, *self._look_ahead(share, None)]
        kept = _that_fit(messages, limit.messages, limit.bytes, share.book)
        if limit.policy == "push-back" and kept < len(messages):
            return None, [*events, *(_counted(share, "refused", len(messages)) if last else [])]
        if kept:
            self._append(messages[:kept])
        return kept, [*events, *_counted(share, "dropped", len(messages) - kept)]

    def _worth_a_look(self, share: Share, most: int) -> bool:
        """Not where that was done a moment ago, and nothing was sent from here since."""
        now, since = time.monotonic(), self._queues.sent.get(self._spec.origin, 0.0)
        if since < self._looked and now - self._looked < (_LOOK if share.book.ready >= most else _GLANCE):
            return False
        self._looked = now
        return True

    def _look_ahead(self, share: Share, most: int | None) -> list[Event]:
        """Looks at the next records until so many messages are ready (None, and where there is a limit: at all of them)."""
        if share.topic_id != self._topic.id:
            raise Mismatch(
                f"queue {self._spec.name} read another topic {self._spec.origin}, which was deleted",
                hint=f"delete the queue and create it again: penstock queue delete {self._spec.name}",
            )
        events: list[Event] = []
        if self._spec.limit.policy != "buffer":
            most = None
        for partition in range(self._topic.spec.partitions):
            while most is None or share.book.ready < most:
                start, wanted = share.next.get(partition, 0), AHEAD if most is None else most - share.book.ready
                seen = self._seen(partition, start, wanted)
                if seen.next == start:
                    break
                events.append(share.admit(seen))
                if len(seen.items) < wanted and not self._spec.bindings:
                    break  # it came to the end
        if self._spec.limit.policy == "drop-oldest":
            messages = len(share.book.items) - self._spec.limit.messages if self._spec.limit.messages is not None else 0
            size = share.book.bytes - self._spec.limit.bytes if self._spec.limit.bytes is not None else 0
            events += desk.finish(share.book, desk.oldest_free(share.book, messages, size), "dropped")
        return events

    def _seen(self, partition: int, start: int, most: int) -> Seen:
        try:
            return self._shelf.look(partition, start, most, self._spec.bindings)
        except OffsetGone as gone:
            name, first = self._spec.name, self._topic.ends()[partition].first
            raise OffsetGone(
                f"{self._spec.origin}/{partition}: records {start} to {first - 1} were removed before queue {name} had lent them",
                hint=f"penstock queue purge {name} goes on with what comes; penstock topic alter keeps records longer",
            ) from gone

    def _count(self, partition: int, start: int, stop: int) -> int:
        """How many messages of this queue stand there."""
        count = 0
        while start < stop:
            seen = self._shelf.look(partition, start, AHEAD, self._spec.bindings)
            if seen.next == start:
                break
            count, start = count + len(seen.items), seen.next
        return count

    # What goes out

    def _deliveries(self, lent: Sequence[_Lent]) -> Sequence[Delivery]:
        found = self._shelf.messages([one.place for one in lent])
        return [Delivery(found[one.place], one.receipt, one.attempt, one.sent, self._origin(one.place)) for one in lent]

    def _origin(self, place: int) -> str:
        partition, offset = where(place)
        return f"{self._spec.origin}/{partition}/{offset}"

    def _bury(self, share: Share, place: int, number: int) -> None:
        message, item, now = self._shelf.messages([place])[place], share.book.items[place], self._queues.now().wall
        letter = as_dead_letter(message, self._spec.name, self._origin(place), item.count, share.book.leaving[place], now)
        topic = self._queues.dead(self._spec)
        rows = prepared(topic, [letter], now)
        topic.append(0, rows.rows, sender=Sender(f"{PREFIX}{self._spec.name}.{self._id}", 0, number, gaps=True))

    def _notes(self, unread: int) -> list[str]:
        notes = [f"dead letters cannot be put away: {self._ledger.trouble.what}"] if self._ledger.trouble else []
        if unread and self._spec.bindings:
            notes.append(f"{unread:,} records of {self._spec.origin} were not looked at yet; not all of them may be for this queue")
        limit = self._spec.limit
        if limit.policy == "buffer" and limit.messages is not None and unread > limit.messages:
            notes.append(f"more than the {limit.messages:,} messages that are worth a look")
        return notes

    def _tell(self) -> None:
        """Notes how far the queue has come, now and then: retention waits for it, and groups show it."""
        groups, now = self._queues.groups, time.monotonic()
        if groups is None or now - self._told < _TOLD:
            return
        self._told = now
        source = Source(self._spec.origin, self._topic.id, self._topic.spec.partitions)
        with suppress(PenstockError):  # it is told again
            groups.put(f"{PREFIX}{self._spec.name}", source, self._ledger.run(_first_undone, durable=False))


class LogQueues:
    """The queues of an embedded log. Any number of processes may use them at once."""

    def __init__(self, log: FileLog, groups: Groups | None = None, leases: LeaseClock | None = None) -> None:
        """groups: where it is noted how far each queue has come."""
        self.log, self.groups = log, groups
        self._leases = leases or MachineClock()
        self.ids = Ids()
        self._open: dict[str, LogQueue] = {}
        self.sent: dict[str, float] = {}  # by source: when this process last sent to it
        self._sources: tuple[float, dict[str, list[QueueSpec]]] = (0.0, {})

    def create(self, spec: QueueSpec) -> LogQueue:
        check_spec(spec)
        if spec.name in self.names():
            raise AlreadyThere(f"there is a queue {spec.name} already")
        topic = self._topic(spec.origin)
        self._make(spec, topic)
        with suppress(AlreadyThere):
            self._make(QueueSpec(spec.dead_letters), self._topic(spec.dead_letters))
        return self.queue(spec.name)

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
        queue = self.queue(name)
        self.log.storage.remove(settings_of(name))
        queue.delete()
        self.log.storage.remove(directory_of(name))
        if self.groups:
            with suppress(PenstockError):
                self.groups.forget(f"{PREFIX}{name}")

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

    def check_routes(self, source: str, messages: Sequence[Message]) -> None:
        """Unroutable if there is a message that no queue of the source takes."""
        if time.monotonic() - self._sources[0] > _TOLD:
            self._sources = (time.monotonic(), self._by_source())
        specs = self._sources[1].get(source, [])
        if specs and all(spec.bindings for spec in specs):
            for message in messages:
                if not any(takes(spec.bindings, message.route, message.headers) for spec in specs):
                    raise unroutable(message, source)

    def _by_source(self) -> dict[str, list[QueueSpec]]:
        found: dict[str, list[QueueSpec]] = {}
        for name in self.names():
            with suppress(NotFound):
                spec = self.queue(name).spec
                found.setdefault(spec.origin, []).append(spec)
        return found

    def _topic(self, name: str) -> Topic:
        try:
            return self.log.topic(name)
        except NotFound:
            with suppress(AlreadyThere):
                return self.log.create(TopicSpec(name))
            return self.log.topic(name)

    def _make(self, spec: QueueSpec, topic: Topic) -> None:
        """The journal first: a queue that can be found is whole."""
        id, at = secrets.token_hex(8), {p: end.next if spec.start == "latest" else end.first for p, end in topic.ends().items()}
        share = Share(Book(spec.ordered, spec.tries), topic.id, at)
        with self.log.storage.lock(f"{DIRECTORY}/lock"):
            if spec.name in self.names():
                raise AlreadyThere(f"there is a queue {spec.name} already")
            self.log.storage.remove(directory_of(spec.name))  # what a crash left of one that was being made, or deleted
            Journal(self.log.storage, directory_of(spec.name)).begin(share.sum())
            self.log.storage.publish(settings_of(spec.name), encode_spec(spec, id))
        self._sources = (0.0, {})


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


def _that_fit(messages: Sequence[Message], most: int | None, size: int | None, book: Book) -> int:
    """How many of the messages, from the first on, there is room for."""
    kept, room = 0, (size - book.bytes) if size is not None else None
    for message in messages[: max(0, most - len(book.items)) if most is not None else None]:
        if room is not None:
            room -= len(message.body)
            if room < 0:
                break
        kept += 1
    return kept


def _counted(share: Share, what: str, count: int) -> list[Event]:
    share.book.counts[what] += count
    return [["count", what, count]] if count else []

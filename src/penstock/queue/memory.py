"""Queues in the memory of this process: the fastest, and gone with it."""

import bisect
import itertools
import threading
import time
from collections.abc import Sequence

from penstock.core.time import Clock, SystemClock, micros
from penstock.errors import AlreadyThere
from penstock.log.groups.leases import LeaseClock, MachineClock
from penstock.queue import desk
from penstock.queue.book import AT_ONCE, FOREVER, Book, Item, Now
from penstock.queue.checks import Ids, check_consumer, check_message, check_spec
from penstock.queue.dead import as_dead_letter, no_queue
from penstock.queue.port import Consumer, Delivery, Limit, Message, QueueSpec, QueueState, Settlement
from penstock.queue.refusals import full, too_large, unroutable
from penstock.queue.routing import FOR, takes
from penstock.queue.telling import state_of

NOTE = "in the memory of one process: gone when it ends"
MOST = (1_000_000, 256 << 20)  # messages and bytes of a queue that has no limit of its own: memory is no buffer without an end


class MemoryQueue:
    """One queue of a MemoryQueues."""

    def __init__(self, queues: "MemoryQueues", spec: QueueSpec) -> None:
        self._queues, self._spec = queues, spec
        self.limit = spec.limit if spec.limit.policy != "buffer" else Limit("push-back", *MOST)
        self.book = Book(spec.ordered, spec.tries)
        self.messages: dict[int, Message] = {}
        self.place = 0

    @property
    def spec(self) -> QueueSpec:
        return self._spec

    def send(self, messages: Sequence[Message], wait: float = 0.0) -> Sequence[str | None]:
        return self._queues.publish(self, messages, wait)

    def receive(self, consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
        check_consumer(consumer, most)
        with self._queues.guard:
            now = self._now()
            items, _ = desk.lend(self.book, self._spec, consumer, most, now)
            deliveries = [self._delivery(item) for item in items]
            if auto:
                self.forget(items, "acked")
            return deliveries

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
        with self._queues.guard:
            lost, events = desk.settle(self.book, self._spec, settlements, self._now())
            for event in events:
                if event[0] == "done":
                    for place in event[2]:
                        del self.messages[place]
            self._bury()
            if len(lost) < len(settlements):
                self._queues.guard.notify_all()
            return lost

    def peek(self, most: int = 10) -> Sequence[Delivery]:
        with self._queues.guard:
            self._now()
            return [self._delivery(item, lent=False) for item, _ in zip(self.book.in_line(), range(most), strict=False)]

    def state(self) -> QueueState:
        with self._queues.guard:
            return state_of(self.book, self._spec, self._now(), (NOTE,))

    # called under the guard

    def room(self) -> tuple[int, int]:
        """How many messages and bytes there is room for."""
        messages = len(self.book.items) if self.limit.messages is not None else 0
        size = self.book.bytes if self.limit.bytes is not None else 0
        return (self.limit.messages or 1 << 62) - messages, (self.limit.bytes or 1 << 62) - size

    def put(self, messages: Sequence[Message], now: Now) -> None:
        items = []
        for message in messages:
            self.place += 1
            self.messages[self.place] = message
            due = now.wall + micros(message.delay) if message.delay else AT_ONCE
            expires = now.wall + micros(message.ttl) if message.ttl is not None else FOREVER
            items.append(Item(self.place, len(message.body), now.wall, message.priority, due, expires, message.key))
        self.book.admit(items)
        self.book.counts["sent"] += len(items)

    def make_room(self) -> None:
        messages, size = self.room()
        self.forget(desk.oldest_free(self.book, -messages, -size), "dropped")

    def purge(self) -> int:
        there = list(self.book.in_line())
        self.forget(there, "purged")
        return len(there)

    def _now(self) -> Now:
        now = self._queues.now()
        desk.waken(self.book, now)
        self._bury()
        return now

    def _bury(self) -> None:
        for place, reason in list(self.book.leaving.items()):
            item = self.book.items[place]
            letter = as_dead_letter(
                self.messages[place], self._spec.name, self._origin(item), item.count, reason, self._queues.now().wall
            )
            self._queues.dead(self._spec).put([letter], self._queues.now())
            self.forget([item], "dead")

    def forget(self, items: Sequence[Item], how: str) -> None:
        for item in items:
            self.book.finish(item, how)
            del self.messages[item.place]

    def _delivery(self, item: Item, lent: bool = True) -> Delivery:
        receipt = f"{item.place}-{item.token}" if lent else ""
        return Delivery(self.messages[item.place], receipt, item.count, item.sent, self._origin(item))

    def _origin(self, item: Item) -> str:
        return f"{self._spec.name}/{item.place}"


class MemoryQueues:
    """Queues of this process; threads share them."""

    def __init__(self, clock: Clock | None = None, leases: LeaseClock | None = None) -> None:
        self._clock, self._leases = clock or SystemClock(), leases or MachineClock()
        self._queues: dict[str, MemoryQueue] = {}
        self._ids = Ids()
        self.guard = threading.Condition()

    def create(self, spec: QueueSpec) -> MemoryQueue:
        check_spec(spec)
        with self.guard:
            if spec.name in self._queues:
                raise AlreadyThere(f"there is a queue {spec.name} already")
            made = self._queues[spec.name] = MemoryQueue(self, spec)
            self.dead(spec)
            return made

    def queue(self, name: str) -> MemoryQueue:
        with self.guard:
            if name not in self._queues:
                raise no_queue(name, self._queues)
            return self._queues[name]

    def names(self) -> list[str]:
        with self.guard:
            return sorted(self._queues)

    def delete(self, name: str) -> None:
        with self.guard:
            if name not in self._queues:
                raise no_queue(name, self._queues)
            del self._queues[name]

    def purge(self, name: str) -> int:
        queue = self.queue(name)
        with self.guard:
            return queue.purge()

    def publish(self, queue: MemoryQueue, messages: Sequence[Message], wait: float) -> Sequence[str | None]:
        for message in messages:
            check_message(message)
        messages = self._ids.named(messages)
        with self.guard:
            parts = self._routed(queue.spec.origin, messages)
            kept = self._fitting(queue, parts.get(queue.spec.name, []), wait)
            now = self.now()
            for name, part in parts.items():
                self._queues[name].put(kept if name == queue.spec.name else part, now)
                if self._queues[name].limit.policy == "drop-oldest":
                    self._queues[name].make_room()
            self.guard.notify_all()
        dropped = {m.id for m in parts.get(queue.spec.name, [])} - {m.id for m in kept}
        return [None if m.id in dropped else m.id for m in messages] if dropped else [m.id for m in messages]

    def _routed(self, source: str, messages: Sequence[Message]) -> dict[str, Sequence[Message]]:
        """What each queue of the source gets; Unroutable if one of the messages goes nowhere."""
        bindings = {q.spec.name: q.spec.bindings for q in self._queues.values() if q.spec.origin == source}
        alone = any(FOR in m.headers for m in messages)
        if alone or all(bindings.values()):
            for message in messages:
                if not any(takes(b, message.route, message.headers, name) for name, b in bindings.items()):
                    raise unroutable(message, source)
        return {
            name: [m for m in messages if takes(b, m.route, m.headers, name)] if b or alone else messages
            for name, b in bindings.items()
        }

    def _fitting(self, queue: MemoryQueue, messages: Sequence[Message], wait: float) -> Sequence[Message]:
        """Those that there is room for; Full if there is none in time."""
        size, deadline = sum(len(m.body) for m in messages), time.monotonic() + wait
        if queue.limit.policy == "drop-newest":
            return self._first_that_fit(queue, messages)
        if queue.limit.policy == "push-back" and not _fits((queue.limit.messages, queue.limit.bytes), len(messages), size):
            raise too_large(queue.spec)
        while queue.limit.policy == "push-back" and not _fits(queue.room(), len(messages), size):
            left = deadline - time.monotonic()
            if left <= 0:
                queue.book.counts["refused"] += len(messages)
                raise full(queue.spec, wait)
            self.guard.wait(left)
        return messages

    def _first_that_fit(self, queue: MemoryQueue, messages: Sequence[Message]) -> Sequence[Message]:
        most, size = queue.room()
        sizes = list(itertools.accumulate(len(m.body) for m in messages))
        kept = messages[: max(0, min(most, bisect.bisect_right(sizes, size)))]
        queue.book.counts["dropped"] += len(messages) - len(kept)
        return kept

    def now(self) -> Now:
        boot, at = self._leases.beat()
        return Now(boot, at, self._clock.now())

    def dead(self, spec: QueueSpec) -> MemoryQueue:
        if spec.dead_letters not in self._queues:
            self._queues[spec.dead_letters] = MemoryQueue(self, QueueSpec(spec.dead_letters, limit=Limit("drop-oldest", *MOST)))
        return self._queues[spec.dead_letters]


def _fits(room: tuple[int | None, int | None], count: int, size: int) -> bool:
    return all(most is None or needed <= most for most, needed in zip(room, (count, size), strict=True))

"""Queues in the memory of this process: the fastest, and gone when it ends."""

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import itemgetter
from types import MappingProxyType

from penstock.core.time import Clock, micros
from penstock.errors import AlreadyThere
from penstock.log.groups.leases import LeaseClock, MachineClock
from penstock.queue.checks import Ids, check_consumer, check_messages, check_spec
from penstock.queue.dead_letters import as_dead_letter, no_queue
from penstock.queue.errors import full, too_large, unroutable
from penstock.queue.port import Consumer, Delivery, Limit, Message, QueueSpec, QueueState, Settlement
from penstock.queue.state import transitions
from penstock.queue.state.clock import Now, SteadyClock
from penstock.queue.state.item import AT_ONCE, FOREVER, Item
from penstock.queue.state.limits import fits, too_many, too_old
from penstock.queue.state.machine import StateMachine
from penstock.queue.state.routing import takes
from penstock.queue.state.stats import state_of

NOTE = "in the memory of one process: gone when it ends"
MOST = (1_000_000, 256 << 20)  # messages and bytes of a queue that has no limit of its own: memory is finite
_HEADERS = itemgetter(Message._fields.index("headers"))
_POLL = 0.05  # seconds between two looks for room: messages that expire make some, too, and wake nobody


class MemoryQueue:
    """One queue of a MemoryQueues."""

    def __init__(self, queues: "MemoryQueues", spec: QueueSpec) -> None:
        self._queues, self._spec = queues, spec
        self.limited = spec if spec.limit.policy != "buffer" else replace(spec, limit=Limit("push-back", *MOST))
        self.machine = StateMachine(spec.ordered, spec.tries)
        self.position = 0
        self.deleted = False

    @property
    def spec(self) -> QueueSpec:
        return self._spec

    def send(self, messages: Sequence[Message], wait: float = 0.0) -> Sequence[str | None]:
        return self._queues.publish(self, messages, wait)

    def receive(self, consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
        check_consumer(consumer, most)
        with self._queues.guard:
            items = transitions.lease(self.machine, self._spec, consumer, most, self.advance())
            deliveries = self._deliveries(items)
            if auto:
                self._forget(items, "acked")
            return deliveries

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
        with self._queues.guard:
            now = self.advance()
            lost, events = transitions.settle(self.machine, self._spec, settlements, now)
            self._store_dead_letters(now)
            if events:
                self._queues.guard.notify_all()
            return lost

    def peek(self, most: int = 10) -> Sequence[Delivery]:
        with self._queues.guard:
            self.advance()
            return self._deliveries(list(self.machine.waiting())[: max(most, 0)], leased=False)

    def state(self) -> QueueState:
        with self._queues.guard:
            return state_of(self.machine, self._spec, self.advance(), (NOTE,))

    # called under the guard

    def advance(self) -> Now:
        """Does what time has brought; the moment."""
        if self.deleted:
            raise no_queue(self._spec.name, self._queues.names())
        now = self._queues.now()
        self.machine.advance(now)
        self._store_dead_letters(now)
        return now

    def takes(self, message: Message) -> bool:
        return takes(self._spec.bindings, message.route, message.headers, self._spec.name)

    def put(self, messages: Sequence[Message], now: Now) -> None:
        wall, items = now.wall, list[Item]()
        for position, message in enumerate(messages, self.position + 1):
            body, _, key, _, priority, delay, ttl, _ = message
            due = wall + micros(delay) if delay else AT_ONCE
            item = Item(position, len(body), wall, priority, due, FOREVER if ttl is None else wall + micros(ttl), key)
            item.payload = message
            items.append(item)
        self.position += len(items)
        self.machine.admit(items)
        if self._spec.limit.policy == "drop-oldest" and not fits(self._spec.limit, (), self.machine):
            self.advance()
            self._forget(too_old(self._spec.limit, self.machine), "dropped")

    def has_room(self, messages: Sequence[Message]) -> bool:
        if self.limited.limit.policy != "push-back" or fits(self.limited.limit, messages, self.machine):
            return True
        if not fits(self.limited.limit, messages):
            raise too_large(self.limited)
        self.advance()
        return fits(self.limited.limit, messages, self.machine)

    def refuse(self, messages: Sequence[Message], waited: float) -> None:
        self.machine.counts["refused"] += len(messages)
        raise full(self.limited, waited)

    def drop_newest(self, messages: Sequence[Message]) -> Collection[int]:
        """Of messages that are sent, the positions of those that this queue drops: the newest."""
        self.advance()
        dropped = too_many(self._spec, messages, self.machine)
        transitions.count_dropped(self.machine, len(dropped))
        return dropped

    def purge(self) -> int:
        self.advance()
        waiting = list(self.machine.waiting())
        self._forget(waiting, "purged")
        return len(waiting)

    def _store_dead_letters(self, now: Now) -> None:
        while self.machine.dying:
            position, reason = next(iter(self.machine.dying.items()))
            item = self.machine.items[position]
            letter = as_dead_letter(item.payload, self._spec.name, self._origin(item), item.attempts, reason, now.wall)
            self._forget([item], "dead")
            self._queues.dead_letters(self._spec).put([letter], now)

    def _forget(self, items: Sequence[Item], how: str) -> None:
        transitions.finish(self.machine, items, how)
        if items:
            self._queues.guard.notify_all()

    def _deliveries(self, items: Sequence[Item], leased: bool = True) -> list[Delivery]:
        make, origin = tuple.__new__, f"{self._spec.name}/"  # Delivery(…) is half as fast
        return [
            make(Delivery, (i.payload, receipt, i.attempts, i.sent, f"{origin}{i.position}", not i.begun))
            for i, receipt in ((i, f"{i.position}-{i.token}" if leased else "") for i in items)
        ]

    def _origin(self, item: Item) -> str:
        return f"{self._spec.name}/{item.position}"


class MemoryQueues:
    """Queues of this process; threads share them."""

    def __init__(self, clock: Clock | None = None, leases: LeaseClock | None = None) -> None:
        self._clock, self._leases = clock or SteadyClock(), leases or MachineClock()
        self._queues: dict[str, MemoryQueue] = {}
        self._sources: dict[str, list[MemoryQueue]] = {}
        self._ids = Ids()
        self.guard = threading.Condition()

    def create(self, spec: QueueSpec) -> MemoryQueue:
        check_spec(spec)
        with self.guard:
            if spec.name in self._queues:
                raise AlreadyThere(f"there is a queue {spec.name} already")
            made = self._add(spec)
            self.dead_letters(spec)
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
            queue = self.queue(name)
            queue.deleted = True
            del self._queues[name]
            self._sources[queue.spec.origin].remove(queue)

    def purge(self, name: str) -> int:
        with self.guard:
            return self.queue(name).purge()

    def publish(self, queue: MemoryQueue, messages: Sequence[Message], wait: float) -> Sequence[str | None]:
        """Sends messages to all queues of the source that take them: all of them to all of those, or none."""
        check_messages(messages)
        messages, deadline = _own(self._ids.named(messages)), time.monotonic() + wait
        with self.guard:
            parts = self._parts(queue, messages)
            while short := next((q for q, part in parts if not q.has_room(part)), None):
                left = deadline - time.monotonic()
                if not left > 0:
                    short.refuse(messages, wait)
                self.guard.wait(min(left, _POLL))
                parts = self._parts(queue, messages)
            dropped = self._dropped(queue.spec.origin, messages)
            if dropped:
                parts = self._parts(queue, [m for i, m in enumerate(messages) if i not in dropped])
            now = self.now()
            for taker, part in parts:
                taker.put(part, now)
        return [None if i in dropped else m.id for i, m in enumerate(messages)] if dropped else [m[1] for m in messages]

    def _parts(self, queue: MemoryQueue, messages: Sequence[Message]) -> list[tuple[MemoryQueue, Sequence[Message]]]:
        """What each queue of the source gets; Unroutable if there is a message that none takes."""
        queues = self._sources.get(queue.spec.origin, [])
        if queue not in queues:
            raise no_queue(queue.spec.name, self._queues)
        if not any(map(_HEADERS, messages)) and not any(q.spec.bindings for q in queues):
            return [(q, messages) for q in queues]
        for message in messages:
            if not any(q.takes(message) for q in queues):
                raise unroutable(message, queue.spec.origin)
        return [(q, [m for m in messages if q.takes(m)]) for q in queues]

    def _dropped(self, source: str, messages: Sequence[Message]) -> Collection[int]:
        """Positions of messages that the source does not keep, since its own queue drops them."""
        own = self._queues.get(source)
        return own.drop_newest(messages) if own and own.spec.limit.policy == "drop-newest" and own.spec.origin == source else ()

    def now(self) -> Now:
        boot, at = self._leases.beat()
        return Now(boot, at, self._clock.now())

    def dead_letters(self, spec: QueueSpec) -> MemoryQueue:
        found = self._queues.get(spec.dead_letters)
        return found or self._add(QueueSpec(spec.dead_letters, limit=Limit("drop-oldest", *MOST)))

    def _add(self, spec: QueueSpec) -> MemoryQueue:
        made = self._queues[spec.name] = MemoryQueue(self, spec)
        self._sources.setdefault(spec.origin, []).append(made)
        return made


def _own(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, with headers that the sender cannot change later."""
    if not any(map(_HEADERS, messages)):
        return messages
    return [m._replace(headers=MappingProxyType(dict(m.headers))) if m.headers else m for m in messages]

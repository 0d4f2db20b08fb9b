"""One queue of a RabbitMQ."""

import re
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from penstock.errors import BadInput, Full
from penstock.queue.checks import check_consumer, check_messages, check_settlements
from penstock.queue.dead_letters import no_queue
from penstock.queue.port import Consumer, Delivery, Held, Message, QueueSpec, QueueState, Settlement
from penstock.queue.rabbitmq.amqp.channel import NOT_FOUND, Channel, Closed
from penstock.queue.rabbitmq.amqp.envelope import check_sendable
from penstock.queue.rabbitmq.broker import Broker
from penstock.queue.rabbitmq.layout import Layout
from penstock.queue.rabbitmq.receive.leases import Leases
from penstock.queue.rabbitmq.receive.receiver import Receiver
from penstock.queue.rabbitmq.receive.settler import Settler
from penstock.queue.rabbitmq.send.copier import Copier
from penstock.queue.rabbitmq.send.sender import Sender

T = TypeVar("T")
_RECEIPT = re.compile(r"[0-9a-f]+-[0-9]+", re.ASCII)
OTHERS = "lent, holders and counts are those of this process: RabbitMQ reports neither those of others nor delayed messages"
FOREIGN = "made by another program, which knows its limits and dead letters"
LIMITS = "a limit counts what nobody holds, and for those who send through this queue"
END = "what is given back goes to the end of the queue, so that it can be counted; what a dead consumer held is not counted"
LOOKS = "a look counts as a delivery, and does not show delayed messages"


class Parts:
    """What a queue has while the connections of a process last."""

    def __init__(self, broker: Broker, spec: QueueSpec, ours: bool, counts: Counter[str]) -> None:
        self.broker = broker
        self.copier = Copier(broker.connection, broker.publisher, broker.layout, spec, broker.clock.now, counts)
        self.leases = Leases(self.copier, spec)
        self.receiver = Receiver(broker.connection, self.copier, self.leases, spec)
        self.settler = Settler(self.leases, self.copier, spec)
        self.sender = Sender(broker, self.copier, spec, ours, self.ready)

    async def ready(self) -> int:
        async def ask(channel: Channel) -> int:
            return int((await channel.ask("queue_declare", self.copier.name, passive=True)).message_count)

        return await self.broker.ask(ask)

    async def holders(self) -> list[Held]:
        found: dict[str, list[float]] = {}
        for lease in self.leases.held.values():
            found.setdefault(lease.consumer, []).append(lease.until)
        now = self.broker.thread.loop.time()
        return [Held(name, len(until), min(until) - now) for name, until in sorted(found.items())]


class RabbitQueue:
    """One queue of a RabbitQueues. Leases are kept by the process that holds them, and end with its connection."""

    def __init__(self, connected: Callable[[], Broker], spec: QueueSpec, ours: bool) -> None:
        """connected: gives the connections of this process. ours: made here; else by another program."""
        self._connected, self._spec, self._ours = connected, spec, ours
        self._counts: Counter[str] = Counter()
        self._known: dict[Broker, Parts] = {}

    @property
    def spec(self) -> QueueSpec:
        return self._spec

    @property
    def _parts(self) -> Parts:
        broker, known = self._connected(), self._known
        if broker not in known:  # it was closed meanwhile, or this process was forked
            known.setdefault(broker, Parts(broker, self._spec, self._ours, self._counts))  # of two threads, the first
            for other in [other for other in known if other is not broker]:
                known.pop(other, None)
        return known[broker]

    def send(self, messages: Sequence[Message], wait: float = 0.0) -> Sequence[str | None]:
        check_messages(messages)
        parts = self._parts
        for message in messages:
            check_sendable(message, priorities=not self._ours or parts.broker.layout.priorities)
        if not messages:
            return []
        named = parts.broker.ids.named(messages)
        try:
            sent = self._run(parts, parts.sender.send(named, wait))
        except Full:
            self._counts["refused"] += len(messages)
            raise
        self._counts["dropped"] += sent.count(None)
        self._counts["sent"] += len(sent)
        return sent

    def receive(self, consumer: Consumer, most: int = 1, auto: bool = False) -> Sequence[Delivery]:
        check_consumer(consumer, most)
        parts = self._parts
        found = self._run(parts, parts.broker.connection.again(lambda: parts.receiver.receive(consumer, most, auto)))
        self._counts["lent again"] += sum(delivery.attempt > 1 for delivery in found)
        self._counts["acked"] += len(found) if auto else 0
        return found

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[str]:
        check_settlements(settlements)
        for settlement in settlements:
            if not _RECEIPT.fullmatch(settlement.receipt):
                raise BadInput(f"{settlement.receipt!a} is no receipt", hint="use the one of the delivery")
        parts = self._parts
        lost = self._run(parts, parts.settler.settle(settlements)) if settlements else []
        if lost:
            self._run(parts, parts.broker.connection.again(parts.ready))  # NotFound if it is the queue that was lost
        self._counts["acked"] += sum(s.fate == "ack" and s.receipt not in lost for s in settlements)
        return lost

    def peek(self, most: int = 10) -> Sequence[Delivery]:
        parts = self._parts
        return self._run(parts, parts.broker.connection.again(lambda: parts.receiver.peek(most)))

    def state(self) -> QueueState:
        parts = self._parts
        ready = self._run(parts, parts.broker.connection.again(parts.ready))
        holders = self._run(parts, parts.holders())
        return QueueState(
            self._spec,
            ready=ready,
            delayed=None,
            lent=sum(held.messages for held in holders),
            bytes=None,
            oldest=None,
            holders=holders,
            counts={name: count for name, count in self._counts.items() if count},
            notes=self._notes(parts.broker.layout),
        )

    def count(self, what: str, number: int) -> None:
        self._counts[what] += number

    def _run(self, parts: Parts, work: Coroutine[Any, Any, T]) -> T:
        try:
            return parts.broker.run(work)
        except Closed as error:
            if error.code != NOT_FOUND:
                raise
            raise no_queue(self._spec.name, ()) from error

    def _notes(self, layout: Layout) -> list[str]:
        notes = {
            OTHERS: True,
            FOREIGN: not self._ours,
            LIMITS: True,
            END: not layout.quorum,
            LOOKS: not layout.forgiving or not layout.quorum,
        }
        return [note for note, holds in notes.items() if holds]

"""Moves messages to another queue: sent there first, then acked here; a crash in between leaves a duplicate of the same id."""

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.errors import BadInput
from penstock.queue.client.lease_keeper import LeaseKeeper
from penstock.queue.dead_letters import without_death
from penstock.queue.message import StoredMessage
from penstock.queue.options import NOW, Body, as_bytes
from penstock.queue.port import Consumer, Delivery, Message, QueuePort, Settlement
from penstock.queue.state.routing import FOR

BATCH = 100
LOOKED = 10_000  # messages that a preview looks at, at most
SHOWN = 20

Edit = Callable[[StoredMessage], Body | Message | None]
Where = Callable[[StoredMessage], bool]


@dataclass(frozen=True)
class Change:
    """A message that is moved: as it stands, where to, and as it is sent there."""

    before: StoredMessage
    to: str
    after: Message


@dataclass(frozen=True)
class Plan:
    """What to move, where to, and how it is changed on the way."""

    to: str | None = None  # None: where each of them died
    edit: Edit | None = None  # the new body, or the whole message; None leaves the message where it is
    where: Where | None = None
    most: int | None = None
    revive: bool = True  # the header that says why they died is taken off

    def change(self, stored: StoredMessage) -> Change | None:
        """None: it stays."""
        if self.where is not None and not self.where(stored):
            return None
        edited = stored.message if self.edit is None else self.edit(stored)
        if edited is None:
            return None
        message = edited if isinstance(edited, Message) else stored.message._replace(body=as_bytes(edited))
        to = self.to or _where_it_died(stored)
        message = without_death(message) if self.revive else message
        headers = {**message.headers, FOR: to.encode()}  # the other queues of the same source had theirs
        return Change(stored, to, message._replace(id=message.id or stored.id, headers=headers, delay=NOW, ttl=None))


@dataclass
class Moved:
    """What was moved, or would be."""

    moved: int = 0
    left: int = 0  # looked at, and left where they are
    changes: list[Change] = field(default_factory=list)  # the first ones

    def add(self, changes: Sequence[Change], left: int = 0) -> None:
        self.moved += len(changes)
        self.left += left
        self.changes += changes[: max(0, SHOWN - len(self.changes))]


def preview(source: QueuePort, plan: Plan) -> Moved:
    """What would be moved of the first messages, however many there are."""
    seen, found = source.peek(LOOKED), Moved()
    changes = [change for delivery in seen if (change := plan.change(StoredMessage(delivery)))][: plan.most]
    found.add(changes, len(seen) - len(changes))
    return found


def carry_out(source: QueuePort, target: Callable[[str], QueuePort], plan: Plan, wait: float) -> Moved:
    """Moves what was there at the beginning; what comes meanwhile is left, even if it is the same again."""
    total, done, looked = source.state().ready, Moved(), 0
    consumer = Consumer(f"moving:{os.getpid()}:{secrets.token_hex(3)}", prefetch=max(1, total))
    with LeaseKeeper(source, None) as keeper:
        try:
            while looked < total and (plan.most is None or done.moved < plan.most) and keeper.error is None:
                deliveries = source.receive(consumer, _next(plan, done, total - looked))
                if not deliveries:
                    break
                keeper.hold(delivery.receipt for delivery in deliveries)
                looked += len(deliveries)
                _move(deliveries, target, plan, done, keeper, wait)
        finally:
            keeper.give_back()  # those that stay were leased, so that they were not received again and again
    return done


def _next(plan: Plan, done: Moved, there: int) -> int:
    room = BATCH if plan.most is None or plan.where is not None else plan.most - done.moved
    return min(BATCH, room, there)


def _move(
    deliveries: Sequence[Delivery], target: Callable[[str], QueuePort], plan: Plan, done: Moved, keeper: LeaseKeeper, wait: float
) -> None:
    room = None if plan.most is None else plan.most - done.moved
    changes = [change for delivery in deliveries if (change := plan.change(StoredMessage(delivery)))][:room]
    by_target: dict[str, list[Change]] = {}
    for change in changes:
        by_target.setdefault(change.to, []).append(change)
    done.left += len(deliveries) - len(changes)
    for to, group in by_target.items():
        ids = target(to).send([change.after for change in group], wait)
        sent = [change for change, id in zip(group, ids, strict=True) if id is not None]
        keeper.settle([Settlement(change.before.delivery.receipt, "ack") for change in sent])
        done.add(sent, len(group) - len(sent))


def _where_it_died(stored: StoredMessage) -> str:
    if stored.dead is None:
        raise BadInput(
            f"message {stored.id} is not a dead letter: it does not say which queue it belongs to",
            hint="name the queue it goes to: to=, or --to",
        )
    return stored.dead.queue

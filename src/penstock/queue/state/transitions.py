"""What callers do to the messages of a queue: its state machine is changed, and there are events to be written."""

from collections.abc import Collection, Sequence

from penstock.core.time import micros
from penstock.queue.checks import check_settlements, readable
from penstock.queue.port import Consumer, QueueSpec, Settlement
from penstock.queue.state.clock import Now
from penstock.queue.state.events import Begun, Counted, Event, Extended, Finished, Leased, Rejected, Released, Returned
from penstock.queue.state.item import AT_ONCE, LEASED, Item
from penstock.queue.state.machine import StateMachine


def lease(machine: StateMachine, spec: QueueSpec, consumer: Consumer, most: int, now: Now) -> list[Item]:
    """Leases what is ready: at most so many, and no more than the consumer's prefetch leaves."""
    most = min(most, consumer.prefetch - machine.held.get(consumer.name, 0))
    until = now.beat + micros(consumer.lease or spec.lease)
    return machine.take(consumer.name, most, until, consumer.confirms) if most > 0 else []


def leased(consumer: Consumer, items: Sequence[Item]) -> list[Event]:
    """The event of a `lease`, for those that keep a journal."""
    if not items:
        return []
    return [Leased(consumer.name, items[0].token, items[0].until, [item.position for item in items], consumer.confirms)]


def settle(
    machine: StateMachine, spec: QueueSpec, settlements: Sequence[Settlement], now: Now
) -> tuple[Sequence[str], list[Event]]:
    """The receipts whose lease has ended, and what was done for the others."""
    check_settlements(settlements)
    lost, events, acked = list[str](), list[Event](), dict[int, Item]()
    leased = machine.leased_under([settlement.receipt for settlement in settlements], now)  # before anything is done
    for settlement, item in zip(settlements, leased, strict=True):
        if item is None or item.status != LEASED or item.position in acked:
            lost.append(settlement.receipt)
        elif settlement.fate == "ack":
            acked[item.position] = item
        else:
            events += finish(machine, acked.values(), "acked")
            acked.clear()
            events.append(_settle_other(machine, spec, item, settlement, now))
    return lost, [*events, *finish(machine, acked.values(), "acked")]


def _settle_other(machine: StateMachine, spec: QueueSpec, item: Item, settlement: Settlement, now: Now) -> Event:
    if settlement.fate == "nack":
        delay = spec.retry if settlement.delay is None else settlement.delay
        due = now.wall + micros(delay) if delay else AT_ONCE
        return _give_back(machine, item, due, readable(settlement.reason) or "it was given back", settlement.tried)
    if settlement.fate == "reject":
        reason = readable(settlement.reason) or "it was rejected"
        machine.reject(item, reason)
        return Rejected(reason, [item.position])
    if settlement.fate == "begin":
        item.begun = True
        return Begun([item.position])
    until = now.beat + micros(spec.lease if settlement.delay is None else settlement.delay)
    machine.extend(item, until)
    return Extended(until, [item.position])


def _give_back(machine: StateMachine, item: Item, due: int, reason: str, tried: bool) -> Event:
    event: Event = Returned(due, reason, [item.position]) if tried else Released(due, [item.position])
    event.apply(machine)
    return event


def finish(machine: StateMachine, items: Collection[Item], outcome: str) -> list[Event]:
    if not items:
        return []
    machine.finish(items, outcome)
    return [Finished(outcome, [item.position for item in items])]


def count_dropped(machine: StateMachine, count: int) -> list[Event]:
    """Of messages that were sent, and dropped before they were in."""
    return [*counted(machine, "sent", count), *counted(machine, "dropped", count)] if count else []


def counted(machine: StateMachine, counter: str, count: int) -> list[Event]:
    event = Counted(counter, count)
    event.apply(machine)
    return [event]


def oldest_waiting(machine: StateMachine, messages: int, bytes: int) -> list[Item]:
    """The oldest that nobody holds: at least so many, and of so many bytes."""
    found: list[Item] = []
    if messages > 0 or bytes > 0:
        for item in machine.oldest():
            found.append(item)
            messages, bytes = messages - 1, bytes - item.size
            if messages <= 0 and bytes <= 0:
                break
    return found

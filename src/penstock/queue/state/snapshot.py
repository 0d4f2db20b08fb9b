"""A state machine as JSON holds it, and back."""

from typing import Any

from penstock.queue.state.item import Item
from penstock.queue.state.machine import StateMachine


def snapshot(machine: StateMachine) -> dict[str, Any]:
    """All that a state machine knows."""
    return {
        "ordered": machine.ordered,
        "tries": machine.tries,
        "boot": machine.boot,
        "token": machine.token,
        "number": machine.number,
        "counts": dict(machine.counts),
        "leaving": [[position, reason] for position, reason in machine.dying.items()],
        "items": [_row(item) for item in machine.items.values()],
    }


def restored(data: dict[str, Any]) -> StateMachine:
    """A state machine that goes on as that one would have."""
    machine = StateMachine(data["ordered"], data["tries"])
    machine.boot, machine.token, machine.number = data["boot"], data["token"], data["number"]
    machine.counts.update(data["counts"])
    machine.dying.update((position, reason) for position, reason in data["leaving"])
    machine.restore([_item(row) for row in data["items"]])
    return machine


def _row(item: Item) -> list[Any]:
    sent = [item.position, item.size, item.sent, item.priority, item.due, item.expires, item.key]
    state = [item.number, item.attempts, item.status]
    lease = [item.consumer, item.token, item.until] if item.attempts else []
    return [*sent, *state, *lease] if item.begun else [*sent, *state, *lease, False]


def _item(row: list[Any]) -> Item:
    item = Item(*row[:7])
    item.number, item.attempts, item.status = row[7:10]
    if item.attempts:
        item.consumer, item.token, item.until = row[10:13]
        item.begun = len(row) == 13
    return item

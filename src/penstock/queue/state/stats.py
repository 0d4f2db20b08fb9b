"""The state of a queue at a moment, as users see it."""

from collections import defaultdict
from collections.abc import Sequence

from penstock.queue.port import Held, QueueSpec, QueueState
from penstock.queue.state.clock import Now
from penstock.queue.state.item import BLOCKED, DELAYED, LEASED, READY, Item
from penstock.queue.state.machine import StateMachine


def state_of(machine: StateMachine, spec: QueueSpec, now: Now, notes: Sequence[str] = ()) -> QueueState:
    by_status, by_holder = defaultdict[int, list[Item]](list), defaultdict[str, list[Item]](list)
    for item in machine.items.values():
        by_status[item.status].append(item)
    for item in by_status[LEASED]:
        by_holder[item.consumer].append(item)
    return QueueState(
        spec,
        ready=len(by_status[READY]) + len(by_status[BLOCKED]),
        delayed=len(by_status[DELAYED]),
        lent=len(by_status[LEASED]),
        bytes=machine.bytes,
        oldest=min((item.sent for item in machine.items.values()), default=None),
        holders=[_held(name, items, now) for name, items in sorted(by_holder.items())],
        counts=dict(machine.counts),
        notes=notes,
    )


def _held(consumer: str, items: Sequence[Item], now: Now) -> Held:
    return Held(consumer, len(items), (min(item.until for item in items) - now.beat) / 1_000_000)

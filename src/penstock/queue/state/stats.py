"""A book, told to whoever looks."""

from collections import defaultdict
from collections.abc import Sequence

from penstock.queue.port import Held, QueueSpec, QueueState
from penstock.queue.state.machine import BLOCKED, LENT, READY, RESTING, Book, Item, Now


def state_of(book: Book, spec: QueueSpec, now: Now, notes: Sequence[str] = ()) -> QueueState:
    by_place, by_holder = defaultdict[int, list[Item]](list), defaultdict[str, list[Item]](list)
    for item in book.items.values():
        by_place[item.where].append(item)
    for item in by_place[LENT]:
        by_holder[item.consumer].append(item)
    return QueueState(
        spec,
        ready=len(by_place[READY]) + len(by_place[BLOCKED]),
        delayed=len(by_place[RESTING]),
        lent=len(by_place[LENT]),
        bytes=book.bytes,
        oldest=min((item.sent for item in book.items.values()), default=None),
        holders=[_held(name, items, now) for name, items in sorted(by_holder.items())],
        counts=dict(book.counts),
        notes=notes,
    )


def _held(consumer: str, items: Sequence[Item], now: Now) -> Held:
    return Held(consumer, len(items), (min(item.until for item in items) - now.beat) / 1_000_000)

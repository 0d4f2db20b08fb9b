"""A book, told to whoever looks."""

from collections.abc import Sequence

from penstock.queue.book import BLOCKED, LENT, READY, RESTING, Book, Item, Now
from penstock.queue.port import Held, QueueSpec, QueueState


def state_of(book: Book, spec: QueueSpec, now: Now, notes: Sequence[str] = ()) -> QueueState:
    by_place: dict[int, list[Item]] = {}
    for item in book.items.values():
        by_place.setdefault(item.where, []).append(item)
    lent = by_place.get(LENT, [])
    return QueueState(
        spec,
        ready=len(by_place.get(READY, [])) + len(by_place.get(BLOCKED, [])),
        delayed=len(by_place.get(RESTING, [])),
        lent=len(lent),
        bytes=book.bytes,
        oldest=min((item.sent for item in book.items.values()), default=None),
        holders=[_held(name, [i for i in lent if i.consumer == name], now) for name in sorted(book.held)],
        counts=dict(book.counts),
        notes=notes,
    )


def _held(consumer: str, items: Sequence[Item], now: Now) -> Held:
    return Held(consumer, len(items), (min(item.until for item in items) - now.beat) / 1_000_000)

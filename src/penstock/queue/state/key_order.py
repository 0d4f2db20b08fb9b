"""The messages of each key of an ordered queue, in the order sent: only the first of a key can be leased."""

from collections import deque

from penstock.queue.state.item import BLOCKED, Item


class KeyOrder:
    def __init__(self) -> None:
        self._keys: dict[str, deque[Item]] = {}

    def add(self, item: Item, key: str) -> bool:
        """Puts it behind the others of its key; whether it is the first."""
        items = self._keys.setdefault(key, deque())
        items.append(item)
        return len(items) == 1

    def remove(self, item: Item, key: str) -> Item | None:
        """Takes it out; the next of its key, if that one waited for it."""
        items = self._keys[key]
        first = items[0] is item
        items.remove(item)
        if not items:
            del self._keys[key]
        return items[0] if items and first and items[0].status == BLOCKED else None

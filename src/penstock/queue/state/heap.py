"""Items in the order of a time or a priority, and leases in the order of their end."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappush

from penstock.queue.state.item import LEASED, Item


class ItemHeap(list[tuple[int, int, Item]]):
    """A heap of key, number and item. An entry stays when its item changes: whoever pops it checks whether it still counts."""

    def push(self, key: int, item: Item) -> None:
        heappush(self, (key, item.number, item))

    def tidy(self, current: Callable[[int, Item], bool]) -> None:
        """Drops what does not count any more, and of each item all entries but the last."""
        self[:] = {number: (key, number, item) for key, number, item in self if current(key, item)}.values()
        heapify(self)


class LeaseHeap(list[tuple[int, int, Sequence[Item]]]):
    """A heap of end, token and the items that were leased together. An item may have been settled or extended since."""

    items = 0  # in all entries

    def push(self, until: int, token: int, items: Sequence[Item]) -> None:
        heappush(self, (until, token, items))
        self.items += len(items)

    def tidy(self) -> None:
        running = [(until, token, still_leased(items, token, until)) for until, token, items in self]
        self[:] = [lease for lease in running if lease[2]]
        heapify(self)
        self.items = sum(len(items) for _, _, items in self)


def still_leased(items: Iterable[Item], token: int, until: int) -> list[Item]:
    """Those that are leased under this token, and end then."""
    return [item for item in items if item.status == LEASED and item.token == token and item.until == until]

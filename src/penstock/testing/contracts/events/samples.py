"""A cart and its events, which the suites of event stores share."""

from dataclasses import dataclass

from penstock.events.aggregate import Aggregate


@dataclass(frozen=True)
class ItemAdded:
    item: str
    quantity: int = 1


@dataclass(frozen=True)
class ItemRemoved:
    item: str


@dataclass(frozen=True)
class CheckedOut:
    pass


EVENTS = (ItemAdded, ItemRemoved, CheckedOut)


class Cart(Aggregate):
    """What a cart holds. It refuses a second checkout."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.items: dict[str, int] = {}
        self.done = False

    def apply(self, event: object) -> None:
        match event:
            case ItemAdded(item, quantity):
                self.items[item] = self.items.get(item, 0) + quantity
            case ItemRemoved(item):
                self.items.pop(item, None)
            case CheckedOut():
                self.done = True

    def add(self, item: str, quantity: int = 1) -> None:
        self.record(ItemAdded(item, quantity))

    def check_out(self) -> None:
        if not self.done:
            self.record(CheckedOut())


class ShoppingCart:
    """The cart of a textbook: it inherits nothing, and folds the same events."""

    def __init__(self) -> None:
        self.items: dict[str, int] = {}

    def apply(self, event: object) -> None:
        if isinstance(event, ItemAdded):
            self.items[event.item] = self.items.get(event.item, 0) + event.quantity
        elif isinstance(event, ItemRemoved):
            self.items.pop(event.item, None)

"""A shopping cart that is what its events say."""

from dataclasses import dataclass

from penstock.events import Aggregate


@dataclass(frozen=True)
class ItemAdded:
    item: str
    quantity: int = 1


@dataclass(frozen=True)
class ItemRemoved:
    item: str


@dataclass(frozen=True)
class QuantityChanged:
    item: str
    quantity: int


@dataclass(frozen=True)
class CheckedOut:
    pass


EVENTS = [ItemAdded, ItemRemoved, QuantityChanged, CheckedOut]


class Cart(Aggregate):
    """Commands check what is asked for and record what happens; `apply` says what each event changes."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.items: dict[str, int] = {}
        self.checked_out = False

    def add(self, item: str, quantity: int = 1) -> None:
        self._refuse_late()
        self.record(ItemAdded(item, quantity))

    def remove(self, item: str) -> None:
        self._refuse_late()
        if item in self.items:
            self.record(ItemRemoved(item))

    def change(self, item: str, quantity: int) -> None:
        self._refuse_late()
        if item not in self.items:
            raise ValueError(f"there is no {item} in the cart")
        self.record(QuantityChanged(item, quantity))

    def check_out(self) -> None:
        if not self.checked_out:
            self.record(CheckedOut())

    def apply(self, event: object) -> None:
        match event:
            case ItemAdded(item, quantity):
                self.items[item] = self.items.get(item, 0) + quantity
            case ItemRemoved(item):
                del self.items[item]
            case QuantityChanged(item, quantity):
                self.items[item] = quantity
            case CheckedOut():
                self.checked_out = True

    def _refuse_late(self) -> None:
        if self.checked_out:
            raise ValueError(f"cart {self.id} was checked out")

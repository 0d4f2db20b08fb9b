"""Ann fills her cart: five events, a minute apart, and a checkout.

python shop.py            writes them, once
"""

from cart import EVENTS, CheckedOut, ItemAdded, ItemRemoved, QuantityChanged

from penstock.events import EventStore

HAPPENED = [
    ("2024-01-15T10:00:00Z", ItemAdded("A")),
    ("2024-01-15T10:01:00Z", ItemAdded("B")),
    ("2024-01-15T10:02:00Z", ItemRemoved("A")),
    ("2024-01-15T10:03:00Z", ItemAdded("A")),
    ("2024-01-15T10:04:00Z", QuantityChanged("A", 3)),
    ("2024-01-15T10:05:00Z", CheckedOut()),
]


def main() -> None:
    store = EventStore.open("carts", EVENTS)
    for version, (at, event) in enumerate(HAPPENED):
        store.append("cart-1", [event], expected=version, ids=[f"step-{version}"], at=at, who="ann")


if __name__ == "__main__":
    main()

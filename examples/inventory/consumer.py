"""Takes the pieces of every order out of the stock: once, however often this program dies in between.

python consumer.py            reads what is there and ends
"""

import sqlite3
from collections.abc import Callable

from penstock import GroupConsumer, GroupSettings, IdempotentWriter

STOCK = {"lamp": 100, "chair": 40, "desk": 12}


def main(sold: Callable[[int], None] = lambda offset: None, lease: str = "10 seconds") -> None:
    """sold: called when an order is in the stock, and the group does not know it yet."""
    stock = sqlite3.connect("stock.db")
    stock.execute("CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, pieces INTEGER NOT NULL)")
    stock.executemany("INSERT OR IGNORE INTO stock VALUES (?, ?)", STOCK.items())
    stock.commit()
    with GroupConsumer(None, "inventory", "orders", settings=GroupSettings(lease=lease)) as consumer:
        writer = IdempotentWriter(stock, consumer)
        for order in consumer.records(follow=False):
            with writer.record(order) as fresh:
                if fresh:
                    change = (order.value["pieces"], order.value["item"])
                    stock.execute("UPDATE stock SET pieces = pieces - ? WHERE item = ?", change)
            sold(order.offset)
    for item, pieces in stock.execute("SELECT item, pieces FROM stock ORDER BY item"):
        print(f"{item}: {pieces}")
    stock.close()


if __name__ == "__main__":
    main()

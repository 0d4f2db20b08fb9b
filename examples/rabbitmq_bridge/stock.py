"""Takes orders from the queue `shipping` and takes their pieces from the stock: once each, however often they come.

python stock.py            works until nothing is left
"""

import sqlite3
from pathlib import Path

from penstock import Queue
from penstock.queue.client.once import Once
from penstock.queue.message import Received

STOCK = Path("stock.db")


def opened() -> sqlite3.Connection:
    connection = sqlite3.connect(STOCK, check_same_thread=False)  # one worker at a time
    connection.execute("CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, pieces INTEGER)")
    connection.executemany("INSERT OR IGNORE INTO stock VALUES (?, 1000)", [("apple",), ("pear",), ("plum",)])
    connection.commit()
    return connection


def main() -> None:
    connection, counts = opened(), {True: 0, False: 0}
    once = Once(connection, "shipping")

    def ship(message: Received) -> None:
        order = message.json()
        with once.message(message.id) as fresh:
            counts[fresh] += 1
            if fresh:
                connection.execute("UPDATE stock SET pieces = pieces - ? WHERE item = ?", (order["pieces"], order["item"]))

    with Queue.open("shipping") as shipping:
        shipping.work(ship, workers=1, prefetch=50, until_empty=True)
    left = ", ".join(f"{pieces} {item}s" for item, pieces in connection.execute("SELECT item, pieces FROM stock ORDER BY item"))
    connection.close()
    print(f"{counts[True]} orders shipped, {counts[False]} came again; left: {left}")


if __name__ == "__main__":
    main()

"""The shop as its customers see it: it writes to its database, and to nothing else.

python shop.py work SEED      four sessions change prices, rename customers, take and cancel orders, some of it rolled back
python shop.py show           what stands in the cache, in the search index and in the warehouse
python shop.py flush          the cache loses everything

DATABASE_URL says where the database is, CACHE_URL where the cache.
"""

import os
import random
import sys
import threading
from contextlib import suppress
from typing import Any

import duckdb
import psycopg

from penstock import SearchIndex
from penstock.sinks.stores.redis.address import Address
from penstock.sinks.stores.redis.resp import Connection

TRANSACTIONS, SESSIONS = 20, 4  # of each session
WORDS = ("red", "blue", "light", "warm", "shoes", "coat", "scarf", "for rainy days", "for running")


class Session:
    """One of the shop's connections. Its customers, products and orders have numbers that no other session takes."""

    def __init__(self, seed: int, number: int) -> None:
        self._dice = random.Random(f"{seed} {number}")
        self._numbers = iter(range(1_000_000 * seed + 10_000 * number, sys.maxsize))

    def run(self) -> None:
        for _ in range(TRANSACTIONS):
            self._tried_until_it_is_there(random.Random(self._dice.random()))

    def _tried_until_it_is_there(self, dice: random.Random) -> None:
        """A server that crashes takes the transaction with it, or its answer only: a second try changes nothing then."""
        new = [next(self._numbers) for _ in range(2)]
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(os.environ["DATABASE_URL"]) as connection:
                self._transaction(connection, random.Random(dice.random()), new)
                if dice.random() < 0.1:
                    connection.rollback()
                return

    def _transaction(self, connection: "psycopg.Connection[Any]", dice: random.Random, new: list[int]) -> None:
        """A new product, its first order, and something that was there before: over three tables, all of it or nothing."""
        made, order = new
        some = dice.choice
        connection.execute(
            "insert into products values (%s, %s, %s, %s) on conflict do nothing",
            (made, f"{some(WORDS)} {some(WORDS)}", some([*WORDS, None]), dice.randrange(1, 10_000) / 100),
        )
        connection.execute("insert into orders values (%s, %s, %s, %s) on conflict do nothing", (order, some((1, 2)), made, 1))
        what = dice.randrange(4)
        if what == 0:
            connection.execute("update products set price = price + 1 where product_id = %s", (some((1, 2, 3)),))
        elif what == 1:
            connection.execute("update customers set customer = %s where customer_id = %s", (f"c{made}", some((1, 2))))
        elif what == 2:
            cheap = "select order_id from orders where order_id > 12 order by random() limit 1 for update skip locked"
            connection.execute(f"delete from orders where order_id in ({cheap})")
        else:
            connection.execute("update orders set quantity = quantity + 1 where order_id = %s", (some((10, 11, 12)),))


def work(seed: int) -> None:
    threads = [threading.Thread(target=Session(seed, number).run) for number in range(1, SESSIONS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def asked(*words: str) -> Any:
    cache = Connection(Address.of(os.environ["CACHE_URL"]))
    try:
        return cache.ask(*words)
    finally:
        cache.close()


def show() -> None:
    fields = [text.decode() for text in asked("HGETALL", "product:1")]
    print("cache:", dict(zip(fields[::2], fields[1::2], strict=True)))
    with SearchIndex("products") as index:
        print("index:", [f"{row['product']} {row['price']}" for row in index.find("shoes").to_pylist()])
    with duckdb.connect("warehouse.duckdb", read_only=True) as warehouse:
        found = warehouse.execute("select country, count(*), sum(quantity * price) from sales group by all order by all").fetchall()
    print("warehouse:", ", ".join(f"{country} {count} sales, {total}" for country, count, total in found))


def main(command: str, seed: str = "1") -> None:
    if command == "work":
        work(int(seed))
    elif command == "flush":
        asked("FLUSHALL")
    else:
        show()


if __name__ == "__main__":
    main(*sys.argv[1:])

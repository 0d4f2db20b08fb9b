"""A shop that changes prices in its database and tells a topic about each change itself; and what comes of it.

python shop.py prepare        makes the tables, and the topics that the shop writes
python shop.py work           two instances of the shop change prices, step by step in an order that is always the same
python shop.py race           two instances change prices as fast as they can
python shop.py compare        each topic against its table

DATABASE_URL says where the database is.
"""

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import orjson
import psycopg

from penstock import Producer, TopicSpec, open_log
from penstock.log.consumer import records

ITEMS, CHANGES = 100, 400
CRASHES = 0.02  # how often an instance dies between its two writes
TABLES = {"db_first": "the database, then the topic", "topic_first": "the topic, then the database", "raced": "as fast as they can"}


class Change(NamedTuple):
    """A price, which no other change sets."""

    item: int
    price: int


def database() -> "psycopg.Connection[Any]":
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def prepare() -> None:
    """`history` is filled by the statements that change prices: what was committed, and in which order."""
    with database() as connection:
        for table in TABLES:
            connection.execute(f"create table {table} (id int primary key, price int not null, version int not null default 0)")
            connection.execute(f"insert into {table} select id, 0 from generate_series(0, {ITEMS - 1}) id")
            open_log().create(TopicSpec(f"app.{table}"))
        connection.execute("create table history (shop text, item int, version int, price int)")


class Instance:
    """One process of the shop: a session of the database, and a producer."""

    def __init__(self, table: str) -> None:
        self._table, self._connection = table, database()
        self._producer = Producer(open_log().topic(f"app.{table}"))

    def writes(self, change: Change) -> list[Callable[[], None]]:
        """The two writes of a change, in the order in which this shop does them."""
        both = [partial(self._to_database, change), partial(self._to_topic, change)]
        return both[::-1] if self._table == "topic_first" else both

    def _to_database(self, change: Change) -> None:
        self._connection.execute(
            f"with done as (update {self._table} set price = %s, version = version + 1 where id = %s returning id, version, price) "
            "insert into history select %s, id, version, price from done",
            (change.price, change.item, self._table),
        )

    def _to_topic(self, change: Change) -> None:
        self._producer.send(orjson.dumps({"id": change.item, "price": change.price}), key=str(change.item).encode())
        self._producer.flush()

    def close(self) -> None:
        self._connection.close()


def changes(seed: int) -> list[Change]:
    """What the shop is asked to do. Whoever sets a price often corrects it right away, so they come in pairs."""
    dice = random.Random(seed)
    items = [dice.randrange(ITEMS) for _ in range(CHANGES // 2)]
    return [Change(items[number // 2], number + 1) for number in range(CHANGES)]


def work(table: str, seed: int = 17) -> int:
    """Two instances behind a load balancer: whoever is free takes the next change. Which of them gets to its next step first is a
    matter of luck, in production as here; here the dice are known. Now and then an instance dies between its two writes and is
    started again. Returns how often."""
    dice, todo, crashes = random.Random(seed), changes(seed), 0
    instances = [(Instance(table), list[Callable[[], None]]()) for _ in range(2)]
    while todo or any(steps for _, steps in instances):
        instance, steps = dice.choice([each for each in instances if todo or each[1]])
        if not steps:
            steps += instance.writes(todo.pop(0))
        steps.pop(0)()
        if steps and dice.random() < CRASHES:
            steps.clear()
            crashes += 1
    for instance, _ in instances:
        instance.close()
    return crashes


def race(table: str = "raced", seed: int = 17) -> None:
    """Two instances, and nobody tells them who is next."""
    todo = iter(changes(seed))

    def run() -> None:
        instance = Instance(table)
        for write in (write for change in todo for write in instance.writes(change)):
            write()
        instance.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Verdict(NamedTuple):
    """A topic against its table."""

    missing: int  # changes that were committed and are not in the topic
    invented: int  # changes that are in the topic and were never committed
    swapped: int  # changes that stand behind a newer one of their item
    wrong: int  # items whose last price in the topic is not their price


def told(topic: str) -> Iterator[Change]:
    """The changes in a topic, in their order: those of the shop, or those of the capture."""
    for record in records(open_log().topic(topic)):
        said = orjson.loads(record.value)
        if said.get("op") in (None, "u"):
            row = said.get("after", said)
            yield Change(row["id"], row["price"])


def compare(table: str, topic: str) -> Verdict:
    with database() as connection:
        ordered = "select item, price, version from history where shop = %s order by version"
        committed = connection.execute(ordered, (table,)).fetchall()
        prices = dict(connection.execute(f"select id, price from {table} where version > 0").fetchall())
    version = {Change(item, price): number for item, price, number in committed}
    seen = list(told(topic))
    newest, last, swapped = dict[int, int](), dict[int, int](), 0
    for change in seen:
        swapped += version.get(change, ITEMS * CHANGES) < newest.get(change.item, 0)
        newest[change.item] = max(newest.get(change.item, 0), version.get(change, 0))
        last[change.item] = change.price
    wrong = sum(last.get(item) != prices.get(item) for item in prices.keys() | last.keys())
    return Verdict(len(version.keys() - set(seen)), len(set(seen) - version.keys()), swapped, wrong)


def main(command: str) -> None:
    if command == "prepare":
        prepare()
    elif command == "work":
        for table in ("db_first", "topic_first"):
            print(f"{table}: {CHANGES} changes, {work(table)} crashes between the two writes")
    elif command == "race":
        race()
    else:
        print(f"{'topic':24} {'missing':>8} {'invented':>9} {'swapped':>8}  wrong in the end")
        for topic in (f"{who}.{table}" for table in TABLES for who in ("app", "shop.public")):
            verdict = compare(topic.rpartition(".")[2], topic)
            print(f"{topic:24} {verdict.missing:>8} {verdict.invented:>9} {verdict.swapped:>8}  {verdict.wrong} of {ITEMS} items")


if __name__ == "__main__":
    main(sys.argv[1])

"""The same work on three tables: one that nobody follows, one with triggers that fill an outbox, one followed in the server's log.

python ledger.py prepare      makes the tables
python ledger.py work         does the work on each of them, in turns, and says how long it took
python ledger.py compare      the three tables, and the topics of the two that are followed

DATABASE_URL says where the database is.
"""

import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import orjson
import psycopg

from penstock import open_log
from penstock.log.consumer import records

TABLES = ("plain", "watched", "logged")
TOPICS = {"watched": "outbox.public.watched", "logged": "wal.public.logged"}
ROUNDS, SINGLE, BULK = 5, 100, 2_000
Connection = psycopg.Connection[tuple[Any, ...]]
Row = tuple[int, str, int]


def database() -> Connection:
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def prepare() -> None:
    with database() as connection:
        for table in TABLES:
            connection.execute(f"create table {table} (id int primary key, owner text not null, amount int not null)".encode())


def single(connection: Connection, table: str, turn: int) -> None:
    """Transactions of one row: inserts, updates and deletes."""
    dice, first = random.Random(turn), turn * 1_000_000
    for id in range(first, first + SINGLE):
        connection.execute(f"insert into {table} values (%s, %s, %s)".encode(), (id, f"owner {id % 7}", id % 100))
        kind, other = dice.random(), first + dice.randrange(id - first + 1)
        if kind < 0.6:
            connection.execute(f"update {table} set amount = amount + 1 where id = %s".encode(), (other,))
        elif kind < 0.8:
            connection.execute(f"delete from {table} where id = %s".encode(), (other,))


def bulk(connection: Connection, table: str, turn: int) -> None:
    """Statements over many rows."""
    first = turn * 1_000_000 + 500_000
    rows = f"generate_series({first}, {first + BULK - 1}) id"
    connection.execute(f"insert into {table} select id, 'owner ' || id % 7, id % 100 from {rows}".encode())
    connection.execute(f"update {table} set amount = amount + 1 where id >= {first} and id % 2 = 0".encode())
    connection.execute(f"delete from {table} where id >= {first} and id % 4 = 0".encode())


class Cost(NamedTuple):
    """What some work took, and how much the server wrote to its log for it: that depends on no other program."""

    seconds: float
    log: int


def measured(connection: Connection, does: Callable[[], None]) -> Cost:
    ((begin,),) = connection.execute("select pg_current_wal_insert_lsn()")
    start = time.perf_counter()
    does()
    seconds = time.perf_counter() - start
    ((size,),) = connection.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::bigint", (begin,))
    return Cost(seconds, size)


def work() -> dict[str, dict[str, Cost]]:
    """The least that each kind of work cost on each table, in several rounds."""
    costs: dict[str, dict[str, list[Cost]]] = defaultdict(lambda: defaultdict(list))
    kinds: dict[str, Callable[[Connection, str, int], None]] = {"single rows": single, "bulk": bulk}
    with database() as connection:
        for turn in range(ROUNDS):
            for kind, does in kinds.items():
                for table in TABLES:
                    costs[kind][table].append(measured(connection, partial(does, connection, table, turn)))
    return {
        kind: {table: Cost(*map(min, zip(*each, strict=True))) for table, each in tables.items()} for kind, tables in costs.items()
    }


def rows(table: str) -> set[Row]:
    with database() as connection:
        return {(id, owner, amount) for id, owner, amount in connection.execute(f"select * from {table}".encode())}


def changes(table: str) -> Iterator[tuple[str, Row]]:
    """What the topic of a table says, change by change."""
    for record in records(open_log().topic(TOPICS[table])):
        said = orjson.loads(record.value) if record.value else {"op": "tombstone"}
        if said["op"] == "d":
            yield "d", (said["before"]["id"], "", 0)  # of a row that goes the server's log has the key
        elif said["op"] != "tombstone":
            yield said["op"], (said["after"]["id"], said["after"]["owner"], said["after"]["amount"])


def folded(table: str) -> set[Row]:
    """The rows that the changes leave."""
    held: dict[int, Row] = {}
    for op, row in changes(table):
        held[row[0]] = row
        if op == "d":
            del held[row[0]]
    return set(held.values())


def by_row(table: str) -> dict[int, list[tuple[str, Row]]]:
    """What became of each row, in its order."""
    found: dict[int, list[tuple[str, Row]]] = defaultdict(list)
    for op, row in changes(table):
        found[row[0]].append((op, row))
    return found


def shown_work() -> Iterator[str]:
    yield f"{'':12} {'':7} {'plain':>8} {'watched':>16} {'logged':>16}"
    for kind, costs in work().items():
        for what, unit, values in (
            ("time", "ms", [costs[table].seconds * 1000 for table in TABLES]),
            ("log", "kB", [costs[table].log / 1000 for table in TABLES]),
        ):
            plain, *others = values
            yield f"{kind:12} {what:4} {plain:>8.0f} {unit}" + "".join(
                f"{x:>6.0f} {unit} ({x / plain:.1f}×)".rjust(17) for x in others
            )


def shown_comparison() -> Iterator[str]:
    same = rows("plain") == rows("watched") == rows("logged") == folded("watched") == folded("logged")
    yield f"{len(rows('plain'))} rows, {'the same' if same else 'NOT the same'} in all tables and both topics"
    told, seen = by_row("watched"), by_row("logged")
    order = "the same in both topics, and of each row in the same order" if told == seen else "NOT the same in both topics"
    yield f"{sum(map(len, told.values()))} changes, {order}"


def main(command: str) -> None:
    if command == "prepare":
        prepare()
    else:
        print("\n".join(shown_work() if command == "work" else shown_comparison()))


if __name__ == "__main__":
    main(sys.argv[1])

"""What a program writes into its own database happens once per message: on SQLite and PostgreSQL. (G24)"""

import threading
from pathlib import Path
from typing import Any

import pytest

from own_tables import Database, Sqlite, database
from penstock.core.time import FixedClock
from penstock.errors import BadInput, BadName
from penstock.queue.client.once import TABLE, Once

__all__ = ["database"]


@pytest.fixture
def stock(database: Database) -> Database:
    return stocked(database)


def stocked(database: Database) -> Database:
    database.make("CREATE TABLE stock (pieces INTEGER)", "INSERT INTO stock VALUES (0)")
    return database


def add(connection: Any, once: Once, id: str) -> bool:
    with once.message(id) as fresh:
        if fresh:
            connection.execute("UPDATE stock SET pieces = pieces + 1")
    return fresh


def pieces(stock: Database) -> int:
    return int(stock.ask("SELECT pieces FROM stock")[0][0])


def count_once(stock: Database, other: Database) -> None:
    with stock.connection() as one, other.connection() as two:
        first, second = Once(one, "stock"), Once(two, "stock")
        taken = [add(one, first, "a"), add(one, first, "a"), add(two, second, "a"), add(two, second, "b")]
        assert taken == [True, False, False, True]
        assert add(one, Once(one, "audit"), "a")
    assert pieces(stock) == 3


def test_a_message_counts_once_whoever_gets_it(stock: Database) -> None:
    count_once(stock, stock)


def test_a_connection_without_transactions_of_its_own_will_do(tmp_path: Path) -> None:
    stock = stocked(Sqlite(tmp_path / "own.db"))
    count_once(Sqlite(tmp_path / "own.db", isolation=None), stock)


def fail_after_a_write(connection: Any) -> None:
    connection.execute("UPDATE stock SET pieces = pieces + 1")
    raise ZeroDivisionError


def test_what_fails_was_not_taken(stock: Database) -> None:
    with stock.connection() as connection:
        once = Once(connection, "stock")
        with pytest.raises(ZeroDivisionError), once.message("a"):
            fail_after_a_write(connection)
        assert pieces(stock) == 0
        assert add(connection, once, "a")


def test_threads_that_get_the_same_message_do_its_work_once(stock: Database) -> None:
    def work() -> None:
        with stock.connection() as connection:
            once = Once(connection, "stock")
            for number in range(50):
                add(connection, once, f"m-{number}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pieces(stock) == 50


def test_ids_are_forgotten_after_their_time(stock: Database) -> None:
    clock = FixedClock(1_705_312_800_000_000)
    with stock.connection() as connection:
        add(connection, Once(connection, "stock", keep="1 hour", clock=clock), "a")
        clock.set(clock.now() + 7_200_000_000)
        add(connection, Once(connection, "stock", keep="1 hour", clock=clock), "b")
    assert stock.ask(f"SELECT id FROM {TABLE}") == [("b",)]


def test_what_cannot_be_is_refused(stock: Database) -> None:
    with stock.connection() as connection:
        with pytest.raises(BadName):
            Once(connection, "a b")
        with pytest.raises(BadInput, match="without an id"), Once(connection, "stock").message(""):
            pass

    class Committing:
        autocommit = True

    with pytest.raises(BadInput, match="autocommit=False"):
        Once(Committing(), "stock")

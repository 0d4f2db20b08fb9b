"""What a program writes happens once per message."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from penstock.core.time import FixedClock
from penstock.errors import BadInput, BadName
from penstock.queue.client.once import TABLE, Once


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "stock.db")) as connection:
        connection.execute("CREATE TABLE stock (pieces INTEGER)")
        connection.execute("INSERT INTO stock VALUES (0)")
        connection.commit()
    return tmp_path / "stock.db"


def add(connection: sqlite3.Connection, once: Once, id: str) -> bool:
    with once.message(id) as fresh:
        if fresh:
            connection.execute("UPDATE stock SET pieces = pieces + 1")
    return fresh


def pieces(place: Path) -> int:
    with closing(sqlite3.connect(place)) as connection:
        return int(connection.execute("SELECT pieces FROM stock").fetchone()[0])


@pytest.mark.parametrize("isolation", ["DEFERRED", None])
def test_a_message_counts_once_whoever_gets_it(place: Path, isolation: str | None) -> None:
    with closing(sqlite3.connect(place, isolation_level=isolation)) as one, closing(sqlite3.connect(place)) as two:
        first, second = Once(one, "stock"), Once(two, "stock")
        assert [add(one, first, "a"), add(one, first, "a"), add(two, second, "a"), add(two, second, "b")] == [
            True,
            False,
            False,
            True,
        ]
        assert add(one, Once(one, "audit"), "a")
    assert pieces(place) == 3


def fail_after_a_write(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE stock SET pieces = pieces + 1")
    raise ZeroDivisionError


def test_what_fails_was_not_taken(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection:
        once = Once(connection, "stock")
        with pytest.raises(ZeroDivisionError), once.message("a"):
            fail_after_a_write(connection)
        assert pieces(place) == 0
        assert add(connection, once, "a")


def test_threads_that_get_the_same_message_do_its_work_once(place: Path) -> None:
    def work() -> None:
        with closing(sqlite3.connect(place, timeout=60)) as connection:
            once = Once(connection, "stock")
            for number in range(50):
                add(connection, once, f"m-{number}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pieces(place) == 50


def test_ids_are_forgotten_after_their_time(place: Path) -> None:
    clock = FixedClock(1_705_312_800_000_000)
    with closing(sqlite3.connect(place)) as connection:
        add(connection, Once(connection, "stock", keep="1 hour", clock=clock), "a")
        clock.set(clock.now() + 7_200_000_000)
        add(connection, Once(connection, "stock", keep="1 hour", clock=clock), "b")
        assert [row[0] for row in connection.execute(f"SELECT id FROM {TABLE}")] == ["b"]


def test_what_cannot_be_is_refused(place: Path) -> None:
    with closing(sqlite3.connect(place)) as connection:
        with pytest.raises(BadName):
            Once(connection, "a b")
        with pytest.raises(BadInput, match="without an id"), Once(connection, "stock").message(""):
            pass

    class Committing:
        autocommit = True

    with pytest.raises(BadInput, match="autocommit=False"):
        Once(Committing(), "stock")

"""What a program writes into its own database happens once per record, whoever reads it again: on SQLite and PostgreSQL. (G17)"""

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lost_answers import LostAnswers
from own_tables import Database, Postgres, Sqlite, database, own_schema
from penstock.core.record import Record
from penstock.errors import BadInput
from penstock.log.groups.once import IdempotentWriter
from penstock.log.groups.reading import Batch
from penstock.testing.servers.postgres import PostgresServer

__all__ = ["database"]
SOLD = "CREATE TABLE sold (piece INTEGER)"
SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=25)


class Reader(NamedTuple):
    group: str = "stock"
    topic_id: str = "life-1"


def record(offset: int, partition: int = 0) -> Record:
    return Record("orders", partition, offset, None, b"", 0, 0)


def batch(start: int, stop: int) -> Batch:
    return Batch(0, pa.table({"offset": pa.array(range(start, stop), pa.int64())}), start, stop)


def sold(database: Database) -> list[int]:
    return sorted(piece for (piece,) in database.ask("SELECT piece FROM sold"))


def sell(database: Database, connection: Any, writer: IdempotentWriter, *offsets: int) -> None:
    for offset in offsets:
        with writer.record(record(offset)) as fresh:
            if fresh:
                database.run(connection, "INSERT INTO sold VALUES (?)", offset)


def test_a_record_that_is_read_again_is_not_fresh(database: Database) -> None:
    database.make(SOLD)
    with database.connection() as connection:
        sell(database, connection, IdempotentWriter(connection, Reader()), 0, 1, 2)
        sell(database, connection, IdempotentWriter(connection, Reader()), 1, 2, 3)
    assert sold(database) == [0, 1, 2, 3]


def test_what_failed_is_neither_written_nor_counted(database: Database) -> None:
    database.make(SOLD)
    with database.connection() as connection:
        writer = IdempotentWriter(connection, Reader())

        def fail() -> None:
            with writer.record(record(0)):
                connection.execute("INSERT INTO sold VALUES (0)")
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert sold(database) == []
        sell(database, connection, writer, 0)
    assert sold(database) == [0]


def test_a_statement_that_the_database_refuses_takes_nothing(database: Database) -> None:
    database.make(SOLD)
    with database.connection() as connection:
        writer = IdempotentWriter(connection, Reader())

        def fail() -> None:
            with writer.record(record(0)):
                connection.execute("INSERT INTO sold VALUES (0)")
                connection.execute("INSERT INTO nothing VALUES (0)")

        with pytest.raises(Exception, match="nothing"):
            fail()
        sell(database, connection, writer, 0)
    assert sold(database) == [0]


def test_groups_topics_and_partitions_do_not_mix(database: Database) -> None:
    taken = []
    with database.connection() as connection:
        for reader in (Reader(), Reader(group="other"), Reader(topic_id="life-2")):
            for partition in (0, 1):
                with IdempotentWriter(connection, reader).record(record(5, partition)) as fresh:
                    taken.append(fresh)
    assert taken == [True] * 6


def take_every_offset_once(database: Database, spans: list[tuple[int, int]]) -> None:
    with database.connection() as connection:
        writer, taken = IdempotentWriter(connection, Reader()), []
        for start, length in spans:
            with writer.batch(batch(start, start + length)) as rows:
                taken += rows.column("offset").to_pylist()
    wanted = {offset for start, length in spans for offset in range(start, start + length)}
    assert len(taken) == len(set(taken))
    assert set(taken) == wanted
    kept = database.ask("SELECT start_offset, stop_offset FROM penstock_taken WHERE start_offset >= 0 ORDER BY 1")
    assert all(before[1] < after[0] for before, after in pairwise(kept)), "ranges that touch are one"


class InMemory(Sqlite):
    """One connection, which its users do not close."""

    def __init__(self) -> None:
        self.one = sqlite3.connect(":memory:")

    def connect(self) -> Any:
        class Kept:
            close = staticmethod(lambda: None)
            __getattr__ = staticmethod(lambda name: getattr(self.one, name))

        return Kept()


@given(SPANS)
def test_batches_in_any_order_take_every_offset_once(spans: list[tuple[int, int]]) -> None:
    take_every_offset_once(InMemory(), spans)


@given(spans=SPANS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_batches_in_any_order_take_every_offset_once_in_a_postgres(postgres: PostgresServer, spans: list[tuple[int, int]]) -> None:
    with own_schema(postgres) as database:
        take_every_offset_once(database, spans)


def together(count: int, work: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def one() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_zombie_and_its_successors_take_every_record_once_between_them(database: Database) -> None:
    """They also make the table at once."""
    database.make(SOLD)

    def work() -> None:
        with database.connection() as connection:
            sell(database, connection, IdempotentWriter(connection, Reader()), *range(40))

    together(4, work)
    assert sold(database) == list(range(40))


def test_a_connection_without_transactions_of_its_own_will_do(tmp_path: Path) -> None:
    database = Sqlite(tmp_path / "own.db", isolation=None)
    database.make(SOLD)

    def work() -> None:
        with database.connection() as connection:
            sell(database, connection, IdempotentWriter(connection, Reader()), *range(40))

    together(3, work)
    assert sold(database) == list(range(40))


KILLED = """
import os, signal
from collections import namedtuple
from penstock.core.record import Record
from penstock.log.groups.once import IdempotentWriter
connection = {opens}
writer = IdempotentWriter(connection, namedtuple("Reader", "group topic_id")("stock", "life-1"))
for offset in range(10):
    with writer.record(Record("orders", 0, offset, None, b"", 0, 0)) as fresh:
        if fresh:
            connection.execute(f"INSERT INTO sold VALUES ({{offset}})")
        if offset == {at}:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("at", [0, 4])
def test_a_program_killed_before_its_commit_has_written_nothing_of_that_record(at: int, database: Sqlite | Postgres) -> None:
    database.make(SOLD)
    done = subprocess.run([sys.executable, "-c", KILLED.format(opens=database.opens, at=at)], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert sold(database) == list(range(at))
    with database.connection() as connection:
        sell(database, connection, IdempotentWriter(connection, Reader()), *range(10))
    assert sold(database) == list(range(10))


def test_a_commit_whose_answer_was_lost_counts_once(postgres: PostgresServer) -> None:
    with own_schema(postgres) as database, LostAnswers(postgres.address) as way:
        database.make(SOLD)
        lossy = Postgres(f"postgresql://postgres@{way.address}/postgres?sslmode=disable&gssencmode=disable", "unused")
        lossy.options = database.options
        with lossy.connection() as connection:
            writer = IdempotentWriter(connection, Reader())
            way.lose_the_next()
            with pytest.raises(Exception, match="server closed the connection"):
                sell(database, connection, writer, 0)
        with database.connection() as connection:
            sell(database, connection, IdempotentWriter(connection, Reader()), 0, 1)
        assert sold(database) == [0, 1]


def test_rows_may_come_as_dictionaries(postgres: PostgresServer) -> None:
    from psycopg.rows import dict_row

    with own_schema(postgres) as database, database.connection() as connection:
        database.make(SOLD)
        connection.row_factory = dict_row
        sell(database, connection, IdempotentWriter(connection, Reader()), 0, 0, 1)
        assert sold(database) == [0, 1]


class Percent:
    """A connection whose module writes parameters as %s, over SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def cursor(self) -> "Percent":
        return self

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        assert "?" not in statement
        self.result = self.connection.execute(statement.replace("%s", "?"), values)
        return self.result

    def fetchall(self) -> list[Any]:
        return self.result.fetchall()

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


def test_parameters_are_written_as_the_module_wants_them(tmp_path: Path) -> None:
    database = Sqlite(tmp_path / "own.db")
    database.make(SOLD)
    with database.connection() as connection:
        sell(database, connection, IdempotentWriter(Percent(connection), Reader(), placeholder="%s"), 0, 0, 1)
    assert sold(database) == [0, 1]


def test_a_connection_that_cannot_keep_the_promise_is_refused(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as auto, pytest.raises(BadInput, match="commits every statement"):
        IdempotentWriter(auto, Reader())
    reading = psycopg.connect(postgres.url, options="-c default_transaction_read_only=on")
    with reading, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        IdempotentWriter(reading, Reader())
    monkeypatch.setattr(sqlite3, "paramstyle", "named")
    with pytest.raises(BadInput, match="style 'named'"):
        IdempotentWriter(sqlite3.connect(":memory:"), Reader())

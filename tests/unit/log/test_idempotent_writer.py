"""What a program writes happens once per record, whoever reads it again."""

import sqlite3
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.record import Record
from penstock.errors import BadInput
from penstock.log.groups.once import IdempotentWriter
from penstock.log.groups.reading import Batch


class Reader(NamedTuple):
    group: str = "stock"
    topic_id: str = "life-1"


def record(offset: int, partition: int = 0) -> Record:
    return Record("orders", partition, offset, None, b"", 0, 0)


def batch(start: int, stop: int) -> Batch:
    return Batch(0, pa.table({"offset": pa.array(range(start, stop), pa.int64())}), start, stop)


@pytest.fixture
def connection() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE sold (piece INTEGER)")
    made.commit()
    return made


def sold(connection: sqlite3.Connection) -> list[int]:
    return [piece for (piece,) in connection.execute("SELECT piece FROM sold ORDER BY rowid")]


def sell(connection: sqlite3.Connection, writer: IdempotentWriter, *offsets: int) -> None:
    for offset in offsets:
        with writer.record(record(offset)) as fresh:
            if fresh:
                connection.execute("INSERT INTO sold VALUES (?)", (offset,))


def test_a_record_that_is_read_again_is_not_fresh(connection: sqlite3.Connection) -> None:
    writer = IdempotentWriter(connection, Reader())
    sell(connection, writer, 0, 1, 2)
    sell(connection, IdempotentWriter(connection, Reader()), 1, 2, 3)
    assert sold(connection) == [0, 1, 2, 3]


def test_what_failed_is_neither_written_nor_counted(connection: sqlite3.Connection) -> None:
    writer = IdempotentWriter(connection, Reader())

    def fail() -> None:
        with writer.record(record(0)):
            connection.execute("INSERT INTO sold VALUES (0)")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert sold(connection) == []
    sell(connection, writer, 0)
    assert sold(connection) == [0]


def test_groups_topics_and_partitions_do_not_mix(connection: sqlite3.Connection) -> None:
    taken = []
    for reader in (Reader(), Reader(group="other"), Reader(topic_id="life-2")):
        for partition in (0, 1):
            with IdempotentWriter(connection, reader).record(record(5, partition)) as fresh:
                taken.append(fresh)
    assert taken == [True] * 6


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=25))
def test_batches_in_any_order_take_every_offset_once(spans: list[tuple[int, int]]) -> None:
    connection = sqlite3.connect(":memory:")
    writer, taken = IdempotentWriter(connection, Reader()), []
    for start, length in spans:
        with writer.batch(batch(start, start + length)) as rows:
            taken += rows.column("offset").to_pylist()
    wanted = {offset for start, length in spans for offset in range(start, start + length)}
    assert len(taken) == len(set(taken))
    assert set(taken) == wanted
    kept = connection.execute("SELECT start_offset, stop_offset FROM penstock_taken WHERE start_offset >= 0 ORDER BY 1").fetchall()
    assert all(before[1] < after[0] for before, after in pairwise(kept)), "ranges that touch are one"
    connection.close()


@pytest.mark.parametrize("level", ["DEFERRED", None], ids=["transactions by itself", "without"])
def test_a_zombie_and_its_successor_take_every_record_once_between_them(tmp_path: Path, level: Any) -> None:
    path = tmp_path / "stock.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE sold (piece INTEGER)")

    def work() -> None:
        connection = sqlite3.connect(path, isolation_level=level, timeout=60)
        sell(connection, IdempotentWriter(connection, Reader()), *range(40))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sold(made)) == list(range(40))
    made.close()


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


def test_parameters_are_written_as_the_module_wants_them(connection: sqlite3.Connection) -> None:
    writer = IdempotentWriter(Percent(connection), Reader(), placeholder="%s")
    sell(connection, writer, 0, 0, 1)
    assert sold(connection) == [0, 1]


def test_a_connection_that_cannot_keep_the_promise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Auto:
        autocommit = True

    with pytest.raises(BadInput, match="commits every statement"):
        IdempotentWriter(Auto(), Reader())
    monkeypatch.setattr(sqlite3, "paramstyle", "named")
    with pytest.raises(BadInput, match="style 'named'"):
        IdempotentWriter(sqlite3.connect(":memory:"), Reader())

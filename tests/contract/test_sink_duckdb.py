"""A table of a DuckDB file as a sink: the suite, and what is its own: one process, tables that are there, rows that it refuses."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from duckdb import connect

from penstock.core.schema import Schema
from penstock.errors import BadInput, SinkError, SinkUnavailable
from penstock.log.memory import MemoryLog
from penstock.sinks import duckdb
from penstock.sinks.port import Marker, Sink, SinkContext, nothing
from penstock.sinks.stores.sink import REASON
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import EPOCHS, EVERYTHING, SPEC, SinkContract, delivery, staged_epochs
from penstock.testing.contracts.sink_changes import ChangesContract
from store_suite import Appending, OfStore, StoreSuite, staged

OPENS = "import sys, duckdb; connection = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"

COUNTS = "import sys, duckdb; print(*duckdb.connect(sys.argv[1], read_only=True).sql('SELECT count(*) FROM results').fetchall()[0])"


class TestDuckdb(OfStore, SinkContract):
    kind = "duckdb"


class TestDuckdbAppending(Appending, SinkContract):
    kind = "duckdb"


class TestDuckdbWithChanges(StoreSuite, ChangesContract):
    kind = "duckdb"


def query(place: Path, statement: str) -> list[tuple[object, ...]]:
    with connect(place / "w.db") as connection:
        return connection.execute(statement).fetchall()


def sink(
    place: Path,
    storage: MemoryStorage,
    table: str = "results",
    refuse: Callable[[Marker, pa.Table], None] = lambda marker, rows: None,
    **options: object,
) -> Sink:
    definition = duckdb(place / "w.db", table, **options)  # type: ignore[arg-type]
    return definition.build(SinkContext(SPEC, MemoryLog(), storage, place, nothing, refuse))


def test_while_another_process_has_the_file_open_the_sink_is_away(tmp_path: Path) -> None:
    mine = sink(tmp_path, staged_epochs(EPOCHS))
    other = subprocess.Popen(
        [sys.executable, "-c", OPENS, str(tmp_path / "w.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout
        assert other.stdout.readline() == "open\n"
        with pytest.raises(SinkUnavailable, match="another process has the file open"):
            mine.open("life", 1)
        other.communicate()
    assert mine.open("life", 1) == -1
    mine.close()


def test_a_file_that_is_not_kept_open_can_be_read_by_others_between_epochs(tmp_path: Path) -> None:
    mine = sink(tmp_path, staged_epochs(EPOCHS), keep_open=False)
    mine.open("life", 1)
    for epoch in (0, 1):
        mine.deliver(delivery(epoch))
        looked = subprocess.run([sys.executable, "-c", COUNTS, str(tmp_path / "w.db")], capture_output=True, text=True, check=True)
        assert looked.stdout == f"{len(EPOCHS[0]) + epoch}\n"
    mine.close()


def test_rows_that_a_table_refuses_are_dead_letters_and_the_others_stay(tmp_path: Path) -> None:
    query(tmp_path, "CREATE TABLE results (id BIGINT PRIMARY KEY, text VARCHAR CHECK (text <> 'd'), more INTEGER DEFAULT 7)")
    dead: list[tuple[Marker, pa.Table]] = []
    mine = sink(tmp_path, staged_epochs(EPOCHS), refuse=lambda marker, rows: dead.append((marker, rows)))
    mine.open("life", 1)
    for epoch in EPOCHS:
        mine.deliver(delivery(epoch))
    mine.close()
    assert query(tmp_path, "SELECT id, text FROM results ORDER BY id") == [row for row in EVERYTHING if row[1] != "d"]
    assert query(tmp_path, "SELECT DISTINCT more FROM results") == [(7,)]
    ((marker, rows),) = dead
    assert (marker.epoch, rows["id"].to_pylist()) == (2, [4])
    assert "CHECK constraint" in rows[REASON][0].as_py()


def test_a_row_that_a_table_refuses_stops_the_flow_where_it_shall(tmp_path: Path) -> None:
    query(tmp_path, "CREATE TABLE results (id BIGINT, text VARCHAR CHECK (text <> 'd'))")
    mine = sink(tmp_path, staged_epochs(EPOCHS), on_error="stop")
    mine.open("life", 1)
    mine.deliver(delivery(0))
    mine.deliver(delivery(1))
    with pytest.raises(SinkError, match="refuses a row"):
        mine.deliver(delivery(2))
    mine.close()
    assert query(tmp_path, "SELECT count(*) FROM results") == [(3,)]


@pytest.mark.parametrize("column", ["INTEGER", "BOOLEAN", "TIMESTAMP", "BIGINT[]"])
def test_a_table_whose_column_does_not_take_the_values_is_refused(column: str, tmp_path: Path) -> None:
    query(tmp_path, f"CREATE TABLE results (ID {column}, text VARCHAR)")
    with pytest.raises(SinkError, match="does not take id long"):
        sink(tmp_path, MemoryStorage()).open("life", 1)


def test_a_table_that_is_there_may_be_wider_than_the_flow(tmp_path: Path) -> None:
    query(tmp_path, "CREATE TABLE results (Id VARCHAR, kind ENUM ('x', 'y'), text VARCHAR)")
    storage, schema = MemoryStorage(), Schema.of("id long, kind string, text string")
    staged(storage, 0, pa.table({"id": [1], "kind": ["x"], "text": ["a"]}, schema=schema.arrow))
    context = SinkContext(replace(SPEC, schema=schema, key=()), MemoryLog(), storage, tmp_path)
    mine = duckdb(tmp_path / "w.db", "results").build(context)
    mine.open("life", 1)
    mine.deliver(delivery(0))
    mine.close()
    assert query(tmp_path, "SELECT * FROM results") == [("1", "x", "a")]


def test_a_schema_may_be_called_like_the_file(tmp_path: Path) -> None:
    mine = sink(tmp_path, staged_epochs(EPOCHS), "w.results")
    mine.open("life", 1)
    mine.deliver(delivery(0))
    mine.close()
    assert query(tmp_path, "SELECT id, text FROM w.w.results") == EPOCHS[0]


def test_a_file_that_is_no_duckdb_is_an_error_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "w.db").write_text("my diary" * 1000)
    with pytest.raises(SinkError, match="cannot be opened"):
        sink(tmp_path, MemoryStorage()).open("life", 1)
    assert (tmp_path / "w.db").read_text() == "my diary" * 1000


@pytest.mark.parametrize("path", ["", ":memory:", ":memory:shared"])
def test_a_database_in_memory_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match="in memory"):
        duckdb(path, "results")

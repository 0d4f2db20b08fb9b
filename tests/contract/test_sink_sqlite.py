"""A table of an SQLite database as a sink: the suite, and what is its own: types, null keys, refusals, kills of the writer."""

import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, SinkError, SinkUnavailable
from penstock.sinks import sqlite as definition_of
from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.sink import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from stored import EVERY_TYPE, Staged


def found(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path / "shop.db")) as connection:
        return connection.execute(statement).fetchall()


class _OfSqlite:
    points = POINTS

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return definition_of(place / "shop.db", "results").build(SinkContext(spec, None, storage, Path(), fail))  # type: ignore[arg-type]


class TestSqlite(_OfSqlite, SinkContract):
    def rows(self, place: Path) -> list[Row]:
        return found(place, "select id, text from results order by rowid")


class TestSqliteAppending(TestSqlite):
    """Rows without a key, so that one that is written twice is there twice."""

    def make(self, place: Any, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return super().make(place, replace(spec, key=()), storage, fail)


class TestSqliteWithChanges(_OfSqlite, ChangesContract):
    def holds(self, place: Path) -> Held:
        return dict(found(place, "select id, text from results"))


def test_every_type_comes_out_as_it_went_in(tmp_path: Path) -> None:
    staged = Staged(definition_of(tmp_path / "shop.db", "results"), EVERY_TYPE)
    row = {
        "id": 1, "flag": True, "tiny": -128, "small": 32767, "n": -(2**31), "price": Decimal("123456789.125"), "real": 1.5,
        "x": 0.1 + 0.2, "text": "a\0b\n", "raw": b"\x00\xff", "day": date(2024, 2, 29),
        "at": datetime(2024, 1, 15, 10, 0, 15, 123456, UTC), "tags": ["x", None], "place": {"lat": 1.5, "lon": None},
    }  # fmt: skip
    sink = staged.sink()
    sink.deliver(staged.epoch_of(row, {"id": 2, "x": float("nan"), "text": ""}, {"id": 3, "x": float("-inf")}))
    sink.close()
    first, second, third = found(tmp_path, "select * from results order by id")
    shown = {"flag": 1, "price": "123456789.125", "day": "2024-02-29", "at": "2024-01-15T10:00:15.123456Z"}
    assert first == tuple((row | shown | {"tags": '["x",null]', "place": '{"lat":1.5,"lon":null}'}).values())
    assert (second[7], second[8], second[9]) == ("NaN", "", None)
    assert third[7] == float("-inf")


def test_a_key_that_is_null_is_a_key(tmp_path: Path) -> None:
    staged = Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": None, "text": "a"}, {"id": 1, "text": "b"}))
    sink.deliver(staged.epoch_of({"id": None, "text": "c"}))
    assert sorted(found(tmp_path, "select * from results"), key=str) == [(1, "b"), (None, "c")]
    sink.deliver(staged.epoch_of(gone=[{"id": None, "text": "c"}]))
    assert found(tmp_path, "select * from results") == [(1, "b")]
    sink.close()


def test_soft_deletes_and_conflicts(tmp_path: Path) -> None:
    staged = Staged(definition_of(tmp_path / "shop.db", "results", soft_delete="gone"), "id long, text string", updating=True)
    sink = staged.sink()
    sink.deliver(staged.epoch_of({"id": 1, "text": "a"}))
    sink.deliver(staged.epoch_of(gone=[{"id": 1, "text": "a"}]))
    assert found(tmp_path, "select id, gone from results") == [(1, "1970-01-01T00:00:00Z")]
    sink.deliver(staged.epoch_of({"id": 1, "text": "b"}))
    assert found(tmp_path, "select text, gone from results") == [("b", None)]
    sink.close()
    ignoring = Staged(definition_of(tmp_path / "shop.db", "others", on_conflict="ignore"), "id long, text string")
    ignoring.spec = SinkSpec("shop", "others", ignoring.schema, ("id",))
    sink = ignoring.sink()
    sink.deliver(ignoring.epoch_of({"id": 1, "text": "old"}))
    sink.deliver(ignoring.epoch_of({"id": 1, "text": "new"}))
    sink.close()
    assert found(tmp_path, "select text from others") == [("old",)]


def test_rows_that_it_refuses_are_named_and_all_others_are_there(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table results (id integer primary key, text text check (text <> 'no'))")
        connection.execute("create unique index by_id on results (id)")
    staged = Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text string")
    sink = staged.sink()
    sink.deliver(staged.epoch_of(*({"id": n, "text": "no" if n in (3, 17) else "yes"} for n in range(20))))
    sink.close()
    assert len(found(tmp_path, "select * from results")) == 18
    [(epoch, rows)] = staged.refused
    assert (epoch, [row["id"] for row in rows], rows[0]["__reason"]) == (0, [3, 17], "CHECK constraint failed: text <> 'no'")


def test_a_table_that_is_there_must_fit(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table results (id integer, text integer)")
    with pytest.raises(SinkError, match=r"column 'text' of table results .* is INTEGER, which does not take text string"):
        Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text string").sink()
    with pytest.raises(SinkError, match="no unique index over the columns that tell rows apart: id"):
        Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text long").sink()
    with pytest.raises(BadInput, match="is no name of a table in SQLite"):
        definition_of(tmp_path / "shop.db", "main.results")


def test_a_primary_key_of_numbers_tells_rows_apart_and_one_of_several_columns_is_none_of_them(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table results (id integer primary key, text text)")
        connection.execute("create table parts (id integer, text text, primary key (id, text))")
    staged = Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text string")
    sink = staged.sink()
    for text in ("a", "b"):
        sink.deliver(staged.epoch_of({"id": 1, "text": text}))
    sink.close()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        assert connection.execute("select id, text from results").fetchall() == [(1, "b")]
    with pytest.raises(SinkError, match="no unique index over the columns that tell rows apart: id"):
        Staged(definition_of(tmp_path / "shop.db", "parts"), "id long, text string").sink()


def test_a_column_that_the_flow_gains_is_added(tmp_path: Path) -> None:
    before = Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text string")
    sink = before.sink()
    sink.deliver(before.epoch_of({"id": 1, "text": "a"}))
    sink.close()
    after = Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text string, more double")
    sink = after.sink(generation=2)
    sink.deliver(after.epoch_of({"id": 2, "text": "b", "more": 1.25}, generation=2))
    sink.close()
    assert found(tmp_path, "select * from results order by id") == [(1, "a", None), (2, "b", 1.25)]


def test_a_file_that_another_writes_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.stores.sql.sqlite.WAIT", 0.01)
    staged = Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text string")
    sink = staged.sink()
    delivery = staged.epoch_of({"id": 1, "text": "a"})
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(SinkUnavailable, match="database is locked"):
            sink.deliver(delivery)
    sink.deliver(delivery)
    sink.close()


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 30))])
def test_a_writer_killed_at_any_moment_leaves_whole_epochs(seed: int, tmp_path: Path) -> None:
    staged = Staged(definition_of(tmp_path / "shop.db", "results"), "id long, text string")
    deliveries = [staged.epoch_of(*({"id": 100 * epoch + n, "text": "x" * 50} for n in range(100))) for epoch in range(20)]
    passed = list[str]()

    def die(point: str) -> None:
        passed.append(point)
        if len(passed) == 5 + 2 * seed:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        sink = staged.sink(fail=die)
        for delivery in deliveries:
            sink.deliver(delivery)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    sink = staged.sink(generation=2)
    rows = found(tmp_path, "select id from results order by id")
    assert rows == [(n,) for n in range(100 * (staged.epoch + 1))], "part of an epoch, or one that its marker does not tell of"
    for delivery in deliveries[staged.epoch + 1 :]:
        sink.deliver(replace(delivery, marker=replace(delivery.marker, generation=2)))
    sink.close()
    assert len(found(tmp_path, "select id from results")) == 2_000

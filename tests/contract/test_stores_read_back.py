"""Every store gives back the rows that it holds: it is compared with what it should hold, and put right (G39)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.plan.outputs import SinkDefinition
from penstock.sinks import delta, duckdb, iceberg, mariadb, parquet, postgres, redis, sqlite
from penstock.sinks import opensearch as opensearch_index
from penstock.sinks.port import Marker
from penstock.sinks.stores.changes import changes_of
from penstock.sinks.stores.comparing import Compared, Comparison
from penstock.sinks.stores.content import Content
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.port import Changes, Legible, Note, Versioned
from penstock.storage.memory import MemoryStorage
from penstock.testing.servers.opensearch import OpenSearchServer
from penstock.testing.servers.valkey import ValkeyServer
from search_kinds import definition_of
from store_kinds import catalog
from stored import LIFE, Staged
from typed_rows import EVERY_TYPE, NULLS, ROW

Define = Callable[[Path, pytest.FixtureRequest], SinkDefinition]
STORES: Mapping[str, Define] = {
    "postgres": lambda place, server: postgres(server.getfixturevalue("postgres").url, f"t{abs(hash(place))}"),
    "mariadb": lambda place, server: mariadb(server.getfixturevalue("mariadb").url("", "root"), f"d{abs(hash(place))}.results"),
    "sqlite": lambda place, _: sqlite(place / "shop.db", "results"),
    "duckdb": lambda place, _: duckdb(place / "warehouse.db", "results"),
    "parquet": lambda place, _: parquet(place / "lake"),
    "delta": lambda place, _: delta(place / "lake"),
    "iceberg": lambda place, _: iceberg("lake", "shop.results", properties=catalog(place)),
    "redis": lambda place, server: redis(server.getfixturevalue("valkey").url, f"t{abs(hash(place))}"),
    "redis-json": lambda place, server: redis(server.getfixturevalue("valkey").url, f"t{abs(hash(place))}", value="json"),
    "fts5": lambda place, _: definition_of("fts5", place),
    "tantivy": lambda place, _: definition_of("tantivy", place),
    "opensearch": lambda place, server: opensearch_index(server.getfixturevalue("opensearch").url, f"t{abs(hash(place))}"),
}
WHOLE = ROW | {"s": 'tab\tline\r\nquote" \\ 日本 end'}  # PostgreSQL takes no zero bytes
Rows = Sequence[Mapping[str, Any]]
CHANGED = '{"id":2,"text":"b","x":1.5}'


class Kept:
    """A store, and what it should hold."""

    def __init__(self, definition: SinkDefinition, schema: str, key: tuple[str, ...], updating: bool) -> None:
        assert isinstance(definition, StoreDefinition)
        self.staged = Staged(definition, schema, key, updating)
        self.content = Content(self.staged.spec, MemoryStorage(), definition.holds, definition.kept)
        self.definition = definition

    def deliver(self, put: Rows, gone: Rows = ()) -> None:
        """An epoch, to the store and to what it should hold."""
        sink = self.staged.sink()
        delivery = self.staged.epoch_of(*put, gone=gone)
        sink.deliver(delivery)
        sink.close()
        self.content.add(changes_of(self.staged.spec, self.staged.storage, delivery.files, self.definition.holds))

    def compared(self, mended: bool = False) -> Compared:
        store = self.definition.store(self.staged.context())
        store.open()
        try:
            with store.transaction() as transaction:
                assert isinstance(transaction, Legible)
                note = transaction.note()
                comparison = Comparison(self.content)
                found = comparison.run(transaction.rows())
                if mended:
                    assert note
                    if isinstance(transaction, Versioned):
                        transaction.mending()
                    assert not transaction.write(replace(comparison.changes, epoch=note.marker.epoch))
                    transaction.keep(note)
            return found
        finally:
            store.close()

    def spoil(self, changes: Changes) -> None:
        """Writes to the store what no epoch has."""
        store = self.definition.store(self.staged.context())
        store.open()
        with store.transaction() as transaction:
            note = transaction.note()
            assert note
            if isinstance(transaction, Versioned):
                transaction.mending()
            transaction.write(replace(changes, epoch=note.marker.epoch))
            transaction.keep(Note(Marker(LIFE, 1, note.marker.epoch)))
        store.close()

    def changes(self, put: Rows, gone: Rows = ()) -> Changes:
        beside = Staged(self.definition, self.staged.schema.ddl(), self.staged.spec.key, self.staged.spec.updating)
        beside.epoch = 7
        return changes_of(beside.spec, beside.storage, beside.epoch_of(*put, gone=gone).files)


def numbers(found: Compared) -> tuple[int, int, int]:
    return found.missing, found.extra, found.different


@pytest.fixture(params=STORES)
def define(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SinkDefinition]:
    return lambda: STORES[request.param](tmp_path, request)


def test_every_type_is_read_back_as_it_was(define: Callable[[], SinkDefinition]) -> None:
    kept = Kept(define(), EVERY_TYPE, ("id",), updating=True)
    kept.deliver([WHOLE | {"id": 1}, NULLS | {"id": 2}, WHOLE | {"id": 3}])
    kept.deliver([WHOLE | {"id": 4}], gone=[{"id": 3}])
    found = kept.compared()
    assert (found.rows, found.expected, *numbers(found), found.ranges_apart) == (3, 3, 0, 0, 0, 0), found.shown


def test_rows_that_differ_are_found_and_put_right(define: Callable[[], SinkDefinition]) -> None:
    kept = Kept(define(), "id long not null, name string, amount double", ("id",), updating=True)
    rows = [{"id": n, "name": f"n{n}", "amount": n / 3} for n in range(50)]
    kept.deliver(rows[:40])
    kept.deliver(rows[40:], gone=[rows[0]])
    kept.spoil(kept.changes([rows[5] | {"name": "other"}, {"id": 99, "name": "more", "amount": 0.0}], [rows[7], rows[8]]))
    found = kept.compared(mended=True)
    assert numbers(found) == (2, 1, 1)
    assert {(each.kind, each.key) for each in found.shown} == {
        ("missing", "7"),
        ("missing", "8"),
        ("extra", "99"),
        ("different", "5"),
    }
    assert [column.name for each in found.shown for column in each.columns] == ["name"]
    assert kept.compared().equal
    kept.deliver([rows[5] | {"name": "newer"}], gone=[rows[6]])  # what was put right is written again
    assert kept.compared().equal


def test_rows_without_a_key_are_counted(define: Callable[[], SinkDefinition]) -> None:
    kept = Kept(define(), "name string, n long", (), updating=False)
    rows = [{"name": "a", "n": 1}, {"name": "a", "n": 1}, {"name": "b", "n": 2}]
    kept.deliver(rows)
    assert kept.compared().equal
    kept.content.add(kept.changes(rows))
    assert numbers(kept.compared(mended=True)) == (3, 0, 0)
    assert kept.compared().equal


@pytest.mark.parametrize("how", [{"value": "hash"}, {"value": "json"}, {"value": "string", "column": "text"}])
def test_what_a_key_of_redis_keeps_of_a_row_is_compared(how: dict[str, Any], valkey: ValkeyServer, tmp_path: Path) -> None:
    kept = Kept(redis(valkey.url, prefix := f"t{abs(hash(tmp_path))}", **how), "id long, text string, x double", ("id",), True)
    values = [("", math.nan), (None, math.inf), ("a", 1.5)]
    kept.deliver([{"id": n, "text": text, "x": x} for n, (text, x) in enumerate(values)])
    found = kept.compared()
    assert numbers(found) == (0, 0, 0), found.shown
    assert found.rows == (2 if "column" in how else 3)
    changed = ("HSET", f"{prefix}:2", "text", "b") if how["value"] == "hash" else ("SET", f"{prefix}:2", CHANGED)
    valkey.ask(*changed)
    assert numbers(kept.compared(mended=True)) == (0, 0, 1)
    assert numbers(kept.compared()) == (0, 0, 0)


@pytest.mark.parametrize("value", ["hash", "json"])
def test_a_key_of_redis_that_holds_the_row_of_another_is_different(value: Any, valkey: ValkeyServer, tmp_path: Path) -> None:
    kept = Kept(redis(valkey.url, prefix := f"t{abs(hash(tmp_path))}", value=value), "id long, text string", ("id",), True)
    kept.deliver([{"id": 1, "text": "a"}])
    spoilt = ("HSET", f"{prefix}:1", "id", 99) if value == "hash" else ("SET", f"{prefix}:1", '{"id":99,"text":"a"}')
    valkey.ask(*spoilt)
    assert not kept.compared().equal
    kept.compared(mended=True)
    assert kept.compared().equal


def test_a_document_that_others_have_changed_too_often_is_named(opensearch: OpenSearchServer, tmp_path: Path) -> None:
    """Its version is ahead of the epochs': the server would take none of ours."""
    index = f"t{abs(hash(tmp_path))}"
    kept = Kept(opensearch_index(opensearch.url, index), "id long, text string", ("id",), True)
    kept.deliver([{"id": 1, "text": "a"}])
    for n in range(2):
        opensearch.ask("POST", f"/{index}/_update/1", {"doc": {"text": f"changed {n}"}})
    store = kept.definition.store(kept.staged.context())
    store.open()
    with store.transaction() as transaction:
        assert isinstance(transaction, Legible)
        assert isinstance(transaction, Versioned)
        transaction.note()
        comparison = Comparison(kept.content)
        assert numbers(comparison.run(list(transaction.rows()))) == (0, 0, 1)
        transaction.mending()
        [refusal] = transaction.write(replace(comparison.changes, epoch=0))
        assert "it was changed beside the flow" in refusal.reason
        transaction.keep(Note(Marker(LIFE, 1, 0)))
    store.close()

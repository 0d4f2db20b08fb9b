"""Search indexes as sinks: the suite, over SQLite's FTS5 and over tantivy."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.sink import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from penstock.views.search import SearchIndex
from search_kinds import definition_of, path_of


class _OfFts5:
    points = POINTS

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return definition_of("fts5", place).build(SinkContext(spec, None, storage, place, fail))  # type: ignore[arg-type]

    def held(self, place: Path) -> list[Row]:
        with contextlib.closing(sqlite3.connect(path_of("fts5", place))) as connection:
            connection.execute(
                "INSERT INTO __words (__words, rank) VALUES ('integrity-check', 1)"
            )  # the words are those of the rows
            rows: list[Row] = connection.execute("SELECT id, text FROM rows ORDER BY id").fetchall()
        with SearchIndex(path_of("fts5", place)) as index:
            for i, text in rows:
                assert i in index.find(text, limit=100)["id"].to_pylist()
        return rows


class TestSearch(_OfFts5, SinkContract):
    def rows(self, place: Path) -> list[Row]:
        return self.held(place)


class TestSearchWithChanges(_OfFts5, ChangesContract):
    def holds(self, place: Path) -> Held:
        return dict(self.held(place))


class _OfTantivy:
    points = POINTS

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return definition_of("tantivy", place).build(SinkContext(spec, None, storage, place, fail))  # type: ignore[arg-type]

    def held(self, place: Path) -> list[Row]:
        """By every text that the suites write."""
        texts = {text.lower() for text in (*"abcdefg", "moved")}
        with SearchIndex(path_of("tantivy", place)) as index:
            found = [row for text in texts for row in index.find(text, limit=100).to_pylist()]
        return sorted((row["id"], row["text"]) for row in found)


class TestTantivy(_OfTantivy, SinkContract):
    def rows(self, place: Path) -> list[Row]:
        return self.held(place)


class TestTantivyWithChanges(_OfTantivy, ChangesContract):
    def holds(self, place: Path) -> Held:
        held = self.held(place)
        assert len(dict(held)) == len(held), "an older row of a key is there, too"
        return dict(held)

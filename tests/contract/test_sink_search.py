"""Search indexes as sinks: the suite, over SQLite's FTS5."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.sinks import search
from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.sink import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from penstock.views.search import SearchIndex


class _OfFts5:
    points = POINTS

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        return search(place / "index.db").build(SinkContext(spec, None, storage, place, fail))  # type: ignore[arg-type]

    def held(self, place: Path) -> list[Row]:
        with contextlib.closing(sqlite3.connect(place / "index.db")) as connection:
            connection.execute(
                "INSERT INTO __words (__words, rank) VALUES ('integrity-check', 1)"
            )  # the words are those of the rows
            rows: list[Row] = connection.execute("SELECT id, text FROM rows ORDER BY id").fetchall()
        with SearchIndex(place / "index.db") as index:
            for i, text in rows:
                assert i in index.find(text, limit=100)["id"].to_pylist()
        return rows


class TestSearch(_OfFts5, SinkContract):
    def rows(self, place: Path) -> list[Row]:
        return self.held(place)


class TestSearchWithChanges(_OfFts5, ChangesContract):
    def holds(self, place: Path) -> Held:
        return dict(self.held(place))

"""Every sink passes the same suite."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.sinks.port import SinkSpec
from penstock.sinks.view import POINTS as VIEW_POINTS
from penstock.sinks.view import ViewSink
from penstock.storage.port import Storage
from penstock.testing.sink_contract import Row, SinkContract


class TestViewSink(SinkContract):
    points = VIEW_POINTS

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> ViewSink:
        return ViewSink(spec, place / "results.db", storage, fail)

    def rows(self, place: Path) -> list[Row]:
        with contextlib.closing(sqlite3.connect(place / "results.db")) as connection:
            versions = "SELECT id, text, __since, __t FROM current UNION ALL SELECT id, text, __since, __t FROM history"
            found: list[Any] = connection.execute(f"SELECT id, text FROM ({versions}) ORDER BY __since, __t").fetchall()
            return found

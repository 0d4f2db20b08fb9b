"""Every sink passes the same suite."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.core.change import Op
from penstock.core.columns import OP
from penstock.log.memory import MemoryLog
from penstock.sinks.port import SinkSpec
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.topic import TopicSink
from penstock.sinks.view import POINTS as VIEW_POINTS
from penstock.sinks.view import ViewSink
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held


class TestViewSink(SinkContract):
    points = VIEW_POINTS

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> ViewSink:
        return ViewSink(spec, place / "results.db", storage, fail)

    def rows(self, place: Path) -> list[Row]:
        with contextlib.closing(sqlite3.connect(place / "results.db")) as connection:
            versions = "SELECT id, text, __since, __t FROM current UNION ALL SELECT id, text, __since, __t FROM history"
            found: list[Any] = connection.execute(f"SELECT id, text FROM ({versions}) ORDER BY __since, __t").fetchall()
            return found


class TestViewSinkWithChanges(ChangesContract):
    points = VIEW_POINTS

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> ViewSink:
        return ViewSink(spec, place / "results.db", storage, fail)

    def holds(self, place: Path) -> Held:
        with contextlib.closing(sqlite3.connect(place / "results.db")) as connection:
            return dict(connection.execute("SELECT id, text FROM current").fetchall())


class TestTopicSink(SinkContract):
    points = TOPIC_POINTS
    partitions = 1
    ordered = True

    def place(self, directory: Path) -> MemoryLog:
        return MemoryLog()

    def make(self, place: MemoryLog, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> TopicSink:
        return TopicSink(spec, place, "results", self.partitions, ("id",), storage, fail)

    def rows(self, place: MemoryLog) -> list[Row]:
        topic = place.topic("results")
        chunks = [chunk for p in range(self.partitions) for chunk in topic.read(p)]
        chunks.sort(key=lambda chunk: chunk.frame.sender.sequence if chunk.frame.sender else -1)
        return [(row["id"], row["text"]) for chunk in chunks for row in chunk.rows.to_pylist()]


class TestTopicSinkWithThreePartitions(TestTopicSink):
    partitions = 3
    whole = False  # atomic per partition
    ordered = False  # within each partition alone


class TestTopicSinkWithChanges(ChangesContract):
    points = TOPIC_POINTS
    partitions = 1

    def place(self, directory: Path) -> MemoryLog:
        return MemoryLog()

    def make(self, place: MemoryLog, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> TopicSink:
        return TopicSink(spec, place, "results", self.partitions, ("id",), storage, fail)

    def holds(self, place: MemoryLog) -> Held:
        held: Held = {}
        for partition in range(self.partitions):
            for chunk in place.topic("results").read(partition):
                changed = [row["id"] for row in chunk.rows.to_pylist()]
                assert len(set(changed)) == len(changed), "two changes of one key in an epoch"
                for row in chunk.rows.to_pylist():
                    held.pop(row["id"], None)
                    held |= {} if row.get(OP) == Op.DELETE else {row["id"]: row["text"]}
        return held


class TestTopicSinkWithChangesInThreePartitions(TestTopicSinkWithChanges):
    partitions = 3

"""Bugs planted in sinks: the contract suite must catch each of them."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log.memory import MemoryLog
from penstock.log.port import Sender
from penstock.sinks.port import Delivery, Marker, SinkSpec
from penstock.sinks.topic import POINTS as TOPIC_POINTS
from penstock.sinks.topic import TopicSink
from penstock.sinks.view import POINTS as VIEW_POINTS
from penstock.sinks.view import ViewSink
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from suites import caught

pytestmark = pytest.mark.faults


class MarkerAfterTheTransaction(ViewSink):
    def _mark(self, connection: Any, delivery: Delivery) -> None:
        self.unmarked = delivery

    def deliver(self, delivery: Delivery) -> None:
        super().deliver(delivery)
        super()._mark(self._used(), self.unmarked)


class MarkerBeforeTheTransaction(ViewSink):
    def _mark(self, connection: Any, delivery: Delivery) -> None:
        pass

    def deliver(self, delivery: Delivery) -> None:
        if self._admitted(delivery.marker) < delivery.marker.epoch:
            super()._mark(self._used(), delivery)
            self._admitted = lambda ours: -1  # type: ignore[method-assign]
        super().deliver(delivery)
        self.__dict__.pop("_admitted", None)


class NoSkip(ViewSink):
    """An epoch that is there already is written again, marker and all."""

    def _admitted(self, ours: Marker) -> int:
        super()._admitted(ours)
        return -1

    def _mark(self, connection: Any, delivery: Delivery) -> None:
        connection.execute("DELETE FROM marker WHERE epoch >= ?", (delivery.marker.epoch,))
        super()._mark(connection, delivery)


class AnyIncarnation(ViewSink):
    def _admitted(self, ours: Marker) -> int:
        return super()._admitted(Marker("life", ours.generation, ours.epoch))


class AnyGeneration(ViewSink):
    def _admitted(self, ours: Marker) -> int:
        return super()._admitted(Marker(ours.incarnation, 2**40, ours.epoch))


class NoTransaction(ViewSink):
    def _transaction(self) -> Any:
        connection = self._used()

        class Open:
            def __enter__(self) -> Any:
                return connection

            def __exit__(self, *_: object) -> None:
                return None

        return Open()


class NoStamp(TopicSink):
    def _append(self, parts: Any, delivery: Delivery) -> None:
        topic = self._used()
        for partition, rows in enumerate(parts):
            topic.append(partition, rows, mark=delivery.frontier)
            self._fail("topic.appended")


class OneEpochForAll(TopicSink):
    """Only the generation is stamped, not the epoch."""

    def _append(self, parts: Any, delivery: Delivery) -> None:
        sender = Sender(self._seen.sender, delivery.marker.generation, 1, gaps=True)
        for partition, rows in enumerate(parts):
            self._used().append(partition, rows, mark=delivery.frontier, sender=sender)
            self._fail("topic.appended")


class NeverLooks(TopicSink):
    """Trusts the log to find what an earlier start appended; but a new generation's frames are new to it."""

    def _fence(self, generation: int) -> bool:
        return True

    def _append(self, parts: Any, delivery: Delivery) -> None:
        self._seen.sequences = dict.fromkeys(self._seen.sequences, -1)
        super()._append(parts, delivery)


class _ViewContract(SinkContract):
    points = VIEW_POINTS

    def __init__(self, kind: type[ViewSink] = ViewSink) -> None:
        self.kind = kind

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> ViewSink:
        return self.kind(spec, place / "results.db", storage, fail)

    def rows(self, place: Path) -> list[Row]:
        with contextlib.closing(sqlite3.connect(place / "results.db")) as connection:
            versions = "SELECT id, text, __since FROM current UNION ALL SELECT id, text, __since FROM history"
            return [(i, t) for i, t, _ in connection.execute(f"SELECT * FROM ({versions}) ORDER BY 3, 1")]


class _TopicContract(SinkContract):
    points = TOPIC_POINTS
    whole = False

    def __init__(self, kind: type[TopicSink] = TopicSink) -> None:
        self.kind = kind

    def place(self, directory: Path) -> MemoryLog:
        return MemoryLog()

    def make(self, place: MemoryLog, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> TopicSink:
        return self.kind(spec, place, "results", 2, ("id",), storage, fail)

    def rows(self, place: MemoryLog) -> list[Row]:
        chunks = [chunk for p in range(2) for chunk in place.topic("results").read(p)]
        chunks.sort(key=lambda chunk: chunk.frame.appended)
        return [(row["id"], row["text"]) for chunk in chunks for row in chunk.rows.to_pylist()]


def test_the_suite_finds_nothing_wrong_with_sinks_that_are_right(tmp_path: Path) -> None:
    assert caught(_ViewContract(), tmp_path / "view") == []
    assert caught(_TopicContract(), tmp_path / "topic") == []


@pytest.mark.parametrize(
    "kind", [MarkerAfterTheTransaction, MarkerBeforeTheTransaction, NoSkip, AnyIncarnation, AnyGeneration, NoTransaction]
)
def test_a_bug_planted_in_the_view_iscaught(kind: type[ViewSink], tmp_path: Path) -> None:
    assert caught(_ViewContract(kind), tmp_path)


@pytest.mark.parametrize("kind", [NoStamp, OneEpochForAll, NeverLooks])
def test_a_bug_planted_in_the_topic_iscaught(kind: type[TopicSink], tmp_path: Path) -> None:
    assert caught(_TopicContract(kind), tmp_path)

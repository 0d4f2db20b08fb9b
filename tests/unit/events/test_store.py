"""An event store in its home: where it is made, what it refuses, and that it is an ordinary topic."""

import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import BadInput, BadRow, OffsetGone, VersionConflict
from penstock.events import NEW, Changes, EventStore
from penstock.log.consumer import records
from penstock.log.file.log import FileLog
from penstock.log.open import open_log
from penstock.log.port import TopicSpec
from penstock.log.producer import Producer
from penstock.testing.contracts.events.samples import EVENTS, Cart, ItemAdded

A = ItemAdded("A")


@pytest.fixture
def store(tmp_path: Path) -> EventStore:
    return EventStore.open("carts", EVENTS, home=tmp_path)


def test_a_store_is_a_topic_that_anybody_can_read(store: EventStore, tmp_path: Path) -> None:
    position = store.append("cart-1", [A], who="ann", at="2024-01-15T10:00:00Z").position
    (record,) = records(open_log(tmp_path).topic("carts"))
    assert record.position == position
    assert record.key == b"cart-1"
    assert isinstance(record.value, dict)
    assert record.value["stream"] == "cart-1"
    assert (record.value["version"], record.value["event"], record.value["number"]) == (1, "ItemAdded", 1)
    assert (record.value["data"], record.value["who"]) == ('{"item":"A","quantity":1}', "ann")


def test_a_store_is_opened_by_several_at_once(store: EventStore, tmp_path: Path) -> None:
    other = EventStore.open("carts", EVENTS, home=tmp_path)
    store.append("cart-1", [A], expected=NEW)
    with pytest.raises(VersionConflict):
        other.append("cart-1", [A], expected=NEW)
    assert other.append("cart-1", [A], expected=1).version == 2
    assert store.load(Cart, "cart-1").items == {"A": 2}


def test_a_topic_of_other_rows_is_no_store(tmp_path: Path) -> None:
    open_log(tmp_path).create(TopicSpec("orders"))
    with pytest.raises(BadInput, match="no event store"):
        EventStore.open("orders", EVENTS, home=tmp_path)


def test_producers_cannot_write_into_a_store(store: EventStore, tmp_path: Path) -> None:
    topic = open_log(tmp_path).topic("carts")
    row = {"stream": "cart-1", "version": 9, "event": "x", "number": 1, "id": "x", "at": "2024-01-15T10:00:00Z", "data": "{}"}
    with pytest.raises(BadInput, match="is an event store"), Producer(topic) as producer:
        producer.send(row)


def test_a_store_keeps_its_number_of_partitions(store: EventStore, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert isinstance(log, FileLog)
    spec = log.topic("carts").spec
    with pytest.raises(BadInput, match="cannot have more partitions"):
        log.alter(replace(spec, partitions=2))
    assert log.alter(replace(spec, retain=timedelta(days=9))).spec.events


def test_streams_of_several_partitions_are_not_appended_to_together(tmp_path: Path) -> None:
    store = EventStore.open("many", EVENTS, home=tmp_path, partitions=8)
    with pytest.raises(BadInput, match="lie in several partitions"):
        store.append_together([Changes(f"cart-{number}", [A]) for number in range(9)])
    assert list(store.streams()) == []


def test_an_event_that_is_too_large_is_refused_alone(store: EventStore) -> None:
    with pytest.raises(BadRow, match="the limit is"):
        store.append("cart-1", [ItemAdded("x" * (1 << 20))])
    store.append("cart-1", [ItemAdded("x" * 1_000_000)])
    with pytest.raises(BadInput, match="too large"):
        store.append("cart-1", [ItemAdded("x" * 1_000_000)] * 40)
    assert store.version("cart-1") == 1


def test_what_retention_took_from_a_stream_is_not_folded(store: EventStore, tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert isinstance(log, FileLog)
    small = FileLog(log.storage, segment_size=1)
    small.alter(replace(small.topic("carts").spec, retain_bytes=1))
    tiny = EventStore.open("carts", EVENTS, log=small)
    for _ in range(3):
        tiny.append("cart-1", [A])
    small.clean("carts")
    assert [e.version for e in store.read("cart-1")] == [3]
    with pytest.raises(OffsetGone, match="begins at version 3"):
        store.load(Cart, "cart-1")


def test_a_conflict_crosses_processes_whole() -> None:
    conflict = copy.copy(VersionConflict("cart-1", "new", 2, [A]))  # as pickle does it
    assert (conflict.stream, conflict.expected, conflict.actual, conflict.missed) == ("cart-1", "new", 2, (A,))
    assert str(conflict).startswith("stream 'cart-1' is at version 2; it was expected to be new")


def test_a_log_that_cannot_compare_holds_no_store() -> None:
    with pytest.raises(BadInput, match="cannot hold an event store"):
        EventStore.open("carts", EVENTS, log="kafka://localhost:1")

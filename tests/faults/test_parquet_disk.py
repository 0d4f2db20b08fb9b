"""A disk that is full, fails or loses power under a Parquet sink: what was delivered is there, once, and nothing in part. (G37)"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import AlreadyThere, PenstockError, SinkUnavailable
from penstock.log.memory import MemoryLog
from penstock.sinks import parquet
from penstock.sinks.port import Sink, SinkContext
from penstock.sinks.stores.files.parquet.compaction import compact, everything, forget
from penstock.sinks.stores.files.parquet.manifest import Manifests
from penstock.sinks.stores.files.parquet.reading import rows_of
from penstock.sinks.stores.files.parquet.store import ParquetStore
from penstock.sinks.stores.sink import StoreSink
from penstock.storage.faulty import Failure, FaultyAppender, FaultyStorage, Kind, Operation
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import EPOCHS, EVERYTHING, SPEC, Crash, Row, delivery, staged_epochs

pytestmark = pytest.mark.faults

WHOLE = [EVERYTHING[: sum(len(rows) for rows in list(EPOCHS.values())[:n])] for n in range(len(EPOCHS) + 1)]


def made(lake: Storage) -> Sink:
    store = ParquetStore(parquet("lake"), SPEC, lake)
    return StoreSink(SinkContext(SPEC, MemoryLog(), staged_epochs(EPOCHS), Path()), store)


def rows(lake: Storage) -> list[Row]:
    found = Manifests(lake).newest()
    return sorted((row["id"], row["text"]) for row in rows_of(lake, found).to_pylist()) if found else []


def resume(lake: Storage, generation: int) -> None:
    sink = made(lake)
    for epoch in range(sink.open("life", generation) + 1, len(EPOCHS)):
        sink.deliver(delivery(epoch, generation))
    sink.close()


class At:
    """Raises Crash before the nth step that changes the disk."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, operation: Operation, path: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash(f"{operation} {path}")


def delivered_until(lake: FaultyStorage, nth: int) -> int | None:
    """How many epochs a driver has seen through when the power goes before the nth step; None if it came to the end."""
    lake.watch, done = At(nth), 0
    try:
        sink = made(lake)
        sink.open("life", 1)
        for epoch in EPOCHS:
            sink.deliver(delivery(epoch))
            done += 1
        return None
    except Crash:
        return done
    finally:
        lake.watch = None


def losses(disk: Callable[[], FaultyStorage]) -> int:
    """Loses the power before every step, with every kind of damage. How many disks were looked at."""
    chance, nth, looked = random.Random(1), 1, 0
    while True:
        lake = disk()
        done = delivered_until(lake, nth)
        if done is None:
            return looked
        for image in lake.images(chance):
            assert rows(image) in WHOLE[done:], f"step {nth}"
            resume(image, 2)
            assert rows(image) == EVERYTHING, f"step {nth}"
            looked += 1
        nth += 1


def test_after_a_power_loss_at_any_step_whole_epochs_are_there() -> None:
    assert losses(FaultyStorage) > 100


def test_after_a_power_loss_while_files_are_compacted_all_rows_are_there() -> None:
    chance, nth = random.Random(1), 0
    while True:
        nth += 1
        lake = FaultyStorage()
        resume(lake, 1)
        lake.watch = At(nth)
        try:
            compact(lake, everything, now=1000.0)
            forget(lake, seconds=60, now=2000.0)
            break
        except Crash:
            for image in lake.images(chance):
                assert rows(image) == EVERYTHING
    assert nth > 5


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
@pytest.mark.parametrize("operation", ["open", "write", "sync", "publish"])
def test_a_disk_that_fails_once_is_an_epoch_that_comes_later(operation: Operation, kind: Kind) -> None:
    nth, met = 1, True
    while met:
        lake, sink = FaultyStorage(), None
        failure = lake.arm(Failure(operation, nth, kind))
        for generation in (1, 2):
            try:
                sink = made(lake)
                for epoch in range(sink.open("life", generation) + 1, len(EPOCHS)):
                    sink.deliver(delivery(epoch, generation))
            except SinkUnavailable:
                assert rows(lake) in WHOLE
        assert rows(lake) == EVERYTHING
        nth, met = nth + 1, bool(failure.met)
    assert nth > 3


class NeverSyncs(FaultyStorage):
    """Planted: data files are not synced before the manifest names them."""

    def append(self, path: str) -> FaultyAppender:
        appender = super().append(path)
        appender.sync = lambda: None  # type: ignore[method-assign]
        return appender


class PublishesOver(FaultyStorage):
    """Planted: a manifest replaces one that is there."""

    def publish(self, path: str, data: bytes) -> None:
        try:
            super().publish(path, data)
        except AlreadyThere:
            self.remove(path)
            super().publish(path, data)


def test_a_manifest_before_its_data_is_caught() -> None:
    with pytest.raises((AssertionError, PenstockError)):
        losses(NeverSyncs)


def taken_over(lake: FaultyStorage) -> None:
    """A driver is replaced while it commits, and then goes on."""
    woken: list[str] = []

    def fail(point: str) -> None:
        if point == "store.marker" and not woken:
            woken.append(point)
            made(lake).open("life", 2)

    store = ParquetStore(parquet("lake"), SPEC, lake)
    old = StoreSink(SinkContext(SPEC, MemoryLog(), staged_epochs(EPOCHS), Path(), fail), store)
    old.open("life", 1)
    with pytest.raises(SinkUnavailable):
        old.deliver(delivery(0))


def test_a_manifest_that_is_not_exclusive_is_caught() -> None:
    taken_over(FaultyStorage())
    with pytest.raises(pytest.fail.Exception):
        taken_over(PublishesOver())

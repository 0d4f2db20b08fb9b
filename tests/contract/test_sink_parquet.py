"""A directory of Parquet files as a sink: the suite, and what is its own: partitions, compaction, readers of all kinds."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from duckdb import connect

from penstock.core.change import Op
from penstock.core.schema import Schema
from penstock.errors import BadInput, NotFound, SinkError, SinkUnavailable
from penstock.log.memory import MemoryLog
from penstock.sinks import parquet, parquet_files, read_parquet
from penstock.sinks.port import Sink, SinkContext, SinkSpec, nothing
from penstock.sinks.stores.files.parquet.compaction import Merges, compact, everything, forget, planned
from penstock.sinks.stores.files.parquet.manifest import KEPT, Manifest, Manifests
from penstock.sinks.stores.files.parquet.reading import rows_of
from penstock.sinks.stores.files.parquet.store import ParquetStore
from penstock.sinks.stores.sink import IDLE, StoreSink
from penstock.storage.local import LocalStorage
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import EPOCHS, EVERYTHING, SPEC, SinkContract, delivery, staged_epochs
from penstock.testing.contracts.sink_changes import ChangesContract
from store_suite import Appending, OfStore, StoreSuite, staged

CHANGING = replace(SPEC, updating=True)
MANIFESTS = [*EPOCHS, *range(max(EPOCHS) + IDLE, 40 * IDLE, IDLE)]  # epochs of which each leaves one


class TestParquet(OfStore, SinkContract):
    kind = "parquet"


class TestParquetAppending(Appending, SinkContract):
    kind = "parquet"


class TestParquetWithChanges(StoreSuite, ChangesContract):
    kind = "parquet"


def changes(epochs: int, keys: int = 50) -> tuple[MemoryStorage, dict[int, str]]:
    """Epochs that set, replace and delete keys, and what holds in the end."""
    storage, held = MemoryStorage(), dict[int, str]()
    for epoch in range(epochs):
        chosen = [(epoch * 7 + i) % keys for i in range(20)]
        ops = [Op.DELETE if i % 5 == 0 else Op.UPDATE_AFTER for i in range(20)]
        staged(storage, epoch, pa.table({"id": chosen, "text": [f"{epoch}"] * 20}, schema=SPEC.schema.arrow), ops)
        for key, op in zip(chosen, ops, strict=True):
            held.pop(key, None)
            held |= {} if op == Op.DELETE else {key: f"{epoch}"}
    return storage, held


def built(place: Storage, spec: SinkSpec, staged: Storage, fail: Callable[[str], None] = nothing) -> Sink:
    """A sink over a storage of any kind, opened."""
    store = ParquetStore(parquet("lake", keep="1 hour"), spec, place)
    sink = StoreSink(SinkContext(spec, MemoryLog(), staged, Path(), fail), store)
    sink.open("life", 1)
    return sink


def held(storage: Storage) -> dict[int, str]:
    rows = rows_of(storage, newest(storage)).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["text"] for row in rows}


def newest(storage: Storage) -> Manifest:
    found = Manifests(storage).newest()
    assert found
    return found


def paths(storage: MemoryStorage) -> set[str]:
    return {path for path in storage.files if path.endswith(".parquet")}


def test_files_stay_few_and_the_rows_are_the_same(tmp_path: Path) -> None:
    storage, holds = changes(60)
    lake = MemoryStorage()
    sink = built(lake, CHANGING, storage)
    for epoch in range(60):
        sink.deliver(delivery(epoch))
    sink.close()
    assert held(lake) == holds
    compact(lake, planned, time.time())
    assert len(newest(lake).data) + len(newest(lake).deletes) < 20
    assert held(lake) == holds
    compact(lake, everything, time.time())
    assert (len(newest(lake).data), newest(lake).deletes) == (1, ())
    assert held(lake) == holds


def test_a_driver_that_commits_while_files_are_compacted_and_the_compaction_both_hold() -> None:
    storage, holds = changes(8)
    lake = MemoryStorage()
    sink = built(lake, CHANGING, storage)
    for epoch in range(6):
        sink.deliver(delivery(epoch))

    def plan(manifest: Manifest) -> Merges:
        sink.deliver(delivery(6))  # behind what the compaction has read
        sink.deliver(delivery(7))
        return everything(manifest)

    assert compact(lake, plan, time.time())
    assert held(lake) == holds
    assert newest(lake).marker == delivery(7).marker
    assert len(newest(lake).data) == 3
    sink.close()


def test_files_that_were_replaced_stay_for_readers_and_then_go() -> None:
    storage, holds = changes(7)
    lake = MemoryStorage()
    sink = built(lake, CHANGING, storage)
    for epoch in range(7):
        sink.deliver(delivery(epoch))
    before = newest(lake)
    compact(lake, everything, now=1000.0)
    forget(lake, seconds=60, now=1030.0)
    assert rows_of(lake, before).num_rows == len(holds)
    forget(lake, seconds=60, now=1061.0)
    assert newest(lake).paths == paths(lake)
    assert held(lake) == holds
    with pytest.raises(NotFound):
        rows_of(lake, before)
    sink.close()


def test_manifests_behind_the_newest_go() -> None:
    lake = MemoryStorage()
    sink = built(lake, SPEC, staged_epochs(EPOCHS))
    for epoch in MANIFESTS:
        sink.deliver(delivery(epoch, files=epoch in EPOCHS))
    sink.close()
    forget(lake, seconds=60, now=time.time())
    assert len(lake.list("_manifests")) == KEPT + 1
    assert sorted(held(lake).items()) == EVERYTHING


def test_what_failed_attempts_left_is_swept_behind_the_next_commit() -> None:
    lake = MemoryStorage()
    sink = built(lake, SPEC, staged_epochs(EPOCHS))
    sink.deliver(delivery(0))
    lake.publish("data/000000000009-0123456789abcdef-00000000.parquet", b"a part of a file")
    lake.publish("data/country=DE/000000000009-0123456789abcdef-00000000.parquet", b"")
    sink.close()
    sink.open("life", 1)
    sink.deliver(delivery(1))
    sink.close()
    assert paths(lake) == newest(lake).paths


def test_a_driver_that_slept_until_its_manifest_had_come_and_gone_writes_nothing() -> None:
    lake, slept = MemoryStorage(), []

    def fail(point: str) -> None:
        if point == "store.marker" and not slept:
            slept.append(point)
            other = StoreSink(
                SinkContext(SPEC, MemoryLog(), staged_epochs(EPOCHS), Path()), ParquetStore(parquet("lake"), SPEC, lake)
            )
            other.open("life", 2)
            for epoch in MANIFESTS:
                other.deliver(delivery(epoch, generation=2, files=epoch in EPOCHS))
            other.close()
            forget(lake, seconds=60, now=time.time())

    old = built(lake, SPEC, staged_epochs(EPOCHS), fail)
    with pytest.raises(SinkUnavailable, match="another driver"):
        old.deliver(delivery(0))
    old.close()
    assert sorted(held(lake).items()) == EVERYTHING
    assert newest(lake).marker == delivery(MANIFESTS[-1], generation=2).marker


def test_duckdb_and_polars_read_the_files_that_count(tmp_path: Path) -> None:
    storage, holds = changes(7)
    sink = built(LocalStorage(tmp_path), CHANGING, storage)
    for epoch in range(7):
        sink.deliver(delivery(epoch))
    sink.close()
    found = parquet_files(tmp_path)
    assert found.epoch == 6
    assert found.deletes
    with connect() as connection:
        assert dict(connection.execute(found.sql).fetchall()) == holds
        compact(LocalStorage(tmp_path), everything, time.time())
        found = parquet_files(tmp_path)
        assert not found.deletes
        assert dict(connection.execute(found.sql).fetchall()) == holds
    frame = pl.read_parquet(list(found.data))
    assert dict(zip(frame["id"], frame["text"], strict=True)) == holds


def test_a_table_without_rows_is_read_by_all(tmp_path: Path) -> None:
    built(LocalStorage(tmp_path), SPEC, MemoryStorage()).close()
    found = parquet_files(tmp_path)
    assert (found.data, read_parquet(tmp_path).to_pylist()) == ((), [])
    with connect() as connection:
        assert connection.execute(found.sql).fetchall() == []
    with pytest.raises(NotFound, match="no manifest"):
        read_parquet(tmp_path / "elsewhere")


def test_partitions_are_directories_and_rows_move_between_them(tmp_path: Path) -> None:
    schema = Schema.of("id long, country string, day date, text string")
    values = ["DE", None, "../../etc", "a/b=c", "", "ü☃" * 100, "DE"]
    rows = pa.table({"id": range(7), "country": values, "day": [None] * 7, "text": ["x"] * 7}, schema=schema.arrow)
    storage, spec = MemoryStorage(), replace(SPEC, schema=schema, updating=True)
    staged(storage, 0, rows, [Op.INSERT] * 7)
    staged(storage, 1, rows.slice(0, 1).set_column(1, "country", pa.array(["FR"])), [Op.UPDATE_AFTER])
    sink = parquet(tmp_path / "lake", partition_by=("country", "day")).build(SinkContext(spec, MemoryLog(), storage, tmp_path))
    sink.open("life", 1)
    sink.deliver(delivery(0))
    sink.deliver(delivery(1))
    sink.close()
    found = {row["id"]: row["country"] for row in read_parquet(tmp_path / "lake").to_pylist()}
    assert found == {**dict(enumerate(values)), 0: "FR"}
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}
    assert "country=DE" in {path.name for path in (tmp_path / "lake" / "data").iterdir()}
    assert len(parquet_files(tmp_path / "lake").data) == 7


@pytest.mark.parametrize(("by", "what"), [("amount", "no string, whole number"), ("nowhere", "no column"), (("id", "id"), "twice")])
def test_columns_that_do_not_partition_are_refused(by: str | tuple[str, ...], what: str, tmp_path: Path) -> None:
    spec = replace(SPEC, schema=Schema.of("id long, amount double"))
    with pytest.raises(BadInput, match=what):
        parquet(tmp_path, partition_by=by).build(SinkContext(spec, MemoryLog(), MemoryStorage(), tmp_path))


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (replace(SPEC, flow="other"), "belongs to sink results of flow contract"),
        (replace(SPEC, name="other"), "belongs to sink results of flow contract"),
        (replace(SPEC, key=("text",)), "has key id, not text"),
        (replace(SPEC, schema=Schema.of("id int, text string")), "is long, not int"),
    ],
)
def test_a_directory_that_was_made_for_something_else_is_refused(spec: SinkSpec, what: str, tmp_path: Path) -> None:
    lake = LocalStorage(tmp_path)
    built(lake, SPEC, MemoryStorage()).close()
    with pytest.raises(SinkError, match=what):
        built(lake, spec, MemoryStorage())

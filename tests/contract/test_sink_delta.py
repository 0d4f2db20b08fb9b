"""A Delta table as a sink: the suite, and what is its own: one commit an epoch, other writers, tables that are there."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import SinkError, SinkUnavailable
from penstock.log.memory import MemoryLog
from penstock.sinks import delta
from penstock.sinks.port import Sink, SinkContext, SinkSpec
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import EPOCHS, EVERYTHING, SPEC, Row, SinkContract, delivery, staged_epochs
from penstock.testing.contracts.sink_changes import CHANGES, CHANGING, ChangesContract, staged_changes
from store_suite import Appending, OfStore, StoreSuite


class OfDelta(OfStore):
    kind = "delta"

    def rows(self, place: Path) -> list[Row]:
        return sorted(super().rows(place))  # files have no order; ids come in that of epochs


class TestDelta(OfDelta, SinkContract):
    pass


class TestDeltaAppending(Appending, OfDelta, SinkContract):
    ordered = False


class TestDeltaWithChanges(OfDelta, StoreSuite, ChangesContract):
    pass


def built(place: Path, storage: MemoryStorage, spec: SinkSpec = SPEC, **options: str) -> Sink:
    return delta(place, **options).build(SinkContext(spec, MemoryLog(), storage, place))  # type: ignore[arg-type]


def ids(place: Path) -> list[int]:
    return sorted(pl.read_delta(str(place))["id"])


def test_an_epoch_of_inserts_updates_and_deletes_is_one_commit(tmp_path: Path) -> None:
    sink = built(tmp_path, staged_changes(), CHANGING)
    sink.open("life", 1)
    for epoch, (_, _, held) in CHANGES.items():
        before = DeltaTable(tmp_path).version()
        sink.deliver(delivery(epoch))
        assert DeltaTable(tmp_path).version() == before + 1
        assert ids(tmp_path) == sorted(held)
    assert DeltaTable(tmp_path).transaction_version("penstock/contract/results/life") == max(CHANGES)
    sink.close()


def test_the_marker_outlives_the_log_that_it_was_written_to(tmp_path: Path) -> None:
    """Checkpoints carry application transactions on."""
    sink = built(tmp_path, staged_epochs(EPOCHS))
    sink.open("life", 1)
    for epoch in EPOCHS:
        sink.deliver(delivery(epoch))
    sink.close()
    table = DeltaTable(tmp_path)
    table.create_checkpoint()
    for file in (tmp_path / "_delta_log").glob("*.json"):
        if int(file.stem) < table.version():
            file.unlink()
    sink = built(tmp_path, staged_epochs(EPOCHS))
    assert sink.open("life", 2) == max(EPOCHS)
    sink.close()


def test_a_table_that_others_write_to_as_well_takes_epochs_in_between(tmp_path: Path) -> None:
    """Another writer makes the epoch that is on its way fail; it is given again."""
    others: list[str] = []

    def fail(point: str) -> None:
        if point == "store.marker" and not others:
            others.append(point)
            write_deltalake(tmp_path, pa.table({"id": [100], "text": ["theirs"]}), mode="append")

    context = SinkContext(SPEC, MemoryLog(), staged_epochs(EPOCHS), tmp_path, fail)
    sink = delta(tmp_path).build(context)
    sink.open("life", 1)
    with pytest.raises(SinkUnavailable, match="somebody else"):
        sink.deliver(delivery(0))
    assert sink.open("life", 1) == -1
    for epoch in EPOCHS:
        sink.deliver(delivery(epoch))
        DeltaTable(tmp_path).optimize.compact()
    sink.close()
    assert ids(tmp_path) == [*(i for i, _ in EVERYTHING), 100]


def test_two_sinks_may_write_one_table(tmp_path: Path) -> None:
    for name in ("one", "two"):
        sink = built(tmp_path, staged_epochs(EPOCHS), replace(SPEC, name=name, key=()))
        assert sink.open(f"life of {name}", 1) == -1
        sink.deliver(delivery(0, incarnation=f"life of {name}"))
        sink.close()
    assert ids(tmp_path) == [1, 1, 2, 2]


def test_partitions_and_columns_of_others_stay(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, pa.schema([("more", pa.int32()), ("text", pa.string()), ("id", pa.int64())]), partition_by="text")
    sink = built(tmp_path, staged_changes(), CHANGING)
    sink.open("life", 1)
    for epoch in CHANGES:
        sink.deliver(delivery(epoch))
    sink.close()
    assert ids(tmp_path) == sorted(CHANGES[max(CHANGES)][2])
    assert DeltaTable(tmp_path).metadata().partition_columns == ["text"]


def test_a_table_that_is_made_is_partitioned(tmp_path: Path) -> None:
    sink = built(tmp_path, staged_epochs(EPOCHS), partition_by="text")
    sink.open("life", 1)
    for epoch in range(6):
        sink.deliver(delivery(epoch, files=epoch in EPOCHS))
    sink.close()
    assert {path.name for path in tmp_path.glob("text=*")} == {f"text={text}" for _, text in EVERYTHING}
    assert ids(tmp_path) == [i for i, _ in EVERYTHING]


def test_a_table_whose_column_has_another_type_is_refused(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, pa.schema([("id", pa.int32()), ("text", pa.string())]))
    with pytest.raises(SinkError, match="is integer, not long"):
        built(tmp_path, MemoryStorage()).open("life", 1)


def test_a_row_that_the_table_refuses_stops_the_sink(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SPEC.schema.arrow).alter.add_constraint({"few": "id < 4"})
    sink = built(tmp_path, staged_epochs(EPOCHS))
    sink.open("life", 1)
    sink.deliver(delivery(0))
    sink.deliver(delivery(1))
    with pytest.raises(SinkError) as refused:
        sink.deliver(delivery(2))
    assert not isinstance(refused.value, SinkUnavailable)
    sink.close()
    assert ids(tmp_path) == [1, 2, 3]

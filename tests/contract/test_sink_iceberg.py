"""An Iceberg table of a catalog in SQLite as a sink: the suite, and what is its own: one commit an epoch, many keys, snapshots."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from penstock.core.change import Op
from penstock.errors import BadInput, SinkError
from penstock.log.memory import MemoryLog
from penstock.sinks import iceberg
from penstock.sinks.port import Sink, SinkContext, SinkSpec
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import EPOCHS, EVERYTHING, SPEC, Row, SinkContract, delivery, staged_epochs
from penstock.testing.contracts.sink_changes import CHANGES, CHANGING, ChangesContract, staged_changes
from store_kinds import catalog
from store_suite import Appending, OfStore, StoreSuite, staged


class OfIceberg(OfStore):
    kind = "iceberg"

    def rows(self, place: Path) -> list[Row]:
        return sorted(super().rows(place))  # files have no order; ids come in that of epochs


class TestIceberg(OfIceberg, SinkContract):
    pass


class TestIcebergAppending(Appending, OfIceberg, SinkContract):
    ordered = False


class TestIcebergWithChanges(OfIceberg, StoreSuite, ChangesContract):
    pass


def built(place: Path, storage: MemoryStorage, spec: SinkSpec = SPEC, **options: str) -> Sink:
    definition = iceberg("lake", "shop.results", properties=catalog(place), **options)  # type: ignore[arg-type]
    return definition.build(SinkContext(spec, MemoryLog(), storage, place))


@contextmanager
def table(place: Path) -> Iterator[Table]:
    with load_catalog("lake", **catalog(place)) as found:
        yield found.load_table("shop.results")


def test_an_epoch_of_inserts_updates_and_deletes_is_one_commit(tmp_path: Path) -> None:
    sink = built(tmp_path, staged_changes(), CHANGING)
    sink.open("life", 1)
    for epoch, (_, _, held) in CHANGES.items():
        with table(tmp_path) as before:
            sink.deliver(delivery(epoch))
        with table(tmp_path) as after:
            assert after.metadata.metadata_log[-1].metadata_file == before.metadata_location
            assert sorted(after.scan().to_arrow()["id"].to_pylist()) == sorted(held)
    sink.close()


def test_more_keys_than_are_listed_are_replaced_exactly(tmp_path: Path) -> None:
    storage, count = MemoryStorage(), 3000
    for epoch, ids in enumerate([range(count), range(0, count, 2)]):
        rows = {"id": ids, "text": [str(epoch)] * len(ids)}
        staged(storage, epoch, pa.table(rows, schema=SPEC.schema.arrow), [Op.UPDATE_AFTER] * len(ids))
    sink = built(tmp_path, storage, CHANGING)
    sink.open("life", 1)
    sink.deliver(delivery(0))
    sink.deliver(delivery(1))
    sink.close()
    with table(tmp_path) as found:
        rows = found.scan().to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True)) == {i: str(1 - i % 2) for i in range(count)}
    assert rows.num_rows == count


def test_old_snapshots_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sinks.stores.files.iceberg.MOST_SNAPSHOTS", 10)
    sink = built(tmp_path, staged_epochs(EPOCHS), keep="0 seconds")
    sink.open("life", 1)
    for epoch in range(15):
        sink.deliver(delivery(epoch, files=epoch in EPOCHS))
    sink.close()
    with table(tmp_path) as found:
        assert len(found.metadata.snapshots) <= 10
        assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [i for i, _ in EVERYTHING]


def test_a_table_whose_column_has_another_type_is_refused(tmp_path: Path) -> None:
    with load_catalog("lake", **catalog(tmp_path)) as found:
        found.create_namespace("shop")
        found.create_table("shop.results", schema=pa.schema([("id", pa.int32()), ("text", pa.string())]))
    with pytest.raises(SinkError, match="is int32, not int64"):
        built(tmp_path, MemoryStorage()).open("life", 1)


def test_a_secret_is_given_by_reference(tmp_path: Path) -> None:
    for properties in ({"token": "abc"}, {"s3.secret-access-key": "abc"}, {"uri": "postgresql://me:abc@db/catalog"}):
        with pytest.raises(BadInput) as refused:
            iceberg("lake", "shop.results", properties=properties)
        assert "abc" not in str(refused.value)
    assert "env:TOKEN" not in repr(iceberg("lake", "shop.results", properties={"token": "env:TOKEN"}))
    with pytest.raises(BadInput, match="namespace"):
        iceberg("lake", "results")

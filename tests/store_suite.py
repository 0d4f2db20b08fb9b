"""What every store of files must hold beside the contract of sinks: all types, any names, columns that come, late drivers."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME
from penstock.core.position import source_positions
from penstock.core.schema import Schema
from penstock.errors import Mismatch, PenstockError, SinkUnavailable
from penstock.sinks.port import Sink, SinkSpec
from penstock.sinks.stores.sink import POINTS
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import EPOCHS, SPEC, Row, delivery, ipc_file, staged_epochs
from penstock.testing.contracts.sink_changes import Held
from store_kinds import EVERY

TYPES = Schema.of(
    "id long not null, yes boolean, tiny tinyint, small smallint, whole int, big long, real float, exact double, word string, "
    "bytes binary, day date, moment timestamp, price decimal(38,18), words array<string>, counts map<string,long>, "
    "place struct<lat:double,names:array<string>>"
)
VALUES: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "yes": [True, None, False],
    "tiny": [-128, None, 127],
    "small": [-(2**15), None, 2**15 - 1],
    "whole": [-(2**31), None, 2**31 - 1],
    "big": [-(2**63), None, 2**63 - 1],
    "real": [1.5, None, float("nan")],
    "exact": [float("-inf"), None, float("nan")],
    "word": ["", None, "'\"\\\n\tü☃\U0001f600; DROP TABLE results"],
    "bytes": [b"", None, bytes(range(256))],
    "day": [date(1, 1, 1), None, date(2262, 4, 12)],
    "moment": [datetime(1970, 1, 1, tzinfo=UTC), None, datetime(2026, 11, 17, 23, 59, 59, 999999, UTC)],
    "price": [Decimal("-99999999999999999999.999999999999999999"), None, Decimal("0.000000000000000001")],
    "words": [[], None, ["a", None, "ü"]],
    "counts": [[], None, [("a", 1), ("b", None)]],
    "place": [{"lat": 1.5, "names": ["x"]}, None, {"lat": None, "names": []}],
}
NAMES = ("select", "at", "order", "Größe", "表", "values", "t", "k", "key", "table", "x" * 60)


def staged(storage: MemoryStorage, epoch: int, rows: pa.Table, ops: list[Op] | None = None) -> None:
    """An epoch with these rows, in the one file of two that a delivery names."""
    numbers = pa.array(range(epoch * 1000, epoch * 1000 + rows.num_rows), pa.int64())
    rows = rows.append_column(TIME, numbers).append_column(POSITION, source_positions("in", 0, numbers.to_numpy()))
    if ops is not None:
        rows = rows.append_column(OP, pa.array([int(op) for op in ops], pa.int8()))
    storage.publish(f"{epoch}/0.arrow", ipc_file(rows))
    storage.publish(f"{epoch}/1.arrow", ipc_file(rows.slice(0, 0)))


class OfStore:
    """How the suites make and read a store. Name the kind."""

    kind: ClassVar[str]
    points = POINTS

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Sink:
        return EVERY[self.kind].make(place, spec, storage, fail)

    def table(self, place: Path) -> pa.Table:
        return EVERY[self.kind].read(place)

    def rows(self, place: Path) -> list[Row]:
        return [(row["id"], row["text"]) for row in self.table(place).to_pylist()]

    def holds(self, place: Path) -> Held:
        rows = self.rows(place)
        assert len(dict(rows)) == len(rows), "a key is there twice"
        return dict(rows)


class Appending(OfStore):
    """Rows without a key, so that one that is written twice is there twice."""

    ordered: ClassVar[bool] = True

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Sink:
        return super().make(place, replace(spec, key=()), storage, fail)


class StoreSuite(OfStore):
    """The tests."""

    def delivered(self, place: Path, spec: SinkSpec, storage: Storage, *epochs: int, generation: int = 1) -> None:
        sink = EVERY[self.kind].make(place, spec, storage)
        sink.open("life", generation)
        for epoch in epochs:
            sink.deliver(delivery(epoch, generation))
        sink.close()

    def test_every_type_comes_back_as_it_was(self, tmp_path: Path) -> None:
        storage, spec, given = MemoryStorage(), replace(SPEC, schema=TYPES, key=("id",)), pa.table(VALUES, schema=TYPES.arrow)
        staged(storage, 0, given)
        self.delivered(tmp_path, spec, storage, 0)
        found = pa.table([self.table(tmp_path)[f.name].cast(f.type) for f in TYPES], schema=TYPES.arrow).sort_by("id")
        assert str(found.to_pylist()) == str(given.to_pylist())  # NaN is not equal to itself

    @pytest.mark.parametrize("key", [(), ("at", "表")])
    def test_columns_may_have_any_name(self, key: tuple[str, ...], tmp_path: Path) -> None:
        schema = Schema.of(", ".join(f"{name} string" for name in NAMES))
        storage, spec = MemoryStorage(), replace(SPEC, schema=schema, key=key, updating=bool(key))
        given = pa.table({name: [f"{name} 1", f"{name} 2"] for name in NAMES}, schema=schema.arrow)
        staged(storage, 0, given, [Op.INSERT, Op.INSERT] if key else None)
        staged(storage, 1, given.slice(0, 1), [Op.DELETE] if key else None)
        self.delivered(tmp_path, spec, storage, 0, 1)
        found = sorted(row["select"] for row in self.table(tmp_path).select(list(NAMES)).to_pylist())
        assert found == (["select 2"] if key else ["select 1", "select 1", "select 2"])

    def test_a_column_that_the_flow_gains_is_null_in_older_rows(self, tmp_path: Path) -> None:
        storage, more = MemoryStorage(), replace(SPEC, schema=Schema.of("id long, text string, price decimal(10,2)"))
        staged(storage, 0, pa.table({"id": [1, 2], "text": ["a", "b"]}, schema=SPEC.schema.arrow))
        staged(storage, 1, pa.table({"id": [2, 3], "text": ["B", "c"], "price": [Decimal("1.50"), None]}, schema=more.schema.arrow))
        self.delivered(tmp_path, SPEC, storage, 0)
        self.delivered(tmp_path, more, storage, 1, generation=2)
        found = {row["id"]: (row["text"], row["price"]) for row in self.table(tmp_path).to_pylist()}
        assert found == {1: ("a", None), 2: ("B", Decimal("1.50")), 3: ("c", None)}

    def test_a_key_of_several_columns_may_be_null_and_nan(self, tmp_path: Path) -> None:
        schema, nan = Schema.of("a string, b double, c timestamp, text string"), float("nan")
        storage, spec = MemoryStorage(), replace(SPEC, schema=schema, key=("a", "b", "c"), updating=True)
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        keys = [("x", 1.0, moment), ("x", None, moment), (None, nan, None), ("y", 1.0, moment), (None, None, None)]
        rows = [dict(zip("abc", key, strict=True)) | {"text": "old"} for key in keys]
        staged(storage, 0, pa.Table.from_pylist(rows, schema=schema.arrow), [Op.INSERT] * 5)
        changed = [rows[0] | {"text": "new"}, rows[1], rows[2] | {"text": "new"}, rows[4]]
        ops = [Op.UPDATE_AFTER, Op.DELETE, Op.UPDATE_AFTER, Op.DELETE]
        staged(storage, 1, pa.Table.from_pylist(changed, schema=schema.arrow), ops)
        self.delivered(tmp_path, spec, storage, 0, 1)
        found = sorted((str(row["a"]), str(row["b"]), row["text"]) for row in self.table(tmp_path).to_pylist())
        assert found == [("None", "nan", "new"), ("x", "1.0", "new"), ("y", "1.0", "old")]

    @pytest.mark.parametrize("point", ["store.begun", "store.rows", "store.marker"])
    def test_a_driver_that_wakes_up_in_its_epoch_writes_nothing(self, point: str, tmp_path: Path) -> None:
        """Another takes over while it is about to commit: its commit fails, and so does what it tries behind it. A store in which
        the first holds a lock by then lets the other wait."""
        taken: list[bool] = []

        def fail(passed: str) -> None:
            if passed == point and not taken:
                taken.append(self._takes_over(tmp_path))

        old = self.make(tmp_path, SPEC, staged_epochs(EPOCHS), fail)
        old.open("life", 1)
        with pytest.raises(PenstockError) if point != "store.marker" else suppress(PenstockError):
            old.deliver(delivery(0))
        assert taken == [True] or self._takes_over(tmp_path)
        with pytest.raises(Mismatch):
            old.deliver(delivery(2))
        old.close()
        assert sorted(self.rows(tmp_path)) == [*EPOCHS[0], *EPOCHS[1]]

    def _takes_over(self, place: Path) -> bool:
        try:
            self.delivered(place, SPEC, staged_epochs(EPOCHS), 0, 1, generation=2)
        except SinkUnavailable:
            return False
        return True

    def test_a_reader_sees_whole_epochs_alone(self, tmp_path: Path) -> None:
        """Each epoch gives all keys its own number; whoever looks meanwhile finds all of them with one number."""
        keys, epochs, storage, spec = 500, 8, MemoryStorage(), replace(SPEC, updating=True)
        for epoch in range(epochs):
            rows = {"id": range(keys), "text": [str(epoch)] * keys}
            staged(storage, epoch, pa.table(rows, schema=SPEC.schema.arrow), [Op.UPDATE_AFTER if epoch else Op.INSERT] * keys)
        self.delivered(tmp_path, spec, storage, 0)
        writer = threading.Thread(target=self.delivered, args=(tmp_path, spec, storage, *range(1, epochs)))
        writer.start()
        looks = 0
        while writer.is_alive() or not looks:
            held = self.holds(tmp_path)
            assert len(held) == keys
            assert len(set(held.values())) == 1
            looks += 1
        writer.join()
        assert set(self.holds(tmp_path).values()) == {str(epochs - 1)}

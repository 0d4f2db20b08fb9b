"""What every sink must pass to take part in exactly-once. Subclass `SinkContract`, say how your sink is made and read, run pytest.

    class TestMySink(SinkContract):
        points = ("mine.begun", "mine.committed")

        def make(self, place, spec, storage, fail):
            return MySink(spec, place / "mine", storage, fail)

        def rows(self, place):
            return [(row.id, row.text) for row in read_all(place / "mine")]

The sink must call `fail(point)` at each of its points; the suite crashes it there, opens it again and delivers again, as the
engine does. A sink that keeps rows in an order sets `ordered = True`: it is the order of `penstock.sinks.staged.in_order`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from penstock.core.columns import ADDRESS, POSITION, TIME, WATERMARK
from penstock.core.position import source_positions
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import Mismatch, SinkError
from penstock.sinks.port import Delivery, Marker, Sink, SinkSpec, nothing
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage

Row = tuple[int, str]
Epochs = Mapping[int, list[Row]]

SPEC = SinkSpec("contract", "results", Schema.of("id long, text string"), ("id",))
EPOCHS: Epochs = {0: [(1, "a"), (2, "b")], 1: [(3, "c")], 2: [(4, "d"), (5, "e"), (6, "f")], 3: [(7, "g")]}
EVERYTHING = [row for rows in EPOCHS.values() for row in rows]


class Crash(BaseException):
    """The process ends here. Not an Exception: no sink may take it for an error that it can handle."""


def staged(rows: list[Row]) -> bytes:
    """An Arrow IPC file as the engine stages it."""
    return ipc_file(staged_table(rows))


def staged_table(rows: list[Row]) -> pa.Table:
    """Rows as they travel; the time and position of each are its id."""
    ids = pa.array([i for i, _ in rows], pa.int64())
    columns: dict[str, pa.Array] = {"id": ids, "text": pa.array([text for _, text in rows], pa.string()), TIME: ids}
    columns |= {WATERMARK: pa.array([NEVER] * len(rows), pa.int64()), POSITION: source_positions("in", 0, ids.to_numpy())}
    return pa.table(columns)


def ipc_file(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def staged_epochs(epochs: Epochs) -> MemoryStorage:
    """Two files an epoch, as two tasks would leave them."""
    storage = MemoryStorage()
    for epoch, rows in epochs.items():
        storage.publish(f"{epoch}/0.arrow", staged(rows[::2]))
        storage.publish(f"{epoch}/1.arrow", staged(rows[1::2]))
    return storage


def delivery(epoch: int, generation: int = 1, incarnation: str = "life", files: bool = True) -> Delivery:
    marker = Marker(incarnation, generation, epoch)
    names = (f"{epoch}/0.arrow", f"{epoch}/1.arrow") if files else ()
    return Delivery(marker, names, frontier=epoch * 10, inputs={"in": {0: epoch * 10}}, clock=epoch * 1_000_000)


class CrashAt:
    """Raises Crash when a point is passed for the n-th time; counts what was passed."""

    def __init__(self, point: str, nth: int = 1) -> None:
        self.point, self.nth, self.passed = point, nth, 0

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.passed += 1
            if self.passed == self.nth:
                raise Crash(point)


class SinkContract(ABC):
    """The tests. Each gets a fresh place."""

    points: ClassVar[tuple[str, ...]] = ()
    whole: ClassVar[bool] = True  # an epoch that was cut short cannot be seen at all; False: atomic per partition
    ordered: ClassVar[bool] = False  # `rows` gives the rows of an epoch in the order in which the sink keeps them

    @abstractmethod
    def make(self, place: Any, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Sink:
        """A new sink over whatever is at this place."""

    @abstractmethod
    def rows(self, place: Any) -> list[Row]:
        """Everything that was ever written there: id and text, doubled rows included, in the order of epochs where there is one."""

    def place(self, directory: Path) -> Any:
        """Where the sink keeps its things: the directory, or something that stands for it."""
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def opened(
        self, place: Any, generation: int = 1, fail: Callable[[str], None] = nothing, storage: Storage | None = None
    ) -> Sink:
        sink = self.make(place, SPEC, storage or staged_epochs(EPOCHS), fail)
        sink.open("life", generation)
        return sink

    def resume(self, place: Any, generation: int, until: int = max(EPOCHS)) -> None:
        """What the engine does at a start: asks for the last epoch and delivers those after it."""
        sink = self.make(place, SPEC, staged_epochs(EPOCHS), nothing)
        for epoch in range(sink.open("life", generation) + 1, until + 1):
            sink.deliver(delivery(epoch, generation))
        sink.close()

    def _last(self, place: Any, generation: int) -> int:
        """The last epoch that a start finds."""
        sink = self.make(place, SPEC, MemoryStorage(), nothing)
        epoch = sink.open("life", generation)
        sink.close()
        return epoch

    def test_a_new_sink_has_no_epoch(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "new")
        for _ in range(2):
            sink = self.make(place, SPEC, staged_epochs(EPOCHS), nothing)
            assert sink.open("life", 1) == -1
            sink.close()
        assert self.rows(place) == []

    def test_epochs_arrive_once_and_in_order(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "order")
        for epoch, rows in EPOCHS.items():
            self.resume(place, generation=epoch + 1, until=epoch)
            assert sorted(self.rows(place)[-len(rows) :]) == rows
        assert sorted(self.rows(place)) == EVERYTHING
        assert self._last(place, 9) == max(EPOCHS)

    def test_a_crash_at_any_point_loses_nothing_and_doubles_nothing(self, tmp_path: Path) -> None:
        assert self.points, "name the points at which the sink can be crashed"
        for point in self.points:
            nth = 1
            while self._crash_and_resume(self.place(tmp_path / f"{point}-{nth}"), CrashAt(point, nth)):
                nth += 1
            assert nth > 1, f"{point} is never passed"

    def _crash_and_resume(self, place: Any, crash: CrashAt) -> bool:
        """False if the sink came to the end without passing the point so many times."""
        sink, crashed = self.opened(place, 1, crash), False
        try:
            self._deliver_all(sink)
        except Crash:
            crashed = True
        if self.whole:
            last = self._last(place, 2)
            there = [row for epoch, rows in EPOCHS.items() if epoch <= last for row in rows]
            assert sorted(self.rows(place)) == there, f"rows and marker are not of one epoch after {crash.point}"
        self.resume(place, generation=2)
        assert sorted(self.rows(place)) == EVERYTHING, f"after a crash at {crash.point}, passed {crash.nth} times"
        sink.close()
        return crashed

    def _deliver_all(self, sink: Sink) -> None:
        for epoch in EPOCHS:
            sink.deliver(delivery(epoch))

    def test_an_epoch_delivered_again_changes_nothing(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "again")
        sink = self.opened(place)
        for epoch in EPOCHS:
            sink.deliver(delivery(epoch))
            before = self.rows(place)
            for earlier in range(epoch + 1):
                sink.deliver(delivery(earlier))
            assert self.rows(place) == before
        sink.close()
        later = self.opened(place, generation=2)
        for epoch in EPOCHS:
            later.deliver(delivery(epoch, generation=2))
        assert sorted(self.rows(place)) == EVERYTHING
        later.close()

    def test_an_epoch_it_has_is_skipped_without_its_files(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "swept")
        self.resume(place, generation=1)
        sink = self.opened(place, generation=2, storage=MemoryStorage())
        for epoch in EPOCHS:
            sink.deliver(delivery(epoch, generation=2))
        assert sorted(self.rows(place)) == EVERYTHING
        sink.close()

    def test_a_lower_generation_is_refused(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "generation")
        old = self.opened(place, generation=1)
        old.deliver(delivery(0, generation=1))
        self.resume(place, generation=2, until=1)
        before = self.rows(place)
        with pytest.raises(Mismatch):
            old.deliver(delivery(2, generation=1))
        with pytest.raises(Mismatch):
            self.opened(place, generation=1)
        assert self.rows(place) == before
        old.close()

    def test_another_incarnation_is_refused(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "incarnation")
        self.resume(place, generation=1, until=1)
        before = self.rows(place)
        stranger = self.make(place, SPEC, staged_epochs(EPOCHS), nothing)
        with pytest.raises(Mismatch) as refused:
            stranger.open("another life", 5)
        assert refused.value.hint, "say how to start over"
        mine = self.opened(place, generation=2)
        with pytest.raises(Mismatch):
            mine.deliver(delivery(2, generation=2, incarnation="another life"))
        assert self.rows(place) == before
        mine.close()
        stranger.close()

    def test_an_error_leaves_the_sink_as_it_was(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "error")
        storage = staged_epochs(EPOCHS)
        lost = storage.files.pop("2/1.arrow")
        sink = self.opened(place, storage=storage)
        sink.deliver(delivery(0))
        sink.deliver(delivery(1))
        before = self.rows(place)
        with pytest.raises(SinkError):
            sink.deliver(delivery(2))
        assert self.rows(place) == before
        storage.files["2/1.arrow"] = lost[: len(lost) // 2]
        with pytest.raises(SinkError):
            sink.deliver(delivery(2))
        assert self.rows(place) == before
        storage.files["2/1.arrow"] = lost
        sink.deliver(delivery(2))
        sink.deliver(delivery(3))
        assert sorted(self.rows(place)) == EVERYTHING
        sink.close()

    def test_rows_of_an_epoch_stand_in_the_order_of_the_log_and_made_ones_by_time(self, tmp_path: Path) -> None:
        """Where the sink keeps an order: it is no matter which task staged a row, or that its time is older. (G25)"""
        if not self.ordered:
            pytest.skip("this sink keeps no order")
        place, storage, stays = self.place(tmp_path / "order"), MemoryStorage(), [(9, "a"), (2, "b"), (7, "c"), (1, "d")]
        for n in (0, 1):
            addresses = pa.array([10 * i for i in range(len(stays))][n::2], pa.int64())
            storage.publish(f"0/{n}.arrow", ipc_file(staged_table(stays[n::2]).append_column(ADDRESS, addresses)))
            storage.publish(f"1/{n}.arrow", staged(stays[n::2]))
        sink = self.opened(place, storage=storage)
        sink.deliver(delivery(0))
        assert self.rows(place) == stays
        sink.deliver(delivery(1))
        assert self.rows(place) == [*stays, *sorted(stays)]
        sink.close()

    def test_epochs_without_rows_pass(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "empty")
        sink = self.opened(place, storage=staged_epochs({0: [], 2: [(1, "a")], 5: []}))
        for epoch in range(6):
            sink.deliver(delivery(epoch, files=epoch in (0, 2, 5)))
        sink.close()
        assert self.rows(place) == [(1, "a")]
        assert self._last(place, 2) == 5

"""What every sink must pass that takes rows that change. Subclass `ChangesContract` beside `SinkContract`, and run pytest.

The sink gets inserts, updates and deletes by key, half of an update without the other, and a row that one task takes out and
another puts in; it is crashed at each of its points, opened again and given again what it lacks. What holds at the end is the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from penstock.core.change import Op
from penstock.core.columns import OP
from penstock.sinks.port import Sink, SinkSpec, Together, nothing
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import SPEC, Crash, CrashAt, delivery, ipc_file, staged_table

Change = tuple[Op, int, str]
Held = dict[int, str]

CHANGING = replace(SPEC, updating=True)
# Per epoch what two tasks say, and what holds after it.
CHANGES: Mapping[int, tuple[list[Change], list[Change], Held]] = {
    0: ([(Op.INSERT, 1, "a"), (Op.INSERT, 2, "b")], [(Op.INSERT, 3, "c")], {1: "a", 2: "b", 3: "c"}),
    1: ([(Op.UPDATE_BEFORE, 1, "a"), (Op.UPDATE_AFTER, 1, "A")], [(Op.DELETE, 3, "c")], {1: "A", 2: "b"}),
    2: ([(Op.UPDATE_BEFORE, 2, "b")], [(Op.INSERT, 3, "C")], {1: "A", 3: "C"}),  # the other half was filtered away
    3: ([(Op.INSERT, 1, "moved")], [(Op.DELETE, 1, "A")], {1: "moved", 3: "C"}),
    4: ([], [], {1: "moved", 3: "C"}),
    5: ([(Op.DELETE, 1, "moved")], [(Op.INSERT, 4, "d")], {3: "C", 4: "d"}),
}


def staged_changes() -> MemoryStorage:
    """Two files an epoch, as two tasks would leave them."""
    storage = MemoryStorage()
    for epoch, (one, other, _) in CHANGES.items():
        for number, changes in enumerate((one, other)):
            table = staged_table([(i, text) for _, i, text in changes])
            ops = pa.array([int(op) for op, _, _ in changes], pa.int8())
            storage.publish(f"{epoch}/{number}.arrow", ipc_file(table.append_column(OP, ops)))
    return storage


class ChangesContract(ABC):
    """The tests. Each gets a fresh place."""

    points: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def make(self, place: Any, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Sink:
        """A new sink over whatever is at this place."""

    @abstractmethod
    def holds(self, place: Any) -> Held:
        """The rows that are there now: id and text."""

    def place(self, directory: Path) -> Any:
        """Where the sink keeps its things: the directory, or something that stands for it."""
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def resume(self, place: Any, generation: int, until: int = max(CHANGES)) -> None:
        """What the engine does at a start: asks for the last epoch and delivers those after it."""
        sink = self.make(place, CHANGING, staged_changes(), nothing)
        for epoch in range(sink.open("life", generation) + 1, until + 1):
            sink.deliver(delivery(epoch, generation))
        sink.close()

    def test_changes_fold_to_what_holds_epoch_by_epoch(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "fold")
        for epoch, (_, _, held) in CHANGES.items():
            self.resume(place, generation=epoch + 1, until=epoch)
            assert self.holds(place) == held, f"after epoch {epoch}"

    def test_changes_fold_to_the_same_after_a_crash_at_any_point(self, tmp_path: Path) -> None:
        assert self.points, "name the points at which the sink can be crashed"
        for point in self.points:
            nth = 1
            while self._crash_and_resume(self.place(tmp_path / f"{point}-{nth}"), CrashAt(point, nth)):
                nth += 1
            assert nth > 1, f"{point} is never passed"

    def _crash_and_resume(self, place: Any, crash: CrashAt) -> bool:
        """False if the sink came to the end without passing the point so many times."""
        sink, crashed = self.make(place, CHANGING, staged_changes(), crash), False
        sink.open("life", 1)
        try:
            for epoch in CHANGES:
                sink.deliver(delivery(epoch))
        except Crash:
            crashed = True
        self.resume(place, generation=2)
        assert self.holds(place) == CHANGES[max(CHANGES)][2], f"after a crash at {crash.point}, passed {crash.nth} times"
        sink.close()
        return crashed

    def test_epochs_together_and_one_by_one_fold_to_the_same_after_a_crash_of_the_other(self, tmp_path: Path) -> None:
        """A sink that has fallen behind gets several epochs at once: what was begun with one of them may end with many, or the
        other way round."""
        for point in self.points:
            for together in (True, False):
                place = self.place(tmp_path / f"{point}-{together}")
                sink = self.make(place, CHANGING, staged_changes(), CrashAt(point, 2))
                if not isinstance(sink, Together):
                    pytest.skip("this sink takes one epoch after the other")
                self._given(sink, 1, [[0], [1], [2, 3, 4, 5]] if together else [[0], [1, 2, 3], [4], [5]])
                again = self.make(place, CHANGING, staged_changes(), nothing)
                self._given(again, 2, [[0, 1, 2, 3, 4, 5]] if together else [[epoch] for epoch in CHANGES])
                assert self.holds(place) == CHANGES[max(CHANGES)][2], f"after a crash at {point}"

    def _given(self, sink: Any, generation: int, parts: list[list[int]]) -> None:
        """Epochs in parts, without those that are there, until the sink crashes."""
        has = sink.open("life", generation)
        with suppress(Crash):
            for part in parts:
                if wanted := [delivery(epoch, generation) for epoch in part if epoch > has]:
                    sink.deliver_together(wanted)
        sink.close()

    def test_changes_given_again_change_nothing(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "again")
        sink = self.make(place, CHANGING, staged_changes(), nothing)
        sink.open("life", 1)
        for epoch, (_, _, held) in CHANGES.items():
            for earlier in range(epoch + 1):
                sink.deliver(delivery(earlier))
            assert self.holds(place) == held
        sink.close()

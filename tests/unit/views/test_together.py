"""Several views read at one epoch."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import View, read_together
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME
from penstock.core.position import Position
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import BadInput, NotYet
from penstock.sinks.port import Delivery, Marker, SinkSpec
from penstock.sinks.view import ViewSink
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file

NAMES = ("savings", "checking", "loans")


class Written:
    """A view with one row, whose value is a multiple of the epoch; now and then it is gone for an epoch."""

    def __init__(self, views: Path, name: str, times: int, flow: str = "bank", life: str = "life") -> None:
        self.spec = SinkSpec(flow, name, Schema.of("id long, amount long"), ("id",), updating=True)
        self.storage, self.epoch, self.times, self.life = MemoryStorage(), -1, times, life
        self.sink = ViewSink(self.spec, views / f"{name}.db", self.storage)
        self.sink.open(life, 1)

    def deliver(self) -> None:
        self.epoch += 1
        gone = self.epoch % 7 == 6
        row = {"id": [1], "amount": [self.times * self.epoch], TIME: [self.epoch]}
        types = {"id": pa.int64(), "amount": pa.int64(), TIME: pa.int64()}
        columns = {name: pa.array(values, types[name]) for name, values in row.items()}
        columns |= {POSITION: pa.array([Position("in", 0, self.epoch).encode()], pa.binary())}
        columns |= {OP: pa.array([int(Op.DELETE if gone else Op.INSERT)], pa.int8())}
        self.storage.publish(f"{self.epoch}.arrow", ipc_file(pa.table(columns)))
        marker = Marker(self.life, 1, self.epoch)
        self.sink.deliver(Delivery(marker, [f"{self.epoch}.arrow"], NEVER, {"in": {0: self.epoch}}, self.epoch))


@pytest.fixture
def written(tmp_path: Path) -> list[Written]:
    return [Written(tmp_path, name, times) for name, times in zip(NAMES, (3, -1, -2), strict=True)]


@pytest.fixture
def opened(tmp_path: Path, written: list[Written]) -> Iterator[list[View]]:
    with ExitStack() as stack:
        yield [stack.enter_context(View(tmp_path, name)) for name in NAMES]


def amounts(rows: dict[str, pa.Table]) -> dict[str, list[int]]:
    return {name: table.column("amount").to_pylist() for name, table in rows.items()}


def test_the_last_epoch_that_all_have_is_read(written: list[Written], opened: list[View]) -> None:
    for view, epochs in zip(written, (3, 5, 4), strict=True):
        for _ in range(epochs):
            view.deliver()
    epoch, rows = read_together(opened)
    assert (epoch, amounts(rows)) == (2, {"savings": [6], "checking": [-2], "loans": [-4]})
    assert [view.rows().column("amount").to_pylist() for view in opened] == [[6], [-4], [-6]]


def test_views_without_an_epoch_fit_together(opened: list[View]) -> None:
    epoch, rows = read_together(opened)
    assert (epoch, amounts(rows)) == (-1, {name: [] for name in NAMES})


def test_views_agree_at_every_read_while_they_are_written(written: list[Written], opened: list[View]) -> None:
    last = 60

    def write() -> None:
        for turn in range(last + 3):
            for ahead, view in enumerate(written):
                if view.epoch < min(last, turn - ahead):
                    view.deliver()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    try:
        while not seen or seen[-1] < last:
            epoch, rows = read_together(opened)
            there = epoch >= 0 and epoch % 7 != 6
            assert amounts(rows) == {name: [n * epoch] if there else [] for name, n in zip(NAMES, (3, -1, -2), strict=True)}
            seen.append(epoch)
    finally:
        writer.join()
    assert seen == sorted(seen)


def test_a_view_without_an_epoch_beside_others_is_waited_for(written: list[Written], opened: list[View]) -> None:
    written[0].deliver()
    with pytest.raises(NotYet) as caught:
        read_together(opened, timeout="0 seconds")
    assert str(caught.value).startswith(
        "views savings, checking, loans cannot be read together after 0 seconds: no epoch has come to checking, loans yet"
    )
    late = threading.Timer(0.1, lambda: [view.deliver() for view in written[1:]])
    late.start()
    assert read_together(opened, timeout="60 seconds").epoch == 0
    late.join()


def test_views_of_two_lives_of_a_flow_do_not_fit(tmp_path: Path) -> None:
    for name, life in (("old", "one"), ("new", "two")):
        Written(tmp_path, name, 1, life=life).deliver()
    with View(tmp_path, "old") as old, View(tmp_path, "new") as new, pytest.raises(NotYet, match="the flow was reset"):
        read_together([old, new], timeout="0 seconds")


def test_views_of_two_flows_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Written(tmp_path, name, 1, flow=f"flow_{name}")
    with (
        View(tmp_path, "a") as a,
        View(tmp_path, "b") as b,
        pytest.raises(BadInput, match=r"views of several flows \(flow_a, flow_b\)"),
    ):
        read_together([a, b])


def test_what_cannot_be_read_together_is_refused(opened: list[View]) -> None:
    with pytest.raises(BadInput, match="there is nothing to read together"):
        read_together([])
    with pytest.raises(BadInput, match="there is nothing to read together"):
        read_together(["savings"])  # type: ignore[list-item]
    with pytest.raises(BadInput, match="view 'savings' is named twice"):
        read_together([opened[0], opened[0]])

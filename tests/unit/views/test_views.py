"""What can be asked of a view."""

import datetime as dt
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME
from penstock.core.position import Position
from penstock.core.schema import Schema
from penstock.core.time import NEVER
from penstock.errors import BadInput, BadName, NotFound, NotYet, SinkError
from penstock.sinks.port import Delivery, Marker, SinkSpec
from penstock.sinks.view import ViewSink
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file
from penstock.views.directory import drop_view, list_views
from penstock.views.view import View

SCHEMA = Schema.of("user string, n long")
SECOND = 1_000_000


class Flow:
    """Stands for the flow that writes the view: epoch N opens at N seconds and has read N rows of topic `in`."""

    def __init__(self, views: Path, schema: Schema = SCHEMA, key: tuple[str, ...] = ("user",), updating: bool = False) -> None:
        self.spec = SinkSpec("shop", "sales", schema, key, updating)
        self.storage, self.epoch = MemoryStorage(), -1
        self.sink = ViewSink(self.spec, views / "sales.db", self.storage)
        self.sink.open("life", 1)

    def epoch_of(self, *rows: Sequence[Any], ops: Sequence[Op] = (), frontier: int = NEVER, read: int | None = None) -> None:
        self.epoch += 1
        fields = [*self.spec.schema, pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary())]
        columns = {f.name: pa.array([row[i] for row in rows], f.type) for i, f in enumerate(fields)}
        if self.spec.updating:
            columns[OP] = pa.array([int(op) for op in ops], pa.int8())
        self.storage.publish(f"{self.epoch}.arrow", ipc_file(pa.table(columns)))
        inputs = {"in": {0: self.epoch if read is None else read}}
        marker = Marker("life", 1, self.epoch)
        self.sink.deliver(Delivery(marker, [f"{self.epoch}.arrow"], frontier, inputs, self.epoch * SECOND))


def _pairs(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


_ROW = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9), st.integers(0, 5))


@settings(max_examples=60)
@given(st.lists(st.lists(_ROW, max_size=4), max_size=5))
def test_any_cut_of_append_only_rows_gives_the_answers_of_the_rows_themselves(epochs: list[list[tuple[Any, ...]]]) -> None:
    numbered, number = list[list[tuple[Any, ...]]](), 0
    for rows in epochs:
        numbered.append([(*row, b"%04d" % (number + i)) for i, row in enumerate(rows)])
        number += len(rows)
    with tempfile.TemporaryDirectory() as directory:
        flow = Flow(Path(directory))
        for rows in numbered:
            flow.epoch_of(*rows)
        with View(Path(directory), "sales") as view:
            assert _pairs(view.rows()) == _naive(numbered, 99, 99)
            for epoch in range(len(epochs)):
                assert _pairs(view.rows(known_at=epoch)) == _naive(numbered, epoch, 99)
                for time in (0, 2, 4):
                    assert _pairs(view.rows(as_of=time, known_at=epoch)) == _naive(numbered, epoch, time)
            for time in range(6):
                assert _pairs(view.rows(as_of=time)) == _naive(numbered, 99, time)
        flow.sink.close()


def _naive(epochs: list[list[tuple[Any, ...]]], known_at: int, as_of: int) -> list[tuple[Any, ...]]:
    """Per key the row with the greatest (time, position)."""
    known = [row for rows in epochs[: known_at + 1] for row in rows if row[2] <= as_of]
    best = {row[0]: row for row in sorted(known, key=lambda row: (row[2], row[3]))}
    order = sorted(best.values(), key=lambda row: (row[0] is None, row[0] or ""))  # text comes before the mark of no value
    return [(row[0], row[1]) for row in order]


_CHANGE = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.none() | st.integers(0, 9), max_size=3)


@settings(max_examples=40)
@given(st.lists(_CHANGE, max_size=6))
def test_what_was_known_of_an_updating_view_can_be_asked_for_every_epoch(epochs: list[dict[str, int | None]]) -> None:
    """None deletes."""
    with tempfile.TemporaryDirectory() as directory:
        flow, state, states = Flow(Path(directory), updating=True), dict[str, int](), []
        for epoch, changes in enumerate(epochs):
            rows, ops = [], []
            for key, n in changes.items():
                if n is None and key in state:
                    rows, ops = [*rows, (key, state.pop(key), epoch, b"p")], [*ops, Op.DELETE]
                elif n is not None:
                    rows, ops = [*rows, (key, n, epoch, b"p")], [*ops, Op.UPDATE_AFTER if key in state else Op.INSERT]
                    state[key] = n
            flow.epoch_of(*rows, ops=ops)
            states.append(sorted(state.items()))
        with View(Path(directory), "sales") as view:
            for epoch, known in enumerate(states):
                assert _pairs(view.rows(known_at=epoch)) == known
                assert _pairs(view.rows(as_of=epoch)) == known  # in this stream event time goes with the epochs
        flow.sink.close()


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path)


def test_the_place_of_a_view_may_be_a_text(flow: Flow, tmp_path: Path) -> None:
    flow.epoch_of(("ann", 1, 10, b"a"))
    with View(str(tmp_path), "sales") as view:
        assert _pairs(view.rows()) == [("ann", 1)]
    with pytest.raises(BadInput, match="cannot open a view in None"):
        View(None, "sales")  # type: ignore[arg-type]


def test_known_at_takes_a_time_as_the_last_epoch_opened_by_then(flow: Flow, tmp_path: Path) -> None:
    flow.epoch_of(("ann", 1, 10, b"a"))
    flow.epoch_of(("ann", 2, 20, b"b"))
    with View(tmp_path, "sales") as view:
        assert _pairs(view.rows(known_at="1970-01-01T00:00:00.9Z")) == [("ann", 1)]
        assert _pairs(view.rows(known_at=dt.datetime(1970, 1, 1, 0, 0, 1))) == [("ann", 2)]
        assert _pairs(view.rows(known_at="1969-01-01")) == []
        with pytest.raises(NotFound, match="epoch 7"):
            view.rows(known_at=7)


def test_a_time_whose_epoch_is_forgotten_is_not_guessed(flow: Flow, tmp_path: Path) -> None:
    flow.epoch = 20_000
    flow.epoch_of(("ann", 1, 10, b"a"))
    with View(tmp_path, "sales") as view, pytest.raises(NotFound, match="does not remember"):
        view.rows(known_at="1970-01-01")


def test_rows_can_be_limited_and_filtered_by_value(flow: Flow, tmp_path: Path) -> None:
    flow.epoch_of(("ann", 1, 10, b"a"), ("bob", 2, 10, b"b"), ("cat", 2, 10, b"c"), (None, 2, 10, b"d"))
    with View(tmp_path, "sales") as view:
        assert _pairs(view.rows(limit=1)) == [("ann", 1)]
        assert _pairs(view.rows(where={"n": 2}, limit=2)) == [("bob", 2), ("cat", 2)]
        assert _pairs(view.rows(where={"user": None})) == [(None, 2)]
        with pytest.raises(BadInput, match="no column 'm'"):
            view.rows(where={"m": 2})


def test_one_row_is_found_by_its_key_in_the_order_the_flow_gave_it(tmp_path: Path) -> None:
    flow = Flow(tmp_path, Schema.of("user string, window_start timestamp, n long"), ("user", "window_start"))
    flow.epoch_of(("ann", 60 * SECOND, 5, 119 * SECOND, b"a"))
    with View(tmp_path, "sales") as view:
        row = {"user": "ann", "window_start": dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC), "n": 5}
        assert view.get("ann", "1970-01-01T00:01:00Z") == row
        assert view.get("ann", dt.datetime(1970, 1, 1, 0, 1)) == row
        assert view.get("bob", "1970-01-01T00:01:00Z") is None
        with pytest.raises(BadInput, match="2 parts"):
            view.get("ann")
        with pytest.raises(BadInput, match="window_start"):
            view.get("ann", "yesterday")


def test_rows_without_a_key_are_found_by_position_and_ordered_by_time(tmp_path: Path) -> None:
    flow = Flow(tmp_path, key=())
    first, second = Position("in", 0, 1), Position("in", 0, 2)
    flow.epoch_of(("late", 1, 20, first.encode()), ("early", 2, 10, second.encode()))
    with View(tmp_path, "sales") as view:
        assert view.get(second) == {"user": "early", "n": 2}
        assert _pairs(view.rows()) == [("early", 2), ("late", 1)]
        with pytest.raises(BadInput, match="position"):
            view.get("early")


def test_the_history_of_a_key_tells_when_each_version_was_current(flow: Flow, tmp_path: Path) -> None:
    flow.epoch_of(("ann", 1, 10, b"a"))
    flow.epoch_of(("ann", 2, 20, b"b"), ("bob", 3, 1, b"c"))
    flow.epoch_of(("ann", 0, 5, b"d"))
    with View(tmp_path, "sales") as view:
        versions = [(row["n"], row["__since"], row["__until"], row["__deleted"]) for row in view.history("ann").to_pylist()]
        assert versions == [(1, 0, 1, False), (2, 1, None, False), (0, 2, 2, False)]


def test_following_gives_what_is_there_and_then_what_changes(tmp_path: Path) -> None:
    flow = Flow(tmp_path, updating=True)
    flow.epoch_of(("ann", 1, 10, b"a"), ("bob", 1, 10, b"b"), ops=[Op.INSERT, Op.INSERT])
    with View(tmp_path, "sales") as view:
        changes = view.follow(poll=0)
        assert _pairs(next(changes).rows) == [("ann", 1), ("bob", 1)]
        flow.epoch_of(ops=[])
        flow.epoch_of(("ann", 2, 20, b"a"), ("bob", 1, 20, b"b"), ops=[Op.UPDATE_AFTER, Op.DELETE])
        found = next(changes)
        assert (found.epoch, _pairs(found.rows), _pairs(found.deleted)) == (2, [("ann", 2)], [("bob", 1)])
        assert list(view.follow(stop=lambda: True)) == []


def test_waiting_for_a_position_ends_when_the_view_has_read_it(flow: Flow, tmp_path: Path) -> None:
    flow.epoch_of(("ann", 1, 10, b"a"), read=5)
    with View(tmp_path, "sales") as view:
        assert view.wait_for(Position("in", 0, 4), "0 seconds").epoch == 0
        with pytest.raises(NotYet, match="in/0@5") as late:
            view.wait_for(Position("in", 0, 5), "10 ms")
        assert isinstance(late.value, TimeoutError)
        writer = threading.Thread(target=flow.epoch_of, kwargs={"read": 6})
        writer.start()
        assert view.wait_for(Position("in", 0, 5), "30 seconds").epoch == 1
        writer.join()
        assert view.position == {"in": {0: 6}}


def test_an_empty_view_says_why(flow: Flow, tmp_path: Path) -> None:
    with View(tmp_path, "sales") as view:
        assert "has not finished an epoch" in (view.why_empty() or "")
        flow.epoch_of(read=0)
        assert "no rows in in" in (view.why_empty() or "")
        flow.epoch_of(read=3)
        assert "event time" in (view.why_empty() or "")
        flow.epoch_of(read=4, frontier=60 * SECOND)
        assert "1970-01-01T00:01:00Z" in (view.why_empty() or "")
        flow.epoch_of(("ann", 1, 10, b"a"))
        assert view.why_empty() is None
        assert (view.epoch, view.frontier, view.count()) == (3, NEVER, 1)


def test_an_unknown_view_names_those_that_are_close(flow: Flow, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        View(tmp_path, "sale")
    assert "did you mean sales?" in str(missing.value)
    with pytest.raises(BadName):
        View(tmp_path, "../sales")
    assert list_views(tmp_path) == ["sales"]
    assert list_views(tmp_path / "nowhere") == []


def test_a_view_can_be_read_after_its_flow_has_ended_and_without_leaving_anything(flow: Flow, tmp_path: Path) -> None:
    flow.epoch_of(("ann", 1, 10, b"a"))
    flow.sink.close()
    with View(tmp_path, "sales") as view:
        assert view.get("ann") == {"user": "ann", "n": 1}
    assert (tmp_path / "sales.db").exists()


def test_a_reader_cannot_write(flow: Flow, tmp_path: Path) -> None:
    with View(tmp_path, "sales") as view, pytest.raises(SinkError, match="readonly"):
        view._ask("DELETE FROM marker")


def test_a_dropped_view_is_gone_and_one_in_use_stays(flow: Flow, tmp_path: Path) -> None:
    flow.epoch_of(("ann", 1, 10, b"a"))
    with pytest.raises(SinkError, match="in use"):
        drop_view(tmp_path, "sales")
    flow.sink.close()
    drop_view(tmp_path, "sales")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_view_can_be_dropped(flow: Flow, tmp_path: Path) -> None:
    flow.sink.close()
    (tmp_path / "sales.db").write_bytes(b"noise" * 1000)
    with pytest.raises(SinkError, match="damaged"):
        View(tmp_path, "sales")
    drop_view(tmp_path, "sales")
    assert list_views(tmp_path) == []

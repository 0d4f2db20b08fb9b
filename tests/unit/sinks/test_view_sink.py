"""What a view holds after its epochs."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME
from penstock.core.schema import Schema
from penstock.errors import Mismatch, SinkError
from penstock.sinks.port import Delivery, Marker, SinkSpec
from penstock.sinks.view import ViewSink
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import ipc_file

SPEC = SinkSpec("shop", "sales", Schema.of("user string, n long"), ("user",))


class Writer:
    """Delivers rows (columns…, time, position) to a view, an epoch at a time."""

    def __init__(self, directory: Path, spec: SinkSpec = SPEC) -> None:
        self.spec, self.path, self.storage, self.epoch = spec, directory / f"{spec.name}.db", MemoryStorage(), -1
        self.sink = ViewSink(spec, self.path, self.storage)
        self.epoch = self.sink.open("life", 1)

    def epoch_of(self, *rows: Sequence[Any], ops: Sequence[Op] = ()) -> None:
        self.epoch += 1
        fields = [*self.spec.schema, pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary())]
        columns = {f.name: pa.array([row[i] for row in rows], f.type) for i, f in enumerate(fields)}
        if self.spec.updating:
            columns[OP] = pa.array([int(op) for op in ops], pa.int8())
        self.storage.publish(f"{self.epoch}.arrow", ipc_file(pa.table(columns)))
        self.sink.deliver(Delivery(Marker("life", 1, self.epoch), [f"{self.epoch}.arrow"], frontier=self.epoch))

    def ask(self, question: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(question).fetchall()

    def current(self) -> list[Any]:
        return self.ask("SELECT user, n, __since FROM current ORDER BY 1, 2")

    def history(self) -> list[Any]:
        return self.ask("SELECT user, n, __since, __until FROM history WHERE NOT __deleted ORDER BY __n")


def test_a_newer_row_of_a_key_replaces_the_older_which_becomes_history(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.epoch_of(("ann", 1, 10, b"a"), ("bob", 1, 10, b"b"))
    writer.epoch_of(("ann", 2, 20, b"c"))
    assert writer.current() == [("ann", 2, 1), ("bob", 1, 0)]
    assert writer.history() == [("ann", 1, 0, 1)]


def test_an_older_row_never_overwrites_a_newer_one(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.epoch_of(("ann", 2, 20, b"c"))
    writer.epoch_of(("ann", 1, 10, b"a"))
    writer.epoch_of(("ann", 3, 20, b"b"))
    assert writer.current() == [("ann", 2, 0)]
    assert writer.history() == [("ann", 1, 1, 1), ("ann", 3, 2, 2)]


def test_of_several_rows_of_a_key_in_one_epoch_the_last_by_time_and_position_stays(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.epoch_of(("ann", 2, 20, b"b"), ("ann", 3, 20, b"c"), ("ann", 1, 10, b"z"), ("bob", 9, 1, b"a"))
    assert writer.current() == [("ann", 3, 0), ("bob", 9, 0)]
    assert sorted(writer.history()) == [("ann", 1, 0, 0), ("ann", 2, 0, 0)]


def test_rows_of_new_keys_go_on_after_a_key_came_twice(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.epoch_of(("ann", 1, 10, b"a"))
    writer.epoch_of(("ann", 2, 20, b"b"), ("cat", 1, 20, b"c"))
    writer.epoch_of(("dan", 1, 30, b"d"))
    assert writer.current() == [("ann", 2, 1), ("cat", 1, 1), ("dan", 1, 2)]


def test_without_a_key_every_position_is_a_row(tmp_path: Path) -> None:
    writer = Writer(tmp_path, SinkSpec("shop", "sales", Schema.of("user string, n long"), ()))
    writer.epoch_of(("ann", 1, 10, b"a"), ("ann", 1, 10, b"b"))
    writer.epoch_of(("ann", 1, 10, b"c"))
    assert writer.current() == [("ann", 1, 0), ("ann", 1, 0), ("ann", 1, 1)]
    assert writer.history() == []


def test_null_is_a_key_like_any_other(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.epoch_of((None, 1, 10, b"a"), ("", 5, 10, b"b"))
    writer.epoch_of((None, 2, 20, b"c"))
    assert writer.ask("SELECT n FROM current ORDER BY n") == [(2,), (5,)]


def test_nan_and_minus_zero_are_one_key_each(tmp_path: Path) -> None:
    writer = Writer(tmp_path, SinkSpec("shop", "sales", Schema.of("user double, n long"), ("user",)))
    writer.epoch_of((float("nan"), 1, 10, b"a"), (0.0, 1, 10, b"b"))
    writer.epoch_of((float("nan"), 2, 20, b"c"), (-0.0, 2, 20, b"d"))
    assert writer.ask("SELECT n FROM current") == [(2,), (2,)]


def test_an_updating_stream_inserts_updates_and_deletes(tmp_path: Path) -> None:
    writer = Writer(tmp_path, SinkSpec("shop", "sales", Schema.of("user string, n long"), ("user",), updating=True))
    writer.epoch_of(("ann", 1, 30, b"a"), ("bob", 1, 30, b"b"), ops=[Op.INSERT, Op.INSERT])
    # A correction may carry an earlier time: the last change counts, not the greatest time.
    writer.epoch_of(
        ("ann", 1, 30, b"a"), ("ann", 2, 20, b"a"), ("bob", 1, 30, b"b"), ops=[Op.UPDATE_BEFORE, Op.UPDATE_AFTER, Op.DELETE]
    )
    assert writer.current() == [("ann", 2, 1)]
    assert sorted(writer.history()) == [("ann", 1, 0, 1), ("bob", 1, 0, 1)]
    writer.epoch_of(("bob", 7, 40, b"b"), ops=[Op.INSERT])
    assert writer.current() == [("ann", 2, 1), ("bob", 7, 2)]


def test_a_delete_and_an_insert_of_one_key_in_one_epoch_leave_the_insert(tmp_path: Path) -> None:
    writer = Writer(tmp_path, SinkSpec("shop", "sales", Schema.of("user string, n long"), ("user",), updating=True))
    writer.epoch_of(("ann", 1, 10, b"a"), ops=[Op.INSERT])
    writer.epoch_of(("ann", 2, 20, b"b"), ("ann", 1, 30, b"c"), ops=[Op.INSERT, Op.DELETE])
    assert writer.current() == [("ann", 2, 1)]


def test_windows_are_stored_by_their_start_and_without_positions(tmp_path: Path) -> None:
    schema = Schema.of("user string, window_start timestamp, n long")
    writer = Writer(tmp_path, SinkSpec("shop", "sales", schema, ("user", "window_start"), unique=True))
    writer.epoch_of(("b", 60, 1, 119, b"x"), ("a", 0, 1, 59, b"y"), ("b", 0, 1, 59, b"z"))
    writer.epoch_of(("a", 60, 1, 119, b"x"))
    assert writer.ask("SELECT user, window_start FROM current") == [("a", 0), ("b", 0), ("a", 60), ("b", 60)]
    assert POSITION not in [name for _, name, *_ in writer.ask("PRAGMA table_info(current)")]


def test_a_unique_key_that_comes_again_is_still_handled(tmp_path: Path) -> None:
    writer = Writer(tmp_path, SinkSpec("shop", "sales", Schema.of("user string, n long"), ("user",), unique=True))
    writer.epoch_of(("ann", 1, 10, b"a"))
    writer.epoch_of(("ann", 2, 20, b"a"), ("ann", 3, 5, b"a"))
    assert writer.current() == [("ann", 2, 1)]
    assert sorted(writer.history()) == [("ann", 1, 0, 1), ("ann", 3, 1, 1)]


def test_a_view_gains_nullable_columns(tmp_path: Path) -> None:
    first = Writer(tmp_path)
    first.epoch_of(("ann", 1, 10, b"a"))
    first.sink.close()
    second = Writer(tmp_path, SinkSpec("shop", "sales", Schema.of("user string, n long, city string"), ("user",)))
    second.epoch_of(("ann", 2, "Rome", 20, b"b"))
    assert second.ask("SELECT user, n, city FROM current") == [("ann", 2, "Rome")]
    assert second.ask("SELECT user, n, city FROM history") == [("ann", 1, None)]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (SinkSpec("shop", "sales", Schema.of("user string, n double"), ("user",)), "double"),
        (SinkSpec("shop", "sales", Schema.of("user string, n long"), ("n",)), "key"),
        (SinkSpec("shop", "sales", Schema.of("user string, n long"), ("user",), updating=True), "append-only"),
        (SinkSpec("bank", "sales", Schema.of("user string, n long"), ("user",)), "shop"),
        (SinkSpec("shop", "sales", Schema.of("user string, n long"), ("user",), unique=True), "unique"),
    ],
)
def test_another_shape_or_flow_is_a_mismatch_that_says_how_to_start_over(tmp_path: Path, other: SinkSpec, reason: str) -> None:
    writer = Writer(tmp_path)
    writer.epoch_of(("ann", 1, 10, b"a"))
    writer.sink.close()
    with pytest.raises(Mismatch, match=reason) as refused:
        Writer(tmp_path, other)
    assert "penstock view drop sales" in str(refused.value)


def test_a_view_that_took_no_epoch_is_made_anew_for_another_shape(tmp_path: Path) -> None:
    Writer(tmp_path).sink.close()
    writer = Writer(tmp_path, SinkSpec("shop", "sales", Schema.of("user string, n double"), ("n",)))
    writer.epoch_of(("ann", 1.5, 10, b"a"))
    assert writer.current() == [("ann", 1.5, 0)]


def _damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.write_bytes({"emptied": b"", "cut": data[: len(data) // 2], "noise": b"\x00\xff" * 4096}[how])


@pytest.mark.parametrize("how", ["emptied", "cut", "noise"])
def test_a_damaged_database_is_refused_and_left_as_it_is(tmp_path: Path, how: str) -> None:
    writer = Writer(tmp_path)
    writer.epoch_of(*((f"user {i}", i, i, b"%05d" % i) for i in range(2_000)))
    writer.sink.close()
    _damage(writer.path, how)
    before = writer.path.read_bytes()
    with pytest.raises(SinkError, match="damaged") as refused:
        Writer(tmp_path)
    assert "view drop sales" in str(refused.value)
    assert writer.path.read_bytes() == before


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "sales.db")) as connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.commit()
    with pytest.raises(SinkError, match="not the database of a view"):
        Writer(tmp_path)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.sink.close()
    with contextlib.closing(sqlite3.connect(writer.path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(SinkError, match="format 99"):
        Writer(tmp_path)


def test_nothing_half_made_is_left_beside_the_database(tmp_path: Path) -> None:
    Writer(tmp_path).sink.close()
    assert [path.name for path in tmp_path.iterdir()] == ["sales.db"]


def test_markers_of_the_last_ten_thousand_epochs_are_kept(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for epoch in (5, 10_004, 10_005, 10_006):
        writer.sink.deliver(Delivery(Marker("life", 1, epoch), (), frontier=0))
    assert writer.ask("SELECT epoch FROM marker") == [(10_004,), (10_005,), (10_006,)]


def test_a_sink_that_was_not_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="not open"):
        ViewSink(SPEC, tmp_path / "v.db", MemoryStorage()).deliver(Delivery(Marker("life", 1, 0), (), 0))


def test_a_database_that_somebody_else_is_writing_is_a_sink_error(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.sink.used().execute("PRAGMA busy_timeout = 10")
    with contextlib.closing(sqlite3.connect(writer.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkError, match="locked"):
            writer.epoch_of(("ann", 1, 10, b"a"))
        other.execute("ROLLBACK")
    assert writer.current() == []


def test_a_full_disk_is_a_sink_error_that_leaves_no_part_and_passes(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.epoch_of(("ann", 1, 10, b"a"))
    many = [(f"user {i}", i, i, b"%05d" % i) for i in range(5_000)]
    writer.sink.used().execute("PRAGMA max_page_count = 12")
    with pytest.raises(SinkError, match="full"):
        writer.epoch_of(*many)
    assert writer.current() == [("ann", 1, 0)]
    writer.sink.used().execute("PRAGMA max_page_count = 100000")
    writer.epoch_of(*many)
    assert len(writer.current()) == 5_001


def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "views")
    writer.epoch_of(("ann", 1, 10, b"a"))
    assert (tmp_path / "views").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "views").iterdir()} == {0o600}

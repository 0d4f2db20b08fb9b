"""Are the laws of captures worth their word? Each test plants one bug and shows that it is caught."""

import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from capture_followed import DEFINITION, Followed, broken, check_law
from capture_scripted import ScriptedEngine, random_script
from capture_topics import check_journal, check_topics
from penstock.capture.port import Batch, Json
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.copy import copies
from penstock.capture.postgres.copy.snapshots import Chunk, ChunkMerge, Snapshot
from penstock.capture.postgres.decode.messages import Relation
from penstock.capture.postgres.engine import PostgresEngine
from penstock.capture.postgres.slots import describe_slot
from penstock.capture.runner import CaptureRun
from penstock.capture.writing import writer
from penstock.capture.writing.fenced_topic import FencedTopic
from penstock.errors import SlotLost
from penstock.log.memory import MemoryLog
from penstock.log.port import Log
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.capture.records import journal_of, records_of
from penstock.testing.contracts.sink import Crash, CrashAt
from penstock.testing.servers.postgres import PostgresServer
from waiting import until

pytestmark = pytest.mark.faults
Engines = type[ScriptedEngine]


def caught_by_crashes(kind: Engines) -> bool:
    """Whether a crash at one of the first points of the writer, and a start behind it, shows the bug."""
    return any(broken(lambda nth=nth: crash_and_go_on(kind, nth)) for nth in range(1, 25))  # type: ignore[misc]


def crash_and_go_on(kind: Engines, nth: int) -> None:
    script, log, left = random_script(Random(nth), 8), MemoryLog(), nth

    def crash(point: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Crash(point)

    try:
        CaptureRun(DEFINITION, log, MemoryStorage(), kind(script, Random(nth)), fail=crash).run(catch_up=True)
    except Crash:
        check_journal(log, DEFINITION.names, script, whole=False)
        CaptureRun(DEFINITION, log, MemoryStorage(), kind(script, Random(nth + 1))).run(catch_up=True)
    check_topics(log, DEFINITION.names, script)
    check_journal(log, DEFINITION.names, script)


def test_a_capture_without_a_planted_bug_passes() -> None:
    assert not caught_by_crashes(ScriptedEngine)


class IntentIgnored(ScriptedEngine):
    """After a kill it makes the next batch as it likes."""

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        super().start(position, None)


class PositionNotMoved(ScriptedEngine):
    """A batch has the position that the one before it had."""

    moved: Json | None = None

    def next(self, wait: float) -> Batch | None:
        batch = super().next(wait)
        last, self.moved = self.moved, batch.position if batch else self.moved
        return replace(batch, position=last or {"done": 0, "steps": 0}) if batch else None


class HalfAsWhole(ScriptedEngine):
    """A part of a transaction is given out as if it were all of it."""

    def next(self, wait: float) -> Batch | None:
        batch = super().next(wait)
        if batch is None:
            return None
        yes = np.ones(len(batch.transactions), np.bool_)
        return replace(batch, transactions=replace(batch.transactions, begins=yes, ends=yes))


@pytest.mark.parametrize("kind", [IntentIgnored, PositionNotMoved, HalfAsWhole])
def test_a_bug_of_an_engine_is_caught(kind: Engines) -> None:
    assert caught_by_crashes(kind)


class NumbersNotChecked(FencedTopic):
    """Rows are appended whether or not the batch is there already."""

    def append(self, partition: int, rows: pa.RecordBatch, number: int) -> bool:
        if self.topic.spec.name == DEFINITION.names.transactions:
            return super().append(partition, rows, number)
        self.topic.append(partition, rows)
        return True


class RowsLater(FencedTopic):
    """Rows reach their topic with the next ones, behind the END that says that they are there."""

    later: Callable[[], bool] | None = None

    def append(self, partition: int, rows: pa.RecordBatch, number: int) -> bool:
        if self.topic.spec.name == DEFINITION.names.transactions:
            return super().append(partition, rows, number)
        if self.later:
            self.later()
        self.later = partial(super().append, partition, rows, number)
        return True


@pytest.mark.parametrize("topic", [NumbersNotChecked, RowsLater])
def test_a_bug_in_the_writing_of_topics_is_caught(monkeypatch: pytest.MonkeyPatch, topic: type[FencedTopic]) -> None:
    monkeypatch.setattr(writer, "FencedTopic", topic)
    assert caught_by_crashes(ScriptedEngine)


class Place:
    """A PostgreSQL that is followed, in this process, by any engine."""

    def __init__(self, server: PostgresServer) -> None:
        self.followed = Followed(server, rows=0)
        self.execute = server.execute
        self.log: Log = MemoryLog()
        self.storage, self.spool = MemoryStorage(), MemoryStorage()

    def run(self, kind: type[PostgresEngine] = PostgresEngine) -> CaptureRun:
        return CaptureRun(DEFINITION, self.log, self.storage, self.followed.engine(self.spool, kind))

    def catch_up(self, kind: type[PostgresEngine] = PostgresEngine, point: str = "", nth: int = 1) -> None:
        """A run that ends when everything is written, or at a point."""
        engine = self.followed.engine(self.spool, kind)
        run = CaptureRun(DEFINITION, self.log, self.storage, engine, fail=CrashAt(point, nth))
        if point:
            with pytest.raises(Crash):
                run.run(catch_up=True)
        else:
            run.run(catch_up=True)

    def broken(self) -> str | None:
        """What the law says against it."""
        return broken(lambda: check_law(self.followed, self.log))


@pytest.fixture
def place(tmp_path: Path, postgres: PostgresServer) -> Iterator[Place]:
    with PostgresServer(tmp_path) as server:
        yield Place(server)


class ConfirmedEarly(PostgresEngine):
    """The server is told of a batch before it is written, and has heard it."""

    def next(self, wait: float) -> Batch | None:
        batch = super().next(wait)
        if batch and batch.intent["kind"] == "stream":
            self.written(batch.position)
            assert until(lambda: self._heard(int(batch.position["end"])))
        return batch

    def _heard(self, end: int) -> bool:
        with connect(self._source.url) as connection:
            slot = describe_slot(connection, self._source.slot)
        return slot is not None and (slot.confirmed_lsn or 0) >= end


def test_a_slot_that_is_confirmed_before_the_log_has_it_is_caught(place: Place) -> None:
    place.catch_up()
    place.execute("insert into accounts values (1, 'a', 1)")
    place.catch_up(ConfirmedEarly, "capture.begun")
    with pytest.raises(SlotLost, match="behind what was read"):
        place.catch_up()
    assert place.broken()


class LsnForId(PostgresEngine):
    """What has the position of a commit that was seen counts as seen, however much of it was."""

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        if position and position["open_lsn"]:
            position = {**position, "lsn": position["open_lsn"], "open_lsn": 0, "open_changes": 0}
        super().start(position, unfinished)


@pytest.mark.parametrize("kind", [PostgresEngine, LsnForId])
def test_a_position_that_is_taken_for_an_id_is_caught(place: Place, kind: type[PostgresEngine]) -> None:
    place.catch_up()
    place.execute("insert into accounts select i, repeat('x', 50), i from generate_series(1, 5000) i")
    place.execute("insert into accounts values (-7, 'behind', 1)")
    place.catch_up(point="capture.ended", nth=1)
    assert "PART" in [record.status for record in journal_of(place.log, "shop")]
    place.catch_up(kind)
    assert (place.broken() is not None) == (kind is LsnForId)


class GivenOutAtOnce(PostgresEngine):
    """A chunk does not wait for the stream."""

    def next(self, wait: float) -> Batch | None:
        self._copies.read()
        return self._copied(1 << 62) or super().next(wait)


@pytest.mark.parametrize("kind", [PostgresEngine, GivenOutAtOnce])
def test_a_chunk_that_is_given_out_before_the_stream_has_passed_it_is_caught(place: Place, kind: type[PostgresEngine]) -> None:
    place.execute("insert into accounts values (1, 'a', 1), (2, 'b', 2)")
    place.execute("update accounts set owner = 'c'")
    place.catch_up(kind)
    assert (place.broken() is not None) == (kind is GivenOutAtOnce)


class PlaceholderKept(PostgresEngine):
    """Large values that were not sent stay what the stream has in their place."""

    def next(self, wait: float) -> Batch | None:
        batch = super().next(wait)
        return replace(batch, changes=[replace(each, unchanged=None) for each in batch.changes]) if batch else None


@pytest.mark.parametrize("kind", [PostgresEngine, PlaceholderKept])
def test_a_placeholder_for_a_large_value_is_caught(place: Place, kind: type[PostgresEngine]) -> None:
    place.execute("alter table documents replica identity default")
    place.execute("insert into documents values (1, 'a', repeat('x', 9000))")
    place.catch_up(kind)
    place.execute("update documents set title = 'b'; update documents set id = 2")
    place.catch_up(kind)
    assert (place.broken() is not None) == (kind is PlaceholderKept)


class FirstColumns(PostgresEngine):
    """A table keeps the columns with which it was seen first."""

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        super().start(position, unfinished)
        shape, seen = self._streaming.shape, dict[int, object]()

        def first(relation: Relation) -> object:
            return seen.setdefault(relation.oid, shape(relation))

        self._streaming.shape = first  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize("kind", [PostgresEngine, FirstColumns])
def test_columns_that_change_inside_of_a_batch_are_caught(place: Place, kind: type[PostgresEngine]) -> None:
    place.catch_up()
    place.execute("insert into accounts values (1, 'a', 1)")
    place.execute("alter table accounts rename owner to holder")
    place.execute("insert into accounts values (2, 'b', 1)")
    place.followed.finish()
    place.catch_up(kind)
    assert (place.broken() is not None) == (kind is FirstColumns)


class Watermarks(ChunkMerge):
    """Only what is streamed while a chunk is open counts, as between two watermarks; what came before is visible, it is thought."""

    def __init__(self, before: Collection[int] = ()) -> None:
        super().__init__()

    def open(self, chunk: Chunk) -> None:
        self.forget(Snapshot(1 << 62, 1 << 62, frozenset()))
        super().open(chunk)


def copy_while_a_standby_is_waited_for(place: Place, enough: Callable[[], bool]) -> str | None:
    """A delete is streamed that nobody sees yet; it becomes visible once there is `enough`. What the law says against it."""
    place.execute("insert into documents values (1, 'stays', ''), (7, 'goes', '')")
    place.execute("insert into accounts select i, 'a', i from generate_series(1, 500) i")
    place.execute("alter system set synchronous_standby_names = 'ghost'")
    place.execute("select pg_reload_conf()")
    assert until(lambda: place.execute("show synchronous_standby_names") == [("ghost",)])
    waiting = threading.Thread(target=place.execute, args=("delete from documents where id = 7",))
    waiting.start()
    assert until(lambda: place.execute("select 1 from pg_stat_activity where wait_event = 'SyncRep'") == [(1,)])
    run = place.run()
    runs = threading.Thread(target=run.run)
    runs.start()
    try:
        assert until(enough)
        place.execute("alter system reset synchronous_standby_names")
        place.execute("select pg_reload_conf()")
        waiting.join(60)
        assert until(lambda: run.progress.batches > 0 and not run.progress.status.snapshots)
    finally:
        run.stop()
        runs.join(60)
    place.catch_up()
    return place.broken()


def _ended(place: Place, id: str) -> bool:
    return any(record.status == "END" and record.id.startswith(id) for record in journal_of(place.log, "shop"))


def test_a_change_that_is_streamed_before_it_is_visible_is_not_undone_by_a_copy(place: Place) -> None:
    def enough() -> bool:
        deleted = any(record.value is None for record in records_of(place.log, "shop.public.documents"))
        return deleted and _ended(place, "snapshot:public.accounts")

    assert copy_while_a_standby_is_waited_for(place, enough) is None


def test_copies_by_watermarks_are_caught(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "ChunkMerge", Watermarks)
    said = copy_while_a_standby_is_waited_for(place, lambda: _ended(place, "snapshot:public.documents"))
    assert said is not None
    assert "although it is gone" in said

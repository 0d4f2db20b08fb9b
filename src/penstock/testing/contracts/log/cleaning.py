"""What every log must pass that retains, compacts and alters its topics itself. Subclass `CleaningContract` as `LogContract`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.core.arrow import values_in
from penstock.core.change import Op
from penstock.core.columns import BEFORE, KEY, OP
from penstock.core.schema import Schema
from penstock.core.time import NEVER, FixedClock
from penstock.errors import BadInput, BadRow, NotFound, OffsetGone
from penstock.log.holding import Held
from penstock.log.port import Appended, Sender, Topic, TopicSpec
from penstock.testing.contracts.log.samples import NOW, SCHEMA, SECOND, raw, typed

HOUR = 3600 * SECOND
USERS = TopicSpec("users", schema=SCHEMA, time="at", compact=True, tombstones=timedelta(hours=1))


def offsets(topic: Topic, partition: int = 0) -> list[int]:
    """The offsets that are there."""
    first = topic.ends()[partition].first
    return [int(o) for chunk in topic.read(partition, first) for o in chunk.offsets]


def put(topic: Topic, key: bytes | None, id: int = 0, *, delete: bool = False, at: int = NOW, **more: Any) -> None:
    system: dict[str, pa.Array] = {KEY: pa.array([key], pa.binary())}
    system[OP] = pa.array([int(Op.DELETE) if delete else None], pa.int8())
    topic.append(0, typed([id], at, **system), **more)


def times_before(topic: Topic) -> dict[int, int]:
    """The greatest earlier time of every row, as a reader works it out."""
    found: dict[int, int] = {}
    for chunk in topic.read(0, topic.ends()[0].first):
        times = chunk.rows.column("at").cast(pa.int64()).to_numpy()
        known = np.concatenate([[chunk.frame.time_before], times[:-1]])
        if BEFORE in chunk.rows.schema.names:
            known = np.maximum(known, chunk.rows.column(BEFORE).to_numpy())
        found |= dict(zip(chunk.offsets.tolist(), np.maximum.accumulate(known).tolist(), strict=True))
    return found


class CleaningContract(ABC):
    """The promises of `penstock.log.cleaning` and `penstock.log.altering`, each as a test."""

    @abstractmethod
    def make(self, place: Path, clock: FixedClock) -> Any:
        """An empty log that takes its append times from the clock."""

    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock(NOW)

    @pytest.fixture
    def log(self, tmp_path: Path, clock: FixedClock) -> Any:
        return self.make(tmp_path, clock)

    # Compaction

    def test_the_latest_record_of_every_key_stays_with_its_own_offset(self, log: Any) -> None:
        topic = log.create(TopicSpec("users", compact=True))
        for key, value in (("123", "V1"), ("456", "V1"), ("123", "V2"), ("789", "V1"), ("456", "V2"), ("123", "V3")):
            topic.append(0, raw([value.encode()], **{KEY: pa.array([f"user:{key}".encode()])}))
        log.clean("users")
        found = [
            (offset, key, value)
            for chunk in topic.read(0)
            for offset, key, value in zip(
                chunk.offsets.tolist(), chunk.rows.column(KEY).to_pylist(), chunk.rows.column("value").to_pylist(), strict=True
            )
        ]
        assert found == [(3, b"user:789", b"V1"), (4, b"user:456", b"V2"), (5, b"user:123", b"V3")]
        assert topic.ends()[0][:2] == (0, 6)
        assert topic.append(0, raw([b"V4"])).base == 6

    def test_records_without_a_key_stay_and_are_counted(self, log: Any) -> None:
        topic = log.create(USERS)
        for key in (None, b"a", None, b"a"):
            put(topic, key)
        log.clean("users")
        assert offsets(topic) == [0, 2, 3]

    def test_a_delete_stays_for_its_time_and_then_goes(self, log: Any, clock: FixedClock) -> None:
        topic = log.create(USERS)
        put(topic, b"a")
        put(topic, b"b")
        put(topic, b"a", delete=True)
        log.clean("users")
        assert offsets(topic) == [1, 2]
        clock.set(NOW + HOUR)
        put(topic, b"c")
        log.clean("users")
        assert offsets(topic) == [1, 3]

    def test_a_raw_record_without_value_is_a_delete(self, log: Any, clock: FixedClock) -> None:
        topic = log.create(TopicSpec("users", compact=True, tombstones=timedelta(0)))
        for value in (b"v", None):
            topic.append(0, raw([value], **{KEY: pa.array([b"k"])}))
        topic.append(0, raw([b"w"], **{KEY: pa.array([b"l"])}))
        log.clean("users")
        assert offsets(topic) == [1, 2]
        topic.append(0, raw([b"x"], **{KEY: pa.array([b"m"])}))
        log.clean("users")
        assert offsets(topic) == [2, 3]

    def test_times_and_marks_before_a_row_are_what_they_were(self, log: Any) -> None:
        topic = log.create(USERS)
        for i in range(20):
            put(topic, b"%d" % (i % 3), i, at=NOW + (i * 7 % 20), mark=NOW + i if i % 5 == 4 else NEVER)
        times, marks = times_before(topic), {int(o): c.frame.mark_before for c in topic.read(0) for o in c.offsets}
        end = topic.ends()[0]
        log.clean("users")
        assert offsets(topic) == [17, 18, 19]
        assert times_before(topic) == {o: times[o] for o in (17, 18, 19)}
        assert {int(o): c.frame.mark_before for c in topic.read(0) for o in c.offsets} == {o: marks[o] for o in (17, 18, 19)}
        assert topic.ends()[0] == end

    def test_producers_are_answered_as_before(self, log: Any) -> None:
        topic = log.create(USERS)
        for i in range(6):
            put(topic, b"k", i, sender=Sender("p", 0, i))
        log.clean("users")
        assert topic.senders(0)["p"].sequence == 5
        assert topic.append(0, typed([9]), sender=Sender("p", 0, 3)) == Appended(3, 1, True)
        assert topic.append(0, typed([9]), sender=Sender("p", 0, 6)) == Appended(6, 1, False)

    def test_a_topic_that_is_not_compacted_keeps_every_row_as_it_is(self, log: Any, clock: FixedClock) -> None:
        topic = log.create(replace(USERS, compact=False))
        for i in range(12):
            clock.set(NOW + i)
            put(topic, b"k", i, delete=i % 4 == 3)
        before = self._rows(topic)
        log.clean("users")
        assert self._rows(topic) == before

    @staticmethod
    def _rows(topic: Topic) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for chunk in topic.read(0):
            ops = chunk.rows.column(OP).to_pylist() if OP in chunk.rows.schema.names else [None] * chunk.frame.count
            columns = [chunk.rows.column(name).to_pylist() for name in ("id", "text", "at", KEY)]
            found += zip(chunk.offsets.tolist(), chunk.appended.tolist(), ops, *columns, strict=True)
        return found

    def test_a_table_from_the_compacted_log_is_that_of_the_whole_log(self, log: Any, clock: FixedClock) -> None:
        topic = log.create(replace(USERS, tombstones=timedelta(0)))
        for i in range(40):
            put(topic, b"%d" % (i * i % 7), i, delete=i % 5 == 4)
        before = self._table(topic)
        for _ in range(2):
            log.clean("users")
            assert self._table(topic) == before

    @staticmethod
    def _table(topic: Topic) -> dict[bytes, int]:
        table: dict[bytes, int] = {}
        for chunk in topic.read(0):
            ops = chunk.rows.column(OP).to_pylist() if OP in chunk.rows.schema.names else [None] * chunk.frame.count
            keys, ids = values_in(chunk.rows.column(KEY), bytes), values_in(chunk.rows.column("id"), int)
            for key, id, op in zip(keys, ids, ops, strict=True):
                table.pop(key, None)
                if op != Op.DELETE:
                    table[key] = id
        return table

    # Retention

    def hourly(self, log: Any, clock: FixedClock, rows: int = 10, **settings: Any) -> Topic:
        topic: Topic = log.create(TopicSpec("t", schema=SCHEMA, time="at", **settings))
        for i in range(rows):
            clock.set(NOW + i * HOUR)
            topic.append(0, typed([i], NOW + i), sender=Sender("p", 0, i))
        return topic

    def test_what_is_old_goes_and_what_is_young_stays(self, log: Any, clock: FixedClock) -> None:
        topic = self.hourly(log, clock, retain=timedelta(hours=4))
        clock.set(NOW + 30 * HOUR)
        log.clean("t")
        end = topic.ends()[0]
        assert (end.first, end.next, end.time) == (10, 10, NOW + 9)
        for read in (topic.read, topic.frames):
            with pytest.raises(OffsetGone, match="offsets 3 to 9 were removed"):
                read(0, 3)
        assert topic.append(0, typed([9]), sender=Sender("p", 0, 9)) == Appended(9, 1, True)
        assert topic.append(0, typed([10])).base == 10
        assert offsets(topic) == [10]
        assert topic.frames(0, 10)[0].time_before == NOW + 9

    def test_nothing_young_goes(self, log: Any, clock: FixedClock) -> None:
        topic = self.hourly(log, clock, retain=timedelta(hours=4))
        log.clean("t")
        assert topic.ends()[0].first <= 6
        assert offsets(topic) == list(range(topic.ends()[0].first, 10))

    def test_a_partition_keeps_the_newest_of_its_bytes(self, log: Any, clock: FixedClock) -> None:
        topic = self.hourly(log, clock, rows=30, retain_bytes=1_000)
        log.clean("t")
        left = offsets(topic)
        assert left == list(range(topic.ends()[0].first, 30))
        assert left

    def test_a_reader_holds_what_it_has_not_read_up_to_the_limit_and_then_it_is_told(self, log: Any, clock: FixedClock) -> None:
        topic = self.hourly(log, clock, retain=timedelta(hours=1), hold=timedelta(hours=50))
        slow = [Held("slow", "t", 0, 4, NOW)]
        clock.set(NOW + 20 * HOUR)
        [done] = log.clean("t", lambda name: slow)
        assert topic.ends()[0].first <= 4
        assert [held.reader for held in done.waiting] == ["slow"]
        clock.set(NOW + 100 * HOUR)
        [done] = log.clean("t", lambda name: slow)
        assert topic.ends()[0].first == 10
        assert {lost.reader for lost in done.lost} == {"slow"}
        assert (min(lost.first for lost in done.lost), max(lost.end for lost in done.lost)) == (4, 10)

    # Altering

    def test_settings_can_be_altered_and_every_opening_knows(self, log: Any) -> None:
        topic, other = log.create(TopicSpec("t", max_record=100)), log.topic("t")
        changes: dict[str, Any] = {"retain": timedelta(days=2), "retain_bytes": 10**9, "hold": timedelta(0), "compact": True}
        spec = replace(topic.spec, max_record=1000, tombstones=timedelta(hours=3), **changes)
        assert log.alter(spec).spec == log.topic("t").spec == spec
        topic.append(0, raw([b"x" * 500]))
        with pytest.raises(BadRow, match="the limit is 1,000"):
            other.append(0, raw([b"x" * 1500]))

    def test_partitions_can_be_added_not_taken_away(self, log: Any) -> None:
        topic = log.create(TopicSpec("t", 2))
        topic.append(1, raw([b"x"]))
        log.alter(replace(topic.spec, partitions=4))
        assert sorted(topic.ends()) == [0, 1, 2, 3]
        assert topic.append(3, raw([b"y"])) == Appended(0, 1, False)
        with pytest.raises(BadInput, match="records would be lost"):
            log.alter(replace(topic.spec, partitions=3))

    def test_a_topic_of_a_flow_keeps_its_partitions(self, log: Any) -> None:
        topic = log.create(TopicSpec("t", schema=Schema.of("n long"), writer="shop"))
        with pytest.raises(BadInput, match="it is written by flow shop"):
            log.alter(replace(topic.spec, partitions=2))

    @pytest.mark.parametrize(
        "change", [{"time": "at"}, {"future": timedelta(0)}, {"durability": "os"}, {"key": "id"}, {"writer": "x"}]
    )
    def test_what_the_records_depend_on_cannot_change_and_the_reason_is_told(self, log: Any, change: dict[str, Any]) -> None:
        topic = log.create(TopicSpec("t", schema=SCHEMA))
        with pytest.raises(BadInput, match=f"the {next(iter(change))} of topic t cannot change: "):
            log.alter(replace(topic.spec, **change))
        assert log.topic("t").spec == topic.spec

    def test_a_topic_that_is_not_there_can_be_neither_cleaned_nor_altered(self, log: Any) -> None:
        with pytest.raises(NotFound):
            log.clean("t")
        with pytest.raises(NotFound):
            log.alter(TopicSpec("t"))

    def test_impossible_settings_are_refused(self, log: Any) -> None:
        log.create(TopicSpec("t"))
        bad: Sequence[dict[str, Any]] = (
            {"retain": timedelta(-1)},
            {"retain_bytes": -1},
            {"hold": timedelta(-1)},
            {"max_record": 0},
        )
        for change in bad:
            with pytest.raises(BadInput):
                log.alter(replace(TopicSpec("t"), **change))

"""Groups over topics that change under them: retention, compaction, more partitions; and how far a group is behind."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.columns import KEY
from penstock.core.time import FixedClock
from penstock.errors import OffsetGone
from penstock.log.file.log import FileLog
from penstock.log.groups.consumer import GroupConsumer, GroupSettings
from penstock.log.groups.lag import Lag, lags
from penstock.log.groups.resetting import carry_out, plan
from penstock.log.memory import MemoryLog
from penstock.log.port import TopicSpec
from penstock.storage.local import LocalStorage
from waiting import until

NOW, SECOND = 1_700_000_000_000_000, 1_000_000
HOUR = 3600 * SECOND
QUICK = GroupSettings(lease="0.5 seconds", max_rows=3)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


@pytest.fixture(params=["memory", "file"])
def log(request: pytest.FixtureRequest, clock: FixedClock, tmp_path: Path) -> Any:
    return MemoryLog(clock) if request.param == "memory" else FileLog(LocalStorage(tmp_path / "log"), clock, segment_size=1)


def rows(count: int, **columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"x"] * count, pa.binary()), **columns})


def read(log: Any) -> list[int]:
    with GroupConsumer(log, "web", "t", settings=QUICK) as consumer:
        return [record.offset for record in consumer.records(follow=False)]


def test_retention_waits_for_a_group_and_then_the_group_is_told_what_it_lost(log: Any, clock: FixedClock) -> None:
    spec = TopicSpec("t", retain=timedelta(hours=1), hold=timedelta(hours=1))
    topic = log.create(spec)
    for _ in range(4):
        topic.append(0, rows(1))
    groups = log.groups()
    with GroupConsumer(log, "web", "t", settings=QUICK) as consumer:
        for record in consumer.records():
            if record.offset == 1:
                break  # what is in hand is not taken: the group is at 1
    clock.set(NOW + HOUR + SECOND)
    topic.append(0, rows(1))
    log.clean("t", groups.positions)
    assert topic.ends()[0].first == 1, "the record that the group has read is gone, those that it has not are not"
    clock.set(NOW + 2 * HOUR + 2 * SECOND)
    log.clean("t", groups.positions)
    assert topic.ends()[0].first == 4
    with pytest.raises(OffsetGone, match=r"t/0: records 1 to 3 were removed before group web read them(?s:.*)group reset"):
        read(log)
    [state] = groups.describe("web")
    assert lags(log, state, clock.now()) == {0: Lag(0, 5, 1, 3601.0, removed=3)}
    carry_out(groups, "web", topic, plan(groups, "web", topic, "earliest"))
    assert read(log) == [4]


def test_a_group_passes_over_what_was_compacted_away(log: Any, clock: FixedClock) -> None:
    topic = log.create(TopicSpec("t", compact=True))
    for key in (b"a", b"b", b"a", b"a", b"c", b"b", b"b"):
        topic.append(0, rows(1, **{KEY: pa.array([key], pa.binary())}))
    log.clean("t")
    assert read(log) == [3, 4, 6]
    [state] = log.groups().describe("web")
    assert [part.offset for part in state.partitions] == [7]
    assert lags(log, state, clock.now()) == {0: Lag(0, 7, 0, 0.0)}


def test_the_lag_is_that_of_the_oldest_record_that_was_not_committed(log: Any, clock: FixedClock) -> None:
    topic = log.create(TopicSpec("t", 2))
    for second in range(3):
        clock.set(NOW + second * SECOND)
        topic.append(0, rows(2))
    groups = log.groups()
    with GroupConsumer(log, "web", "t", settings=QUICK) as consumer:
        batches = iter(consumer)
        assert next(batches).next == 3
        consumer.commit()
    [state] = groups.describe("web")
    assert lags(log, state, NOW + 10 * SECOND) == {0: Lag(0, 6, 3, 9.0), 1: Lag(1, 0, 0, 0.0)}
    log.delete("t")
    assert lags(log, state, NOW) is None
    log.create(TopicSpec("t"))
    assert lags(log, state, NOW) is None


def test_partitions_that_are_added_are_read_from_their_beginning_by_members_that_are_there(log: Any) -> None:
    spec = TopicSpec("t", 1)
    log.create(spec).append(0, rows(2))
    with GroupConsumer(log, "web", "t", start="latest", settings=QUICK) as consumer:
        log.alter(replace(spec, partitions=3))
        log.topic("t").append(2, rows(4))
        assert until(lambda: consumer.partitions == [0, 1, 2])
        assert [(record.partition, record.offset) for record in consumer.records(follow=False)] == [(2, n) for n in range(4)]


def test_slow_work_keeps_its_lease_and_is_seen(log: Any) -> None:
    """Leases run by the real clock here: the work takes more than two of them."""
    log.create(TopicSpec("t")).append(0, rows(1))
    groups = log.groups()

    def in_hand() -> float:
        hand = groups.describe("web")[0].partitions[0].in_flight
        return hand.seconds if hand else 0.0

    with GroupConsumer(log, "web", "t", settings=QUICK) as consumer:
        for record in consumer.records(follow=False):
            assert record.offset == 0
            assert until(lambda: in_hand() > 1.1)
    assert [part.offset for part in groups.describe("web")[0].partitions] == [1]

"""The consumer of a group: what it hands out, what it commits and when, and what it does when it loses partitions."""

import threading
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime

import pyarrow as pa
import pytest

from penstock.core.time import UTC
from penstock.errors import BadInput, Fenced, Mismatch, NotFound
from penstock.log.groups.consumer import GroupConsumer, GroupSettings
from penstock.log.groups.leases import ManualClock
from penstock.log.groups.memory import MemoryGroups
from penstock.log.memory import MemoryLog
from penstock.log.port import Topic, TopicSpec
from penstock.log.producer import Producer
from waiting import until


class Failure(Exception):
    """What goes wrong in the work of a user."""


def failing() -> AbstractContextManager[object]:
    return pytest.raises(Failure)


def fail(now: bool) -> None:
    if now:
        raise Failure


QUICK = GroupSettings(lease="0.5 seconds", max_rows=4)


@pytest.fixture
def leases() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(leases: ManualClock) -> MemoryLog:
    made = MemoryLog(groups=MemoryGroups(leases=leases))
    made.create(TopicSpec("views", 3))
    return made


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([str(value).encode() for value in values], pa.binary())})


def fill(topic: Topic, *counts: int) -> None:
    for partition, count in enumerate(counts):
        for offset in range(0, count, 3):
            topic.append(partition, rows(*range(offset, min(offset + 3, count))))


def offsets(log: MemoryLog, group: str = "web") -> list[int]:
    return [part.offset for part in log.groups().describe(group)[0].partitions]


def consumer(log: MemoryLog, commit: str = "after", **more: object) -> GroupConsumer:
    return GroupConsumer(log, "web", "views", commit=commit, settings=QUICK, **more)  # type: ignore[arg-type]


def test_batches_are_of_one_partition_in_order_and_no_larger_than_asked(log: MemoryLog) -> None:
    fill(log.topic("views"), 10, 2, 0)
    seen: dict[int, list[int]] = {0: [], 1: []}
    with consumer(log) as member:
        assert member.partitions == [0, 1, 2]
        for batch in member.batches(follow=False):
            assert batch.table.num_rows <= 4
            assert batch.table.column("partition").unique().to_pylist() == [batch.partition]
            assert batch.table.column("offset")[0].as_py() == batch.start
            seen[batch.partition] += batch.table.column("offset").to_pylist()
    assert seen == {0: list(range(10)), 1: [0, 1]}
    assert offsets(log) == [10, 2, 0]


def test_records_come_one_by_one_and_reading_goes_on_where_it_ended(log: MemoryLog) -> None:
    fill(log.topic("views"), 5, 5)
    with consumer(log) as member:
        first = [(record.partition, record.offset) for record in member.records(follow=False)]
    assert sorted(first) == [(p, o) for p in (0, 1) for o in range(5)]
    log.topic("views").append(1, rows(5))
    with consumer(log) as member:
        assert [(record.partition, record.offset, record.value) for record in member.records(follow=False)] == [(1, 5, b"5")]


def test_a_batch_counts_when_the_loop_comes_back_and_not_when_its_work_fails(log: MemoryLog) -> None:
    fill(log.topic("views"), 8)
    with failing(), consumer(log) as member:
        for batch in member:
            assert offsets(log)[0] == batch.start
            fail(batch.start == 4)
    assert offsets(log)[0] == 4


def test_records_before_the_one_that_failed_are_committed(log: MemoryLog) -> None:
    fill(log.topic("views"), 8)
    with failing(), consumer(log) as member:
        for record in member.records():
            fail(record.offset == 6)
    assert offsets(log)[0] == 6


def test_a_loop_that_is_left_in_the_middle_gives_the_batch_again(log: MemoryLog) -> None:
    fill(log.topic("views"), 8)
    with consumer(log) as member:
        for batch in member:
            assert batch.start == 0
            break
        assert next(iter(member)).start == 0
        for record in member.records():
            if record.offset == 2:
                break
        assert next(member.records()).offset == 2
    assert offsets(log)[0] == 2


def test_at_most_once_commits_before_a_batch_is_handed_out(log: MemoryLog) -> None:
    fill(log.topic("views"), 8)
    with failing(), consumer(log, "before") as member:
        for batch in member:
            assert offsets(log)[0] == batch.next
            fail(True)
    with consumer(log, "before") as member:
        assert [record.offset for record in member.records(follow=False)] == [4, 5, 6, 7]


def test_manual_commits_count_what_was_handed_out(log: MemoryLog) -> None:
    fill(log.topic("views"), 8)
    with consumer(log, "manual") as member:
        for record in member.records():
            if record.offset == 5:
                assert offsets(log)[0] == 0
                member.commit()
                assert offsets(log)[0] == 6
            if record.offset == 7:
                break
    assert offsets(log)[0] == 6


@pytest.mark.parametrize(
    ("start", "wanted"),
    [("earliest", [0, 0, 0]), ("latest", [6, 3, 0]), (2, [2, 2, 0]), ({0: 5, 1: 1}, [5, 1, 0]), (datetime.max, [6, 3, 0])],
)
def test_a_group_that_was_never_here_begins_where_it_is_told(log: MemoryLog, start: object, wanted: list[int]) -> None:
    fill(log.topic("views"), 6, 3)
    if start == 2:
        log.topic("views").append(2, rows(1, 2, 3))
        wanted = [2, 2, 2]
    with consumer(log, start=start.replace(tzinfo=UTC) if isinstance(start, datetime) else start):
        assert offsets(log) == wanted
    with consumer(log, start="earliest"):
        assert offsets(log) == wanted


def test_a_time_begins_at_the_first_row_of_that_time(log: MemoryLog) -> None:
    spec = TopicSpec("timed", time="at")
    topic = log.create(spec)
    with Producer(topic) as producer:
        for minute in (0, 5, 2, 7):
            producer.send({"at": f"2024-01-15T10:0{minute}:00Z"})
    start = datetime(2024, 1, 15, 10, 4, tzinfo=UTC)
    with GroupConsumer(log, "web", "timed", start=start, settings=QUICK) as member:
        assert [record.offset for record in member.records(follow=False)] == [1, 2, 3]


def test_rows_that_came_before_the_first_look_are_not_skipped_by_latest(log: MemoryLog) -> None:
    """The group begins at one moment, in all partitions; whoever comes later does not choose anew."""
    with consumer(log, start="latest"):
        pass
    fill(log.topic("views"), 2)
    with consumer(log, start="latest") as member:
        assert [record.offset for record in member.records(follow=False)] == [0, 1]


def test_two_members_read_every_record_once(log: MemoryLog) -> None:
    fill(log.topic("views"), 50, 40, 30)
    seen: list[tuple[int, int]] = []

    def work() -> None:
        with consumer(log) as member:
            for batch in member.batches(follow=False):
                seen.extend((batch.partition, offset) for offset in batch.table.column("offset").to_pylist())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [(p, o) for p, count in enumerate((50, 40, 30)) for o in range(count)]
    assert offsets(log) == [50, 40, 30]


def test_what_is_in_hand_is_seen_and_a_partition_moves_when_it_is_finished(log: MemoryLog) -> None:
    fill(log.topic("views"), 4, 4, 4)
    with consumer(log) as slow, consumer(log) as other:
        batches = iter(slow)
        first = next(batches)

        def in_hand() -> list[int | None]:
            return [part.in_flight.offset if part.in_flight else None for part in log.groups().describe("web")[0].partitions]

        wanted = [0 if number == first.partition else None for number in range(3)]
        assert until(lambda: in_hand() == wanted)
        assert until(lambda: len(other.partitions) == 1)  # the others of the slow one can move at once
        assert until(lambda: len(slow.partitions) == 2)
        assert first.partition in slow.partitions


def test_a_partition_asked_for_is_handed_over_between_two_records(log: MemoryLog) -> None:
    log.create(TopicSpec("one", 2)).append(0, rows(0, 1, 2, 3))
    log.topic("one").append(1, rows(0, 1, 2, 3))
    with GroupConsumer(log, "web", "one", settings=QUICK) as old:
        records = old.records()
        assert next(records).partition == 0
        with GroupConsumer(log, "web", "one", settings=QUICK) as new:
            assert until(lambda: new.partitions == [1] or bool(old.session.asked))
            for record in records:
                if (record.partition, record.offset) == (0, 3):
                    break
            assert until(lambda: len(new.partitions) == len(old.partitions) == 1)


def expire(leases: ManualClock) -> None:
    leases.advance(1)


def test_a_member_that_lost_its_lease_with_a_batch_in_hand_is_told_so(log: MemoryLog, leases: ManualClock) -> None:
    fill(log.topic("views"), 8, 8, 8)

    with consumer(log) as zombie:
        batches = iter(zombie)
        partition = next(batches).partition
        expire(leases)
        with consumer(log) as heir:
            assert until(lambda: heir.partitions == [0, 1, 2])
            assert until(lambda: zombie.partitions == [])
            with pytest.raises(Fenced, match=rf"not owned by member(?s:.*)belongs to {log.groups().describe()[0].members[0].id}"):
                next(batches)
    assert offsets(log)[partition] == 0


def test_no_more_records_of_a_lost_partition_are_handed_out(log: MemoryLog, leases: ManualClock) -> None:
    fill(log.topic("views"), 4)
    with consumer(log, "before") as zombie:
        records = zombie.records()
        assert next(records).offset == 0
        expire(leases)
        assert until(lambda: zombie.partitions == [])
        with pytest.raises(Fenced, match="no longer in group"):
            next(records)


def test_a_member_that_lost_its_lease_with_empty_hands_sits_down_again(log: MemoryLog, leases: ManualClock) -> None:
    with consumer(log) as member:
        before = log.groups().describe("web")[0].members[0].id
        expire(leases)
        assert until(lambda: [seen.id for seen in log.groups().describe("web")[0].members] not in ([], [before]))
        fill(log.topic("views"), 2)
        assert [record.offset for record in member.records(follow=False)] == [0, 1]


def test_manual_commits_that_come_too_late_are_told_and_the_others_count(log: MemoryLog) -> None:
    fill(log.topic("views"), 1, 1, 1)
    settings = GroupSettings(lease="0.5 seconds", handover="0 seconds")
    with GroupConsumer(log, "web", "views", commit="manual", settings=settings) as old, ExitStack() as later:
        batches = old.batches()
        assert sorted(next(batches).partition for _ in range(3)) == [0, 1, 2]
        new = later.enter_context(consumer(log))
        assert until(lambda: bool(old.session.asked))
        fill(log.topic("views"), 1, 1, 1)
        next(batches)
        assert until(lambda: len(new.partitions) == 1)
        lost = new.partitions
        with pytest.raises(Fenced, match=f"views/{lost[0]} went to another member"):
            old.commit()
        old.commit()
        assert [offset > 0 for offset in offsets(log)] == [number not in lost for number in range(3)]


def test_a_topic_made_again_stops_the_consumer(log: MemoryLog) -> None:
    with consumer(log) as member:
        log.delete("views")
        log.create(TopicSpec("views", 3))
        with pytest.raises(Mismatch, match="deleted and made again"):
            next(iter(member))
    with pytest.raises(Mismatch), consumer(log):
        pass


def test_a_topic_that_was_deleted_stops_the_consumer(log: MemoryLog) -> None:
    with consumer(log) as member:
        log.delete("views")
        with pytest.raises(NotFound):
            next(iter(member))


def test_a_loop_can_be_ended_from_outside(log: MemoryLog) -> None:
    fill(log.topic("views"), 8)
    with consumer(log) as member:
        for record in member.records():
            if record.offset == 2:
                member.stop()
    assert offsets(log)[0] == 3


def test_what_cannot_be_is_refused(log: MemoryLog) -> None:
    for settings in (GroupSettings(max_rows=0), GroupSettings(lease="0 seconds")):
        with pytest.raises(BadInput), GroupConsumer(log, "web", "views", settings=settings):
            pass
    with pytest.raises(BadInput, match="does not say when"):
        consumer(log, "sometimes")
    with pytest.raises(BadInput, match="is a flow"):
        GroupConsumer(log, "flow.web", "views")
    with pytest.raises(BadInput, match="ends at offset 0"), consumer(log, start=7):
        pass
    with pytest.raises(NotFound):
        GroupConsumer(log, "web", "nothing")

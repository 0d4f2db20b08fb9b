"""What every log must pass whose topics ask a judge: `Judged` of `penstock.log.port`."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from penstock.core.arrow import values_in
from penstock.core.time import NEVER, FixedClock
from penstock.errors import BadInput, BadSchema
from penstock.log.cleaning.topics import Cleanable
from penstock.log.port import Appended, Chunk, End, Judge, Judged, Log, Topic
from penstock.testing.contracts.log.samples import DAY, NOW, TYPED, typed, values

Since = Callable[[int], Iterator[Chunk]]


def giving(rows: pa.RecordBatch | None) -> Judge:
    return lambda end, since: rows


def ids_in(chunks: Iterator[Chunk]) -> list[int]:
    return [id for chunk in chunks for id in values_in(chunk.rows.column("id"), int)]


class JudgedContract(ABC):
    """A judge sees all that is acknowledged, and nothing comes between what it saw and what it appends."""

    @abstractmethod
    def make(self, place: Path, clock: FixedClock) -> Log:
        """An empty log that takes its append times from the clock."""

    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock(NOW)

    @pytest.fixture
    def log(self, tmp_path: Path, clock: FixedClock) -> Log:
        return self.make(tmp_path, clock)

    @pytest.fixture
    def topic(self, log: Log) -> Topic:
        return log.create(replace(TYPED, partitions=2))

    @staticmethod
    def judged(topic: Topic) -> Judged:
        return cast(Judged, topic)

    def test_what_the_judge_gives_is_appended_as_one_frame(self, topic: Topic) -> None:
        assert self.judged(topic).append_judged(1, giving(typed([1, 2]))) == Appended(0, 2, duplicate=False)
        assert self.judged(topic).append_judged(1, giving(typed([3]))) == Appended(2, 1, duplicate=False)
        assert values(topic, "id", 1) == [1, 2, 3]
        assert [frame.count for frame in topic.frames(1)] == [2, 1]
        assert values(topic, "id", 0) == []

    def test_a_judge_that_gives_nothing_appends_nothing(self, topic: Topic) -> None:
        assert self.judged(topic).append_judged(0, giving(None)) is None
        topic.append(0, typed([1]))
        assert self.judged(topic).append_judged(0, giving(None)) is None
        assert topic.ends()[0].next == 1

    def test_the_judge_sees_what_stands_before_its_rows(self, topic: Topic) -> None:
        seen: list[tuple[int, list[int]]] = []

        def judge(end: End, since: Since) -> pa.RecordBatch:
            seen.append((end.next, ids_in(since(1))))
            return typed([end.next])

        topic.append(0, typed([0]))
        for _ in range(3):
            self.judged(topic).append_judged(0, judge)
        topic.append(0, None, mark=NOW)
        self.judged(topic).append_judged(0, judge)
        assert seen == [(1, []), (2, [1]), (3, [1, 2]), (4, [1, 2, 3])]

    def test_what_other_writers_appended_is_seen(self, log: Log, topic: Topic) -> None:
        other = log.topic(topic.spec.name)
        self.judged(topic).append_judged(0, giving(typed([0])))
        other.append(0, typed([1, 2]))
        seen = list[int]()

        def judge(end: End, since: Since) -> None:
            seen.extend(ids_in(since(0)))

        self.judged(topic).append_judged(0, judge)
        assert seen == [0, 1, 2]

    def test_of_many_writers_each_sees_the_rows_of_those_before_it(self, topic: Topic) -> None:
        def count(end: End, since: Since) -> pa.RecordBatch:
            return typed([len(ids_in(since(0)))])

        threads = [
            threading.Thread(target=lambda: [self.judged(topic).append_judged(0, count) for _ in range(5)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert values(topic, "id", 0) == list(range(20))

    def test_rows_that_do_not_fit_are_refused_and_nothing_is_appended(self, topic: Topic) -> None:
        with pytest.raises(BadSchema):
            self.judged(topic).append_judged(0, giving(pa.record_batch({"other": pa.array([1])})))
        assert self.judged(topic).append_judged(0, giving(typed([1]))) == Appended(0, 1, duplicate=False)

    def test_an_error_of_the_judge_reaches_the_caller(self, topic: Topic) -> None:
        def judge(end: End, since: Since) -> None:
            raise BadInput("the judge says no")

        with pytest.raises(BadInput, match="the judge says no"):
            self.judged(topic).append_judged(0, judge)
        assert self.judged(topic).append_judged(0, giving(typed([1]))) == Appended(0, 1, duplicate=False)

    def test_frames_are_found_by_offsets(self, topic: Topic) -> None:
        for first in range(0, 40, 2):
            topic.append(0, typed([first, first + 1]))
            topic.append(0, None, mark=NOW + first)
        found = list(self.judged(topic).read_at(0, [0, 1, 7, 39], ["id"]))
        assert [chunk.offsets.tolist() for chunk in found] == [[0, 1], [6, 7], [38, 39]]
        assert [ids for chunk in found for ids in chunk.rows.column("id").to_pylist()] == [0, 1, 6, 7, 38, 39]
        assert list(self.judged(topic).read_at(0, [40, 41])) == []
        assert list(self.judged(topic).read_at(1, [0])) == []

    def test_offsets_that_were_removed_are_left_out(self, log: Log, clock: FixedClock) -> None:
        topic = log.create(replace(TYPED, retain=timedelta(days=1)))
        for number in range(4):
            topic.append(0, typed([number]))
        clock.set(NOW + 2 * DAY)
        cast(Cleanable, log).clean(topic.spec.name)
        topic.append(0, typed([4]))
        first = topic.ends()[0].first
        assert first > 0
        assert ids_in(self.judged(topic).read_at(0, [0, 1, 4])) == [4]
        assert self.judged(topic).append_judged(0, lambda end, since: typed([end.first, *ids_in(since(0))])) is not None
        assert ids_in(topic.read(0, first)) == [*range(first, 5), first, *range(first, 5)]

    def test_offsets_are_found_in_what_was_rewritten_and_compacted(self, log: Log) -> None:
        topic = log.create(replace(TYPED, compact=True))
        for number in range(12):
            key: pa.Array = pa.array([b"%d" % (number % 3)], pa.binary())
            topic.append(0, typed([number], __key=key))
        cast(Cleanable, log).clean(topic.spec.name)
        rows = {
            o: i
            for c in self.judged(topic).read_at(0, range(12))
            for o, i in zip(c.offsets.tolist(), ids_in(iter([c])), strict=True)
        }
        assert rows.items() >= {9: 9, 10: 10, 11: 11}.items()
        seen = list[int]()
        self.judged(topic).append_judged(0, lambda end, since: seen.extend(ids_in(since(0))))
        assert set(seen) == set(rows.values())

    def test_producers_cannot_append_to_an_event_store(self, log: Log) -> None:
        topic = log.create(replace(TYPED, events=True))
        with pytest.raises(BadInput, match="is an event store"):
            topic.append(0, typed([1]))
        topic.append(0, None, mark=NOW)
        assert self.judged(topic).append_judged(0, giving(typed([1]))) == Appended(0, 1, duplicate=False)
        assert log.topic(topic.spec.name).spec.events
        assert topic.ends()[0].mark == NOW > NEVER

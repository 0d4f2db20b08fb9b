"""Retention: by age, by size, never before it was read without saying so."""

from datetime import timedelta

import pyarrow as pa
import pytest

from faults.cleaning_model import NOW, SCHEMA, SECOND, Model, Row
from penstock.core.time import NEVER, FixedClock
from penstock.errors import OffsetGone
from penstock.log.cleaning.topics import clean_topics
from penstock.log.file.log import FileLog
from penstock.log.holding import Held
from penstock.log.port import Sender, TopicSpec
from penstock.storage.memory import MemoryStorage

HOUR = 3600 * SECOND


class Retained:
    """A topic whose rows are an hour apart, two of them in a segment."""

    def __init__(self, rows: int = 10, **settings: object) -> None:
        self.clock, self.storage = FixedClock(NOW), MemoryStorage()
        self.log = FileLog(self.storage, self.clock, 700)
        self.topic = self.log.create(TopicSpec("t", schema=SCHEMA, time="at", **settings))  # type: ignore[arg-type]
        self.model = Model(self.topic.spec)
        for number in range(rows):
            self.clock.set(NOW + number * HOUR)
            self.model.append(self.topic, [Row(number, b"k", NOW + number)], NEVER, Sender("p", 0, number), self.clock.now())

    def first(self, *held: Held) -> int:
        self.topic.clean(held)
        self.model.removable |= set(range(self.topic.ends()[0].first))
        self.model.check(self.log.topic("t"))
        return self.topic.ends()[0].first


def test_records_older_than_the_retention_go_and_younger_ones_stay() -> None:
    topic = Retained(retain=timedelta(hours=5))
    assert 2 <= topic.first() <= 5  # rows 0 to 4 are five hours old or more; whole segments go
    assert topic.first() == topic.first()


def test_a_topic_without_retention_keeps_everything() -> None:
    assert Retained().first() == 0


def test_the_segment_that_is_written_to_goes_too_once_all_of_it_is_old_and_offsets_go_on() -> None:
    topic = Retained(retain=timedelta(hours=5))
    topic.clock.set(NOW + 100 * HOUR)
    assert topic.first() == 10
    assert topic.topic.ends()[0].time == NOW + 9
    assert list(topic.topic.read(0, 10)) == []
    assert topic.topic.append(0, next(iter(Retained(1).topic.read(0))).rows.select(["id", "at"])).base == 10
    assert topic.topic.append(0, None, mark=NOW, sender=Sender("p", 0, 9)).duplicate
    assert topic.log.topic("t").ends()[0][:2] == (10, 11)


def test_a_partition_keeps_at_least_its_bytes() -> None:
    topic = Retained(retain_bytes=2_500, rows=30)
    first = topic.first()
    assert 15 < first < 28
    [done] = topic.topic.clean()
    assert done.bytes > 2_000
    assert Retained(retain_bytes=1 << 40, rows=30).first() == 0


def test_what_a_reader_has_not_read_is_held_up_to_the_limit() -> None:
    topic = Retained(retain=timedelta(hours=2), hold=timedelta(hours=100))
    topic.clock.set(NOW + 50 * HOUR)
    slow, quick = Held("slow", "t", 0, 3, NOW), Held("quick", "t", 0, 10, NOW)
    assert topic.first(slow, quick) == 2
    [done] = topic.topic.clean([slow, quick])
    assert [held.reader for held in done.waiting] == ["slow"]
    assert topic.first(quick) == 10


def test_what_goes_unread_is_told_with_reader_and_range_and_is_remembered() -> None:
    topic = Retained(retain=timedelta(hours=2), hold=timedelta(hours=3))
    topic.clock.set(NOW + 9 * HOUR)
    said: list[str] = []
    clean_topics(topic.log, lambda name: [Held("slow", name, 0, 1, NOW)], said.append)
    assert topic.topic.ends()[0].first == 4
    assert said == [
        "topic t, partition 0: offsets 1 to 3 were removed although slow has not read them: they were held for 3 hours "
        "beyond their time (topic alter --hold)"
    ]
    assert [(lost.reader, lost.first, lost.end) for lost in topic.topic.lost(0)] == [("slow", 1, 4)]
    with pytest.raises(OffsetGone, match="offsets 1 to 3 were removed by retention"):
        topic.topic.read(0, 1)


def test_a_reader_of_another_process_sees_the_first_offset_move() -> None:
    topic = Retained(retain=timedelta(hours=5))
    other = FileLog(topic.storage, topic.clock, 700).topic("t")
    assert other.ends()[0].first == 0
    assert topic.first() == other.ends()[0].first > 0


def test_one_topic_that_cannot_be_cleaned_does_not_keep_the_others_from_it() -> None:
    topic = Retained(retain=timedelta(hours=5))
    bad = topic.log.create(TopicSpec("bad"))
    for _ in range(10):
        bad.append(0, pa.record_batch({"value": [b"x" * 300]}))
    path = sorted(p for p in topic.storage.files if "/bad/" in p and p.endswith(".log"))[1]
    topic.storage.files[path][100] ^= 1
    said: list[str] = []
    done = clean_topics(topic.log, say=said.append)
    assert [one.topic for one in done] == ["t"]
    assert said == ["topic bad could not be cleaned: topic bad, partition 0 is damaged at offset 1"]

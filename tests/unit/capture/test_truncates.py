"""Truncates as deletes of the keys that a topic has, however topics and batches are cut."""

from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from capture_scripted import TABLES, USERS, batch_of, random_script
from capture_topics import events_of
from penstock.capture.port import Truncate
from penstock.capture.writing.gathering import by_table
from penstock.capture.writing.truncates import live_keys, without_truncates
from penstock.core.arrow import values_in
from penstock.core.columns import KEY, VALUE
from penstock.log.memory import MemoryLog
from penstock.log.port import Topic, TopicSpec


def topic_with(*frames: list[tuple[str, str | None]], partitions: int = 1) -> Topic:
    topic = MemoryLog().create(TopicSpec("t", partitions))
    for number, frame in enumerate(frames):
        values = pa.array([None if value is None else value.encode() for _, value in frame], pa.binary())
        rows = pa.record_batch([values, pa.array([key.encode() for key, _ in frame], pa.binary())], [VALUE, KEY])
        topic.append(number % partitions, rows)
    return topic


def test_live_keys_are_those_whose_last_record_is_no_tombstone() -> None:
    topic = topic_with([("a", "1"), ("b", "1")], [("a", "d"), ("a", None), ("c", "1")], [("a", "2")])
    assert list(live_keys(topic, [6])) == ["b", "c", "a"]


def test_records_behind_the_ends_do_not_count() -> None:
    topic = topic_with([("a", "1"), ("b", "1"), ("b", None), ("c", "1")])
    assert [list(live_keys(topic, [end])) for end in range(5)] == [[], ["a"], ["a", "b"], ["a"], ["a", "c"]]


def test_every_partition_counts_up_to_its_own_end() -> None:
    topic = topic_with([("a", "1"), ("b", "1")], [("c", "1"), ("d", "1")], partitions=2)
    assert list(live_keys(topic, [2, 1])) == ["a", "b", "c"]
    assert list(live_keys(topic, ())) == []


@given(st.integers(0, 2**32))
def test_a_whole_script_at_once_has_the_deletes_of_one_step_after_the_other(seed: int) -> None:
    script = random_script(Random(seed), 8, truncates=0.3)
    batch = batch_of(script, (0, 0), (len(script), 0))
    found = without_truncates(by_table(batch.changes), batch.truncates, lambda table: {})
    gathered = by_table(each for parts in found.values() for each in parts)
    every = events_of(script)
    for table in TABLES:
        ops, keys = gathered[table].op.tolist(), values_in(gathered[table].key, str)
        should = [(event.op, event.key) for event in every if event.table == table]
        assert [(chr(op), key) for op, key in zip(ops, keys, strict=True)] == should


def test_a_truncate_of_an_empty_table_deletes_nothing() -> None:
    ((changes,),) = without_truncates({}, [Truncate(USERS, 0, 3)], lambda table: {}).values()
    assert len(changes) == 0

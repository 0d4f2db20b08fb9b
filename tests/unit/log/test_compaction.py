"""Compaction: the latest row of every key, with its own offset; deletes for as long as they are needed."""

import random
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from colliding import colliding
from faults.cleaning_model import NOW, SCHEMA, SECOND, Model, Row
from penstock.core.columns import KEY
from penstock.core.time import NEVER, FixedClock
from penstock.log.cleaning.compaction import Latest, latest
from penstock.log.file.log import FileLog
from penstock.log.file.topic import FileTopic
from penstock.log.holding import Held
from penstock.log.port import Chunk, Frame, TopicSpec
from penstock.storage.local import LocalStorage
from penstock.storage.memory import MemoryStorage

MINUTE = 60 * SECOND


def chunks_of(keys: list[bytes | None], size: int) -> list[Chunk]:
    found = []
    for start in range(0, len(keys), size):
        some = keys[start : start + size]
        rows = pa.record_batch({"value": pa.array([b"v"] * len(some), pa.binary()), KEY: pa.array(some, pa.binary())})
        found.append(Chunk(Frame(start, len(some), NOW, NOW, NOW, NOW, NEVER, NEVER, NEVER), rows))
    return found


def looked_through(keys: list[bytes | None], size: int = 7, **options: int) -> Latest:
    chunks = chunks_of(keys, size)
    return latest(lambda: iter(chunks), len(keys), True, lambda offsets: np.zeros(len(offsets), np.bool_), **options)


def kept(keys: list[bytes | None], size: int = 7, **options: int) -> list[int]:
    found = looked_through(keys, size, **options)
    assert found.keyless == keys.count(None)
    return np.flatnonzero(found.keep(0, len(keys))).tolist()


def naive(keys: list[bytes | None]) -> list[int]:
    newest = {key: at for at, key in enumerate(keys)}
    return [at for at, key in enumerate(keys) if key is None or newest[key] == at]


def random_keys(seed: int, count: int = 300) -> list[bytes | None]:
    rng = random.Random(seed)
    return [rng.choice([None, b"", b"%d" % rng.randrange(40), b"\0" * rng.randrange(5)]) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_the_latest_row_of_every_key_is_kept_and_rows_without_a_key_are(seed: int) -> None:
    keys = random_keys(seed)
    assert kept(keys) == naive(keys)


@pytest.mark.parametrize("seed", range(5))
def test_keys_whose_hashes_agree_are_not_taken_for_one(seed: int) -> None:
    rng, same = random.Random(seed), [key.encode() for key in colliding(40)]
    keys = [rng.choice([None, b"other", *same]) for _ in range(300)]
    assert kept(keys, slice_bytes=4_000) == naive(keys)


def test_memory_is_bounded_by_looking_at_a_slice_of_the_keys_at_a_time() -> None:
    keys: list[bytes | None] = [b"%d" % (i * 7 % 500) for i in range(1_000)]
    assert kept(keys, slice_bytes=4_000) == naive(keys)
    assert looked_through(keys, slice_bytes=4_000).largest < 200
    assert looked_through(keys).largest == 1_000


class Compacted:
    """A compacted topic with a model beside it."""

    def __init__(self, storage: LocalStorage | MemoryStorage | None = None, **settings: object) -> None:
        self.clock = FixedClock(NOW)
        self.log = FileLog(storage or MemoryStorage(), self.clock, 2_000)
        self.topic: FileTopic = self.log.create(TopicSpec("t", schema=SCHEMA, time="at", compact=True, **settings))  # type: ignore[arg-type]
        self.model = Model(self.topic.spec)
        self.ids = 0

    def put(self, key: bytes | None, delete: bool = False, time: int = NOW, mark: int = NEVER) -> None:
        self.model.append(self.topic, [Row(self.ids, key, time, delete)], mark, None, self.clock.now())
        self.ids += 1

    def clean(self, *held: Held) -> list[int]:
        """Cleans; the offsets that are left."""
        self.model.cleaned(self.clock.now())
        self.topic.clean(held)
        self.model.tombstones_over()
        return self.model.check(self.topic)


def test_a_delete_is_kept_for_its_time_after_it_was_compacted_first_and_then_goes() -> None:
    assert tombstones_keep_their_time()


def tombstones_keep_their_time() -> bool:
    topic = Compacted(tombstones=timedelta(minutes=10))
    for key, delete in ((b"a", False), (b"b", False), (b"a", True)):
        topic.put(key, delete)
    topic.clock.set(NOW + 60 * MINUTE)  # old by append time: what counts is when it was compacted
    seen = [topic.clean()]
    topic.clock.set(topic.clock.now() + 9 * MINUTE)
    topic.put(b"c")
    seen.append(topic.clean())
    topic.clock.set(topic.clock.now() + 1 * MINUTE)
    seen.append(topic.clean())
    return seen == [[1, 2], [1, 2, 3], [1, 3]]


def test_a_delete_waits_for_a_reader_that_has_not_seen_it_up_to_the_limit_and_then_it_is_told() -> None:
    topic = Compacted(tombstones=timedelta(minutes=1), hold=timedelta(minutes=30))
    for key, delete in ((b"a", False), (b"a", True), (b"b", False)):
        topic.put(key, delete)
    slow = Held("slow", "t", 0, 1, NOW)
    assert topic.clean(slow) == [1, 2]
    topic.clock.set(NOW + 20 * MINUTE)
    assert topic.clean(slow) == [1, 2]
    topic.clock.set(NOW + 31 * MINUTE)
    [done] = topic.topic.clean([slow])
    assert [(lost.reader, lost.first, lost.end) for lost in done.lost] == [("slow", 1, 2)]
    assert topic.model.check(topic.topic) == [2]


def test_a_key_that_was_deleted_and_written_again_is_there() -> None:
    topic = Compacted(tombstones=timedelta(0))
    topic.put(b"a")
    topic.put(b"a", delete=True)
    topic.clean()
    topic.put(b"a")
    topic.put(b"b")
    assert topic.clean() == [2, 3]


def test_nothing_is_rewritten_where_nothing_changed() -> None:
    topic = Compacted()
    for i in range(40):
        topic.put(b"%d" % (i % 5))
    assert topic.clean() == [35, 36, 37, 38, 39]
    topic.clean()  # small segments that are left become one
    files = set(topic.log.storage.files)  # type: ignore[attr-defined]
    [done] = topic.topic.clean()
    assert not done.changed
    assert set(topic.log.storage.files) == files  # type: ignore[attr-defined]


def test_in_the_background_a_topic_is_compacted_once_much_of_it_is_new() -> None:
    topic = Compacted()
    for i in range(40):
        topic.put(b"%d" % i)
    topic.clean()
    for i in range(10):
        topic.put(b"%d" % i)
    topic.model.cleaned(NOW)
    [done] = topic.topic.clean(eager=False)
    assert done.rows == 50
    for i in range(30):
        topic.put(b"%d" % (10 + i))
    topic.model.cleaned(NOW)
    [done] = topic.topic.clean(eager=False)
    assert done.rows < 50


def test_rows_that_are_gone_still_count_in_the_greatest_time_before_those_that_follow() -> None:
    topic = Compacted()
    for i in range(30):
        topic.put(b"%d" % (i % 4), time=NOW + (i * 7 % 30) * SECOND, mark=NOW + i if i % 10 == 5 else NEVER)
    assert topic.clean() == [26, 27, 28, 29]  # the model compares time and mark before every row
    assert topic.topic.ends()[0].time == NOW + 29 * SECOND


def test_a_read_that_began_before_a_cleaning_goes_on_behind_it_without_a_row_twice(tmp_path: Path) -> None:
    topic = Compacted(LocalStorage(tmp_path, sync=False))
    for i in range(60):
        topic.put(b"shared" if i % 3 else b"own %d" % i, time=NOW + i)
    fresh = topic.log.topic("t")
    reading = fresh.read(0)
    seen = [next(reading).offsets[0] for _ in range(4)]
    topic.clean()
    for chunk in reading:
        assert seen[-1] < chunk.offsets[0]
        assert chunk.rows.column("id").to_pylist() == chunk.offsets.tolist()
        assert chunk.frame.time_before >= NOW + seen[-1]
        seen += chunk.offsets.tolist()
    assert set(range(0, 60, 3)) | {59} <= set(seen)

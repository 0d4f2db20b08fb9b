"""How a topic is cut into batches and tasks; no JVM needed to show it."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.engine.datasource.options import read_options
from penstock.engine.datasource.read import Slice, TopicReader, TopicStream, limited, slices
from penstock.engine.datasource.rows import Shape, default_schema
from penstock.errors import Mismatch
from penstock.log.open import open_log
from penstock.log.port import Topic, TopicSpec


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """Frames of 4, 4 and 4 rows in partition 0, and of 2 and 10 in partition 1, appended in turn."""
    made = open_log(tmp_path).create(TopicSpec("orders", partitions=2))
    for partition, rows in ((0, 4), (1, 2), (0, 4), (1, 10), (0, 4)):
        made.append(partition, pa.record_batch({"value": pa.array([b"{}"] * rows, pa.binary())}))
    return made


def cut(topic: Topic, start: dict[int, int], stop: dict[int, int], rows: int) -> list[tuple[int, int, int]]:
    return [(s.partition, s.start, s.stop) for s in slices(topic, start, stop, rows)]


def test_tasks_are_cut_at_frames(topic: Topic) -> None:
    assert cut(topic, {0: 0, 1: 0}, {0: 12, 1: 12}, 100) == [(0, 0, 12), (1, 0, 12)]
    assert cut(topic, {0: 0, 1: 0}, {0: 12, 1: 12}, 5) == [(0, 0, 8), (0, 8, 12), (1, 0, 12)]
    assert cut(topic, {0: 1, 1: 2}, {0: 6, 1: 2}, 1) == [(0, 1, 4), (0, 4, 6)]


def test_batch_takes_whole_frames_the_oldest_first(topic: Topic) -> None:
    ends = {0: 12, 1: 12}
    assert limited(topic, {0: 0, 1: 0}, ends, 7) == {0: 4, 1: 2}
    assert limited(topic, {0: 0, 1: 0}, ends, 10) == {0: 8, 1: 2}
    assert limited(topic, {0: 0, 1: 0}, ends, 1000) == ends


def test_frame_larger_than_a_batch_is_a_batch_of_its_own(topic: Topic) -> None:
    assert limited(topic, {0: 8, 1: 2}, {0: 12, 1: 12}, 3) == {0: 8, 1: 12}


def test_every_limit_comes_to_the_end(topic: Topic) -> None:
    for rows in range(1, 30):
        reached, batches = {0: 0, 1: 0}, 0
        while reached != {0: 12, 1: 12}:
            before, reached = reached, limited(topic, reached, {0: 12, 1: 12}, rows)
            assert reached != before
            batches += 1
        assert batches <= 5


def test_topic_made_again_between_plan_and_task_is_noticed(topic: Topic, tmp_path: Path) -> None:
    options = read_options({"topic": "orders"}, tmp_path, "read")
    shape = Shape.of(topic.spec, default_schema(topic.spec, system=False), system=False)
    reader, stream = TopicReader(options, shape), TopicStream(options, shape)
    planned, offset = reader.partitions(), stream.initialOffset()
    assert sum(batch.num_rows for part in planned for batch in reader.read(part)) == 24
    open_log(tmp_path).delete("orders")
    open_log(tmp_path).create(topic.spec)
    for again in (lambda: reader.read(planned[0]), lambda: stream.partitions(offset, offset)):
        with pytest.raises(Mismatch, match="topic orders was deleted and made again"):
            again()
    assert isinstance(planned[0], Slice)

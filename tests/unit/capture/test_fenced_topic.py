"""Frames under the numbers of batches: each once, and none from a start that was replaced."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.capture.writing.fenced_topic import FencedTopic, sender_of
from penstock.core.arrow import values_in
from penstock.core.columns import KEY, VALUE
from penstock.core.time import NEVER, SystemClock
from penstock.errors import Fenced
from penstock.log.file.log import FileLog
from penstock.log.intake.checked import CheckedRows
from penstock.log.memory import MemoryLog, MemoryTopic
from penstock.log.port import Appended, Log, Sender, Topic, TopicSpec
from penstock.storage.memory import MemoryStorage

LOGS: dict[str, Callable[[], Log]] = {"memory": MemoryLog, "file": lambda: FileLog(MemoryStorage())}


@pytest.fixture(params=LOGS)
def topic(request: pytest.FixtureRequest) -> Topic:
    return LOGS[request.param]().create(TopicSpec("t", 2, capture="shop"))


def rows_of(text: str) -> pa.RecordBatch:
    return pa.record_batch([pa.array([text.encode()], pa.binary())] * 2, [VALUE, KEY])


def texts(topic: Topic, partition: int = 0) -> list[str]:
    return [value.decode() for chunk in topic.read(partition) for value in values_in(chunk.rows.column(VALUE), bytes)]


def fenced(topic: Topic, generation: int) -> FencedTopic:
    made = FencedTopic(topic, "shop")
    made.fence(generation)
    return made


def test_a_batch_is_appended_once_whichever_start_repeats_it(topic: Topic) -> None:
    first = fenced(topic, 0)
    assert first.append(0, rows_of("1"), 1)
    assert not first.append(0, rows_of("1 again"), 1)
    later = fenced(topic, 1)
    assert not later.append(0, rows_of("1 once more"), 1)
    assert later.append(1, rows_of("1"), 1)
    assert later.append(0, rows_of("5"), 5)  # batches without rows for this topic have no frame
    assert (texts(topic), texts(topic, 1)) == (["1", "5"], ["1"])


def test_an_older_start_is_refused_in_every_partition_although_the_newer_one_has_written_nothing(topic: Topic) -> None:
    older = fenced(topic, 0)
    older.append(0, rows_of("1"), 1)
    newer = fenced(topic, 1)
    for partition in (0, 1):
        with pytest.raises(Fenced):
            older.append(partition, rows_of("2"), 2)
    assert newer.append(0, rows_of("2"), 2)
    assert (texts(topic), texts(topic, 1)) == (["1", "2"], [])


def test_generations_are_remembered(topic: Topic) -> None:
    assert FencedTopic(topic, "shop").seen() == -1
    fenced(topic, 3)
    assert FencedTopic(topic, "shop").seen() == 3
    assert FencedTopic(topic, "other").seen() == -1


class Racing(MemoryTopic):
    """An older start appends between the look at the topic and the stamp."""

    older: FencedTopic | None = None

    def append(
        self, partition: int, rows: pa.RecordBatch | CheckedRows | None, *, mark: int = NEVER, sender: Sender | None = None
    ) -> Appended:
        older, self.older = self.older, None
        if older:
            assert older.append(0, rows_of("late"), 7)
        return super().append(partition, rows, mark=mark, sender=sender)


def test_what_an_older_start_appends_in_the_last_moment_is_seen() -> None:
    topic = Racing(TopicSpec("t", 2), SystemClock())
    topic.older = fenced(topic, 0)
    newer = fenced(topic, 1)
    assert not newer.append(0, rows_of("late again"), 7)
    assert newer.append(0, rows_of("8"), 8)
    assert texts(topic) == ["late", "8"]


def test_frames_bear_the_name_of_the_capture(topic: Topic) -> None:
    fenced(topic, 2).append(0, rows_of("1"), 4)
    assert topic.senders(0)[sender_of("shop")][:3] == ("capture/shop", 2, 4)

"""Places in a large log are found without a look at all of it."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.schema import TIMESTAMP, Schema
from penstock.core.time import FixedClock
from penstock.log.consumer import records
from penstock.log.file import segment
from penstock.log.file.log import FileLog
from penstock.log.file.topic import FileTopic
from penstock.log.port import TopicSpec
from penstock.storage.local import LocalStorage

NOW = 1_700_000_000_000_000
DAY = 86_400_000_000
SPEC = TopicSpec("t", schema=Schema.of("id long, at timestamp"), time="at", durability="os")


def row(id: int, at: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array([id], pa.int64()), "at": pa.array([at], TIMESTAMP)})


class Counted:
    """Counts the frames whose headers are looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames, real = 0, segment.frame_start

        def counting(data: memoryview, at: int, limit: int) -> tuple[int, int, int]:
            self.frames += 1
            return real(data, at, limit)

        monkeypatch.setattr(segment, "frame_start", counting)

    def since(self) -> int:
        seen, self.frames = self.frames, 0
        return seen


def filled(root: Path, segment_size: int, frames: int) -> FileTopic:
    log = FileLog(LocalStorage(root), FixedClock(NOW), segment_size)
    topic = log.create(SPEC)
    for id in range(frames):
        topic.append(0, row(id, NOW + id))
    return FileLog(LocalStorage(root), FixedClock(NOW), segment_size).topic("t")


def test_the_end_of_a_segment_of_many_frames_is_found_without_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = filled(tmp_path, 1 << 30, 6_000)
    counted = Counted(monkeypatch)
    assert topic.ends()[0].next == 6_000
    assert [r.value["id"] for r in records(topic, start=5_990)] == list(range(5_990, 6_000))
    assert [r.value["id"] for r in records(topic, start=3_000, stop=3_003)] == [3_000, 3_001, 3_002]
    assert counted.since() < 3_000
    assert topic.reaching(0, NOW + 5_000) == 5_000
    assert counted.since() < 1_500
    assert len(topic.frames(0)) == 6_000


def test_a_time_is_found_with_a_look_at_few_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = filled(tmp_path, 2_000, 600)
    assert topic.describe()["segments"] > 100
    counted = Counted(monkeypatch)
    for wanted in (0, 1, 299, 598, 599):
        assert topic.reaching(0, NOW + wanted) == wanted
        assert counted.since() < 20
    assert topic.reaching(0, NOW + 600) is None
    assert topic.reaching(0, NOW - 600) == 0


@pytest.mark.parametrize("segment_size", [700, 5_000, 1 << 20])
def test_a_time_finds_the_first_frame_that_reaches_it_however_times_are_mixed(tmp_path: Path, segment_size: int) -> None:
    rng = random.Random(segment_size)
    log = FileLog(LocalStorage(tmp_path), FixedClock(NOW), segment_size)
    topic = log.create(SPEC)
    times = [NOW + rng.choice([rng.randrange(-100, 100), 3 * DAY + rng.randrange(5)]) for _ in range(60)]
    times = [NOW + i if i < 40 and t > NOW + DAY else t for i, t in enumerate(times)]
    for id, at in enumerate(times):
        if id % 7 == 3:
            topic = FileLog(LocalStorage(tmp_path), FixedClock(NOW), segment_size).topic("t")  # must learn what is there
        topic.append(0, row(id, at))
    for since in sorted({t + d for t in times for d in (-1, 0, 1)}):
        assert topic.reaching(0, since) == next((id for id, at in enumerate(times) if at >= since), None)


def test_a_segment_without_its_index_is_read_all_the_same(tmp_path: Path) -> None:
    topic = filled(tmp_path, 300_000, 3_000)
    for path in sorted(tmp_path.rglob("*.acks"))[:-1]:
        path.unlink()
    topic = FileLog(LocalStorage(tmp_path), FixedClock(NOW), 300_000).topic("t")
    assert topic.reaching(0, NOW + 2_000) == 2_000
    assert [r.value["id"] for r in records(topic, start=900, stop=903)] == [900, 901, 902]
    assert len(topic.frames(0)) == 3_000

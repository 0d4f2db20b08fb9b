"""A batch of a Spark stream is decided once and appended once, whatever comes between; no JVM needed to show it."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.schema import Schema
from penstock.engine.datasource import staging as datasource_staging
from penstock.engine.datasource.ingest import Ingest, written
from penstock.engine.datasource.staging import Part, stage
from penstock.errors import DiskFull, Mismatch
from penstock.log.consumer import records
from penstock.log.open import open_log
from penstock.log.port import Appended, Sender, Topic, TopicSpec
from penstock.storage.local import LocalStorage


class FailsAfter:
    """A topic that takes a number of frames and then says that the disk is full."""

    def __init__(self, topic: Topic, frames: int) -> None:
        self._topic, self._left = topic, frames

    def __getattr__(self, name: str) -> object:
        return getattr(self._topic, name)

    def append(self, partition: int, rows: pa.RecordBatch, *, sender: Sender) -> Appended:
        if self._left == 0:
            raise DiskFull("no space")
        self._left -= 1
        return self._topic.append(partition, rows, sender=sender)


class Bench:
    """A topic with two partitions, and writers of batches into it."""

    def __init__(self, path: Path) -> None:
        self.storage = LocalStorage(path / "ingest")
        spec = TopicSpec("clicks", partitions=2, schema=Schema.of("user long, n long"), key="user")
        self.topic: Topic = open_log(path).create(spec)

    def ingest(self, checkpoint: str = "c1", topic: Topic | None = None) -> Ingest:
        return Ingest(self.storage, topic or self.topic, "w", checkpoint)

    def staged(self, batch: int, numbers: range, users: int = 7) -> list[Part]:
        rows = pa.record_batch({"user": [n % users for n in numbers], "n": list(numbers)})
        return stage(self.storage, self.ingest().staging(batch), self.topic, [rows] if numbers else [])

    def numbers(self) -> list[int]:
        return sorted(r.value["n"] for r in records(self.topic))  # type: ignore[index]

    def files(self) -> list[str]:
        root = Path(self.storage.root)
        return sorted(p.name for p in root.rglob("*") if p.is_file() and p.name != "life.json")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_batch_is_added_once_and_leaves_nothing_behind(bench: Bench) -> None:
    assert bench.ingest().commit(0, bench.staged(0, range(10)))
    assert not bench.ingest().commit(0, bench.staged(0, range(10)))
    assert bench.ingest().commit(1, bench.staged(1, range(10, 15)))
    assert bench.numbers() == list(range(15))
    assert bench.files() == []
    assert written(bench.topic, "w", {0: 0, 1: 0}) == (15, 2)


@pytest.mark.parametrize("frames", [0, 1])
def test_batch_that_failed_half_way_is_completed_with_the_rows_decided_first(bench: Bench, frames: int) -> None:
    first = bench.staged(0, range(10))
    failing = bench.ingest(topic=FailsAfter(bench.topic, frames))  # type: ignore[arg-type]
    with pytest.raises(DiskFull):
        failing.commit(0, first)
    failing.abandon(0, first)
    assert bench.numbers() != list(range(10))
    # Spark repeats the batch, and this time its rows are others, and would go to other partitions.
    bench.ingest().commit(0, bench.staged(0, range(100, 130), users=3))
    assert bench.numbers() == list(range(10))
    assert bench.files() == []


def test_batch_that_fails_before_it_is_decided_leaves_no_files(bench: Bench) -> None:
    parts = bench.staged(0, range(10))
    bench.ingest().abandon(0, parts)
    assert bench.files() == []


def test_batch_with_rows_for_one_partition_only_is_known_again(bench: Bench) -> None:
    for users in range(1, 8):  # one user at a time: some live in the first partition, some in the last
        bench.ingest().commit(users, bench.staged(users, range(users * 10, users * 10 + 3), users=1))
        assert not bench.ingest().commit(users, bench.staged(users, range(users * 10, users * 10 + 3), users=1))
    assert len(bench.numbers()) == 21


def test_large_batch_is_cut_into_frames_and_still_known_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasource_staging, "FRAME_BYTES", 1_000)
    parts = [*bench.staged(0, range(500)), *bench.staged(0, range(500, 1000))]
    failing = bench.ingest(topic=FailsAfter(bench.topic, 5))  # type: ignore[arg-type]
    with pytest.raises(DiskFull):
        failing.commit(0, parts)
    bench.ingest().commit(0, parts)
    assert bench.numbers() == list(range(1000))
    assert len(bench.topic.frames(0)) > 5
    assert not bench.ingest().commit(0, bench.staged(0, range(10)))


def test_driver_that_slept_adds_nothing_when_it_wakes(bench: Bench) -> None:
    asleep = bench.staged(0, range(50, 60))
    bench.ingest().commit(0, bench.staged(0, range(10)))
    bench.ingest().commit(1, bench.staged(1, range(10, 20)))
    with pytest.raises(Mismatch, match=r"comes with batch 0; topic clicks has its batch 1"):
        bench.ingest().commit(0, asleep)
    assert bench.numbers() == list(range(20))


def test_empty_batch_adds_no_frame(bench: Bench) -> None:
    assert not bench.ingest().commit(0, bench.staged(0, range(0)))
    assert [len(bench.topic.frames(n)) for n in (0, 1)] == [0, 0]


def test_writer_keeps_to_its_checkpoint_and_topic(bench: Bench, tmp_path: Path) -> None:
    bench.ingest().commit(0, bench.staged(0, range(10)))
    with pytest.raises(Mismatch, match="from another checkpoint"):
        bench.ingest("c2").commit(0, bench.staged(0, range(10, 20)))
    log = open_log(tmp_path)
    log.delete("clicks")
    bench.topic = log.create(bench.topic.spec)
    with pytest.raises(Mismatch, match="was deleted and made again since writer w began"):
        bench.ingest().commit(1, bench.staged(1, range(20, 30)))
    bench.ingest("c2").commit(0, bench.staged(0, range(30, 40)))
    assert bench.numbers() == list(range(30, 40))

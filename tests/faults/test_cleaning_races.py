"""Readers, writers and several cleaners at once: a reader gets its rows or is told that they are gone, never wrong ones."""

import random
import threading
import traceback
from datetime import timedelta
from pathlib import Path

import pytest

from faults.cleaning_model import NOW, SCHEMA, SECOND, Row, batch
from faults.seeds import SEED
from penstock.core.time import NEVER, FixedClock
from penstock.errors import OffsetGone
from penstock.log.file.log import FileLog
from penstock.log.file.topic import FileTopic
from penstock.log.port import TopicSpec
from penstock.storage.local import LocalStorage

pytestmark = pytest.mark.faults
KEYS = 20


class Race:
    """One writer whose row at offset n has the id n and the key n % 20; readers and cleaners beside it."""

    def __init__(self, root: Path, spec: TopicSpec) -> None:
        self.root, self.spec, self.clock = root, spec, FixedClock(NOW)
        self.opened().create(spec)
        self.over = threading.Event()
        self.failed: list[BaseException] = []
        self.reads = self.gone = self.cleanings = self.written = 0

    def opened(self) -> FileLog:
        return FileLog(LocalStorage(self.root, sync=False), self.clock, 3_000)

    def write(self, appends: int) -> None:
        topic, rng = self.opened().topic("t"), random.Random(SEED)
        for _ in range(appends):
            count = rng.randint(1, 4)
            ids = range(self.written, self.written + count)
            mark = NOW + self.written if rng.random() < 0.1 else NEVER
            topic.append(0, batch([Row(id, b"%d" % (id % KEYS), NOW + id) for id in ids]), mark=mark)
            self.written += count
            self.clock.set(self.clock.now() + SECOND)

    def read(self, seed: int) -> None:
        rng, topic = random.Random(seed), self.opened().topic("t")
        while not self.over.is_set():
            if rng.random() < 0.3:
                topic = self.opened().topic("t")
            end = topic.ends()[0]
            start = rng.randint(end.first, end.next)
            try:
                self.check(topic, start, end.next)
                self.reads += 1
            except OffsetGone:
                self.gone += 1

    def check(self, topic: FileTopic, start: int, stop: int) -> None:
        seen: list[int] = []
        for chunk in topic.read(0, start, stop):
            offsets = chunk.offsets.tolist()
            assert chunk.rows.column("id").to_pylist() == offsets
            assert not seen or seen[-1] < offsets[0]
            assert chunk.frame.time_before in (NEVER, *range(NOW, NOW + offsets[0]))
            seen += offsets
        there = {offset for offset in seen if start <= offset < stop}
        last = topic.ends()[0].next
        newest = {max(range(key, last, KEYS)) for key in range(KEYS) if key < last}
        expected = newest if self.spec.compact else set(range(last))
        assert {offset for offset in expected if start <= offset < stop} <= there

    def clean(self) -> None:
        topic = self.opened().topic("t")
        while not self.over.is_set():
            self.cleanings += len(topic.clean())

    def run(self, appends: int) -> None:
        print(f"PENSTOCK_SEED={SEED}")
        jobs = [lambda: self.read(1), lambda: self.read(2), self.clean, self.clean]
        threads = [threading.Thread(target=self.careful, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        try:
            while not self.failed and (self.written < appends or min(self.reads, self.cleanings) < 30):
                self.write(5)
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        assert not self.failed, self.failed
        self.check(self.opened().topic("t"), self.opened().topic("t").ends()[0].first, self.written)

    def careful(self, job: object) -> None:
        try:
            job()  # type: ignore[operator]
        except BaseException as error:
            traceback.print_exception(error)
            self.failed.append(error)
            self.over.set()


SPECS = {
    "compacted": TopicSpec("t", schema=SCHEMA, time="at", compact=True),
    "rewritten": TopicSpec("t", schema=SCHEMA, time="at"),
    "retained": TopicSpec("t", schema=SCHEMA, time="at", retain=timedelta(seconds=100), hold=timedelta(0)),
}


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_readers_get_their_rows_or_are_told_that_they_are_gone_while_cleaners_work(tmp_path: Path, kind: str) -> None:
    Race(tmp_path, SPECS[kind]).run(150)


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(SPECS))
def test_long_races_of_readers_writers_and_cleaners(tmp_path: Path, kind: str) -> None:
    Race(tmp_path, SPECS[kind]).run(4_000)

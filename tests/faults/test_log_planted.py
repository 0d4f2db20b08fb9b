"""Is the harness worth its word? Each test plants one bug in a copy of the log and shows that it is caught."""

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pytest

from faults.log_ledger import SPEC, Script, open_log, power_losses, rows_of
from faults.test_log_damage import VALUES, Disk, flipped, read
from faults.test_log_errors import check, run
from penstock.errors import Damaged, PenstockError, StorageError
from penstock.log.file import current, frame, reader, segment, senders, settle, writer
from penstock.log.file.acks import RECORD, Ack, State, encode_ack
from penstock.log.file.current import Current, SegmentKeeper
from penstock.log.producers import Producers
from penstock.log.stamp import Tail
from penstock.storage.faulty import Failure, FaultyAppender, FaultyStorage
from penstock.storage.memory import MemoryAppender

pytestmark = pytest.mark.faults
Patch = pytest.MonkeyPatch
CAUGHT = (AssertionError, PenstockError)


def caught_by_power_loss(storage: Callable[[], FaultyStorage] = FaultyStorage) -> bool:
    """Whether one of a few hundred disks shows the bug."""
    for seed in range(4):
        try:
            power_losses(seed, storage(), share=0.3)
        except CAUGHT:
            return True
    return False


def test_the_log_without_a_planted_bug_passes() -> None:
    assert not caught_by_power_loss()


class NoSync(FaultyAppender):
    def sync(self) -> None:
        return None


class NoEntrySync(FaultyAppender):
    def sync(self) -> None:
        known = self._file.entry_durable
        super().sync()
        self._file.entry_durable = known


class PlantedDisk(FaultyStorage):
    appender: type[FaultyAppender] = FaultyAppender

    def append(self, path: str) -> FaultyAppender:
        super().append(path)
        return self.appender(self, path, self._files[path])


class DiskWithoutSync(PlantedDisk):
    appender = NoSync


class DiskWithoutEntrySync(PlantedDisk):
    appender = NoEntrySync


class DiskWithoutLocks(FaultyStorage):
    def lock(self, path: str, wait: bool = True) -> AbstractContextManager[bool]:
        @contextmanager
        def held() -> Iterator[bool]:
            yield True

        return held()


class AcksFirst(SegmentKeeper):
    """Acknowledges before the frames are synced, and syncs them with the next append."""

    def write(self, current: Current, frames: bytes, tail: Tail) -> None:
        current.log.sync()
        durable, self._place = self._place, replace(self._place, durability="os")
        super().write(current, frames, tail)
        self._place = durable


class RetriesSync(SegmentKeeper):
    """Takes a second sync for an answer when the first one failed."""

    def write(self, current: Current, frames: bytes, tail: Tail) -> None:
        begin = frame.encode_segment(current.begin) if current.begin else b""
        current.log.write(begin + frames)
        try:
            current.log.sync()
        except StorageError:
            current.log = self._place.storage.append(self._place.log(current.name))
            current.log.sync()
        current.length, current.tail = current.length + len(begin) + len(frames), tail
        current.acks.write(encode_ack(Ack(State.OPEN, current.length, tail.next)))
        current.acks_size += RECORD
        current.begin = None


class KeepsFailedFrames(SegmentKeeper):
    """Leaves what failed where it is."""

    def _give_up(self, current: Current) -> None:
        self.drop()


def test_an_fsync_that_is_left_out_is_caught() -> None:
    assert caught_by_power_loss(DiskWithoutSync)


def test_a_directory_that_is_not_synced_is_caught() -> None:
    assert caught_by_power_loss(DiskWithoutEntrySync)


def test_an_acknowledgement_before_the_sync_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(writer, "SegmentKeeper", AcksFirst)
    assert caught_by_power_loss()


def test_a_torn_tail_that_is_not_cut_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(FaultyAppender, "truncate", lambda self, size: None)
    monkeypatch.setattr(MemoryAppender, "truncate", lambda self, size: None)
    assert caught_by_power_loss()


def test_producers_that_are_forgotten_on_opening_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(current, "read_senders", lambda place, names, ack: Producers())
    assert caught_by_power_loss()


def test_a_producers_sequence_that_is_never_remembered_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Producers, "remember", lambda self, frame: None)
    assert caught_by_power_loss()


def test_frames_behind_the_acknowledged_ones_that_are_taken_unchecked_are_caught(monkeypatch: Patch) -> None:
    real = segment.scan
    monkeypatch.setattr(settle, "scan", lambda data, at, limit, next_offset, bodies_from: real(data, at, limit, next_offset, limit))
    assert caught_by_power_loss()


def test_a_repair_that_is_not_synced_is_caught(monkeypatch: Patch) -> None:
    assert not lost_after_repair()
    monkeypatch.setattr(settle, "cut_and_acknowledge", lambda place, name, ack: None)
    assert lost_after_repair()


def lost_after_repair() -> bool:
    """A writer dies between write and sync; a reader comes and sees its frame; the power goes. Is what was read gone?"""
    lost = []
    storage = DiskWithoutLocks()  # the dead hold no locks

    def die(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            storage.watch = None
            seen = open_log(storage).topic("t").ends()[0].next
            left = [open_log(image).topic("t").ends()[0].next for image in storage.images(random.Random(0))]
            lost.append(min(left) < seen)

    topic = open_log(storage).create(SPEC)
    topic.append(0, rows_of([1]))
    storage.watch = die
    topic.append(0, rows_of([2]))
    return lost == [True]


def test_a_checksum_of_rows_that_is_ignored_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(segment, "body_whole", lambda data, stored: True)
    assert flips_unnoticed()


def test_a_checksum_of_headers_that_is_ignored_is_caught(monkeypatch: Patch) -> None:
    real = frame.frame_start

    def believing(data: memoryview, at: int, limit: int) -> tuple[int, int, int]:
        try:
            return real(data, at, limit)
        except frame.Bad:
            return struct.unpack_from("<qqq", data, at + 16)

    monkeypatch.setattr(segment, "frame_start", believing)
    assert flips_unnoticed()


def flips_unnoticed() -> bool:
    disk = Disk()
    content = disk.files[disk.log]
    for bit in range(0, len(content) * 8, 11):
        try:
            read(disk.open(disk.with_file(disk.log, flipped(content, bit))))
            return True
        except Damaged:
            continue
        except Exception:
            return True
    return False


def test_damage_that_is_taken_for_a_torn_tail_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(settle, "refuse_damage", lambda *args: None)
    monkeypatch.setattr(settle, "refuse_missing", lambda *args: None)
    disk = Disk()
    topic = disk.open(disk.with_file(disk.log, disk.files[disk.log][:-1]))
    assert read(topic) != VALUES  # the test of shorter segments demands Damaged here


def test_a_sync_that_is_tried_again_after_it_failed_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(writer, "SegmentKeeper", RetriesSync)
    assert caught_by_failing_syncs()


def test_frames_that_stay_after_they_failed_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(writer, "SegmentKeeper", KeepsFailedFrames)
    assert caught_by_failing_syncs()


def caught_by_failing_syncs() -> bool:
    for nth in range(1, 8):
        try:
            check(run(nth, Failure("sync", nth)))
        except CAUGHT:
            return True
    return False


def test_a_lock_that_locks_nothing_is_caught() -> None:
    """Another process appends between the moments in which this one looks and writes."""
    storage = DiskWithoutLocks()
    script = Script(storage, random.Random(0))
    script.start()
    script.append(stamped=False)
    other = open_log(storage).topic("t")

    def intrude(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            storage.watch = None
            script.ledger.acked[10_000] = other.append(0, rows_of([10_000])).base

    def append_and_check() -> None:
        script.append(stamped=False)
        script.ledger.check(open_log(storage).topic("t"))

    storage.watch = intrude
    with pytest.raises(CAUGHT):
        append_and_check()


def test_readers_that_do_not_wait_for_the_acknowledgement_are_caught(monkeypatch: Patch) -> None:
    """They would see rows that a power loss takes away again."""
    monkeypatch.setattr(reader, "read_ack", lambda place, name: settle.extent(place, name))
    storage = FaultyStorage()
    topic = open_log(storage).create(SPEC)
    topic.append(0, rows_of([1]))
    seen: list[int] = []
    storage.watch = lambda operation, path: seen.append(open_log(storage).topic("t").ends()[0].next)
    topic.append(0, rows_of([2]))
    assert max(seen) == 2  # the test of readers during an append demands 1


def test_a_snapshot_of_producers_from_the_wrong_moment_is_caught(monkeypatch: Patch) -> None:
    real = senders.write_senders
    monkeypatch.setattr(current, "write_senders", lambda place, name, producers: real(place, name, Producers()))
    assert caught_by_power_loss()

"""Damage in what cleaning wrote is told, never taken for data; what is kept twice is found again."""

from datetime import timedelta

import pytest

from faults.cleaning_model import NOW, SCHEMA, Row, batch
from faults.test_log_damage import flipped
from penstock.core.time import NEVER, FixedClock
from penstock.errors import Damaged
from penstock.log.file.log import FileLog
from penstock.log.port import Appended, Sender, TopicSpec
from penstock.storage.memory import MemoryStorage

pytestmark = pytest.mark.faults
SPEC = TopicSpec("t", schema=SCHEMA, time="at", compact=True, tombstones=timedelta(0))


def opened(storage: MemoryStorage) -> FileLog:
    return FileLog(storage, FixedClock(NOW), 900)


@pytest.fixture(scope="module")
def disk() -> dict[str, bytes]:
    """A compacted partition: rewritten segments, and one row behind them."""
    storage = MemoryStorage()
    topic = opened(storage).create(SPEC)
    for number in range(12):
        key = b"%d" % (number % 8)
        topic.append(
            0, batch([Row(number, key, NOW + number)]), mark=NOW + number if number == 5 else NEVER, sender=Sender("p", 0, number)
        )
    topic.clean()
    topic.append(0, batch([Row(12, b"x", NOW)]), sender=Sender("p", 0, 12))
    assert ids(storage) == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    return {path: bytes(content) for path, content in storage.files.items()}


def ids(storage: MemoryStorage) -> list[int]:
    topic = opened(storage).topic("t")
    assert topic.ends()[0].next >= 0
    assert topic.frames(0)
    return [id for chunk in topic.read(0) for id in chunk.rows.column("id").to_pylist()]


def endings(disk: dict[str, bytes], ending: str) -> list[str]:
    return sorted(path for path in disk if path.endswith(ending))


def test_every_flipped_bit_of_a_rewritten_segment_is_told(disk: dict[str, bytes]) -> None:
    [path, *_] = endings(disk, ".part")
    for bit in range(0, len(disk[path]) * 8, 3):
        with pytest.raises(Damaged, match="topic t, partition 0 is damaged"):
            ids(MemoryStorage(disk | {path: flipped(disk[path], bit)}))


def test_every_flipped_bit_of_the_manifest_is_told(disk: dict[str, bytes]) -> None:
    [path] = endings(disk, ".manifest")
    for bit in range(len(disk[path]) * 8):
        with pytest.raises(Damaged, match="the record of its last cleaning cannot be read"):
            ids(MemoryStorage(disk | {path: flipped(disk[path], bit)}))


@pytest.mark.parametrize("ending", [".part", ".manifest"])
def test_a_file_that_is_missing_is_told(disk: dict[str, bytes], ending: str) -> None:
    [path, *_] = endings(disk, ending)
    with pytest.raises(Damaged):
        ids(MemoryStorage({name: content for name, content in disk.items() if name != path}))


def test_a_rewritten_segment_that_is_cut_is_told(disk: dict[str, bytes]) -> None:
    [path, *_] = endings(disk, ".part")
    for length in range(len(disk[path])):
        with pytest.raises(Damaged):
            ids(MemoryStorage(disk | {path: disk[path][:length]}))


def test_a_rewritten_segment_of_another_cleaning_is_not_taken_for_ours(disk: dict[str, bytes]) -> None:
    storage = MemoryStorage(disk)
    topic = opened(storage).topic("t")
    topic.append(0, batch([Row(13, b"4", NOW)]))
    topic.clean()
    [path, *_] = endings({p: bytes(c) for p, c in storage.files.items()}, ".part")
    [old, *_] = endings(disk, ".part")
    assert path != old
    storage.files[path] = bytearray(disk[old])
    with pytest.raises(Damaged):
        ids(storage)


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\0" * 60], ids=["missing", "empty", "garbage", "zeros"])
@pytest.mark.parametrize("which", ["cleaned", "live"])
def test_what_producers_sent_is_kept_twice(disk: dict[str, bytes], which: str, content: bytes | None) -> None:
    """FAULTS 8: the same answers before and after."""
    [path] = [p for p in endings(disk, ".senders") if ("cleaned-" in p) == (which == "cleaned")]
    changed = {name: data for name, data in disk.items() if name != path} | ({path: content} if content is not None else {})
    check_answers(MemoryStorage(changed))


def check_answers(storage: MemoryStorage) -> None:
    topic = opened(storage).topic("t")
    assert topic.senders(0)["p"].sequence == 12
    for number in range(13):
        assert topic.append(0, batch([Row(99, None, NOW)]), sender=Sender("p", 0, number)) == Appended(number, 1, True)
    assert topic.append(0, batch([Row(99, None, NOW)]), sender=Sender("p", 0, 13)) == Appended(13, 1, False)


def test_producers_that_nobody_knows_any_more_are_told_not_forgotten(disk: dict[str, bytes]) -> None:
    changed = disk | dict.fromkeys(endings(disk, ".senders"), b"garbage")
    with pytest.raises(Damaged, match="what its producers sent cannot be read"):
        opened(MemoryStorage(changed)).topic("t").append(0, batch([Row(99, None, NOW)]), sender=Sender("p", 0, 3))

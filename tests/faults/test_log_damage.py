"""Damaged, torn and missing bytes: none goes unnoticed, and nothing whole is lost with them."""

import pyarrow as pa
import pytest

from faults.log_ledger import open_log
from penstock.errors import Damaged
from penstock.log.file.acks import RECORD
from penstock.log.file.frame import SEGMENT_HEADER
from penstock.log.file.topic import FileTopic
from penstock.log.port import Appended, Sender, TopicSpec
from penstock.storage.memory import MemoryStorage

pytestmark = pytest.mark.faults
VALUES = [b"one", b"two", b"three", b"four"]


def raw(value: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([value], pa.binary())})


def read(topic: FileTopic) -> list[bytes]:
    assert topic.ends()[0].next >= 0
    assert len(topic.frames(0)) >= 0
    return [v for _, rows in topic.read(0) for v in rows.column("value").to_pylist()]


class Disk:
    """A topic of four records, and copies of its files to damage. Written a frame a segment if `segment_size` is 1."""

    def __init__(self, segment_size: int = 1 << 20) -> None:
        self.segment_size = segment_size
        storage = MemoryStorage()
        topic = open_log(storage, segment_size).create(TopicSpec("t"))
        for at, value in enumerate(VALUES):
            topic.append(0, raw(value), sender=Sender("p", 0, at))
        self.topic = topic
        self.files = {path: bytes(content) for path, content in storage.files.items()}
        self.logs = sorted(path for path in self.files if path.endswith(".log"))
        self.log = self.logs[-1]
        self.acks = self.log.replace(".log", ".acks")
        self.frames = [frame.where for frame in topic.frames(0)]

    def with_file(self, path: str, content: bytes | None) -> MemoryStorage:
        changed = self.files | {path: content or b""}
        if content is None:
            del changed[path]
        return MemoryStorage(changed)

    def open(self, storage: MemoryStorage) -> FileTopic:
        return open_log(storage, self.segment_size).topic("t")


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_flipped_bit_of_a_segment_is_told_with_its_offset() -> None:
    disk = Disk()
    content = disk.files[disk.log]
    starts = [at for _, at, _ in disk.frames]
    for bit in range(len(content) * 8):
        topic = disk.open(disk.with_file(disk.log, flipped(content, bit)))
        with pytest.raises(Damaged) as caught:
            read(topic)
        offset = max(sum(start <= bit // 8 for start in starts) - 1, 0)
        assert caught.value.what == f"topic t, partition 0 is damaged at offset {offset}"


def test_every_flipped_bit_of_a_closed_segment_is_told_and_the_records_before_it_can_be_read() -> None:
    disk = Disk(segment_size=1)
    assert len(disk.logs) == 4
    for at, path in enumerate(disk.logs[:-1]):
        content = disk.files[path]
        for bit in range(0, len(content) * 8, 7):
            topic = disk.open(disk.with_file(path, flipped(content, bit)))
            found: list[bytes] = []
            with pytest.raises(Damaged, match="topic t, partition 0 is damaged"):
                found.extend(v for _, rows in topic.read(0) for v in rows.column("value").to_pylist())
            assert found == VALUES[: len(found)]
            assert len(found) >= at - 1


def test_without_acknowledgements_a_flipped_bit_is_damage_or_a_cut_that_is_kept_and_counted() -> None:
    disk = Disk()
    content = disk.files[disk.log]
    last = disk.frames[-1][1]
    for bit in range(len(content) * 8):
        storage = disk.with_file(disk.log, flipped(content, bit))
        del storage.files[disk.acks]
        topic = disk.open(storage)
        if bit // 8 >= last:
            assert read(topic) == VALUES[:-1]
            assert topic.describe()["torn_bytes_cut"] == len(content) - last
        else:
            with pytest.raises(Damaged):
                read(topic)


def test_no_flipped_bit_of_the_acknowledgements_changes_an_answer() -> None:
    disk = Disk()
    content = disk.files[disk.acks]
    for bit in range(len(content) * 8):
        check_answers(disk, disk.with_file(disk.acks, flipped(content, bit)))


@pytest.mark.parametrize("content", [None, b"", b"\0" * 100, b"garbage", b"\xff" * (3 * RECORD + 1)])
def test_acknowledgements_that_are_lost_or_garbage_are_made_again(content: bytes | None) -> None:
    disk = Disk()
    check_answers(disk, disk.with_file(disk.acks, content))


@pytest.mark.parametrize("content", [None, b"", b"garbage", b"\0\0\0\0[]", b"\0" * 50])
def test_what_was_remembered_of_producers_is_found_again_in_the_log(content: bytes | None) -> None:
    disk = Disk(segment_size=1)
    path = disk.log.replace(".log", ".senders")
    assert path in disk.files
    check_answers(disk, disk.with_file(path, content))


def check_answers(disk: Disk, storage: MemoryStorage) -> None:
    topic = disk.open(storage)
    assert read(topic) == VALUES
    for at, value in enumerate(VALUES):
        assert topic.append(0, raw(value), sender=Sender("p", 0, at)) == Appended(at, 1, True)
    assert topic.append(0, raw(b"five"), sender=Sender("p", 0, 4)) == Appended(4, 1, False)
    assert read(topic) == [*VALUES, b"five"]


@pytest.mark.parametrize("first", ["reader", "writer"])
def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_frame_and_kept(first: str) -> None:
    disk = Disk()
    content = disk.files[disk.log]
    ends = [SEGMENT_HEADER, *(at + length for _, at, length in disk.frames)]
    for length in range(disk.frames[1][1], len(content)):
        whole = sum(end <= length for end in ends) - 1
        storage = disk.with_file(disk.log, content[:length])
        storage.files[disk.acks] = bytearray(disk.files[disk.acks][: whole * RECORD])
        topic = disk.open(storage)
        if first == "reader":
            assert read(topic) == VALUES[:whole]
        assert topic.append(0, raw(b"next")) == Appended(whole, 1, False)
        assert read(topic) == [*VALUES[:whole], b"next"]
        assert topic.describe()["torn_bytes_cut"] == length - ends[whole]
        kept = [bytes(c) for path, c in storage.files.items() if ".cut-" in path]
        assert kept == ([content[ends[whole] : length]] if length > ends[whole] else [])


def test_a_segment_shorter_than_what_was_acknowledged_is_damage() -> None:
    disk = Disk()
    content = disk.files[disk.log]
    for length in range(len(content)):
        topic = disk.open(disk.with_file(disk.log, content[:length]))
        with pytest.raises(Damaged):
            read(topic)
        with pytest.raises(Damaged):
            disk.open(disk.with_file(disk.log, content[:length])).append(0, raw(b"next"))


def test_garbage_behind_the_last_frame_is_cut_even_if_it_looks_like_an_old_frame() -> None:
    disk = Disk()
    content = disk.files[disk.log]
    _, at, length = disk.frames[1]
    for tail in (b"\0" * 500, b"PNSf" * 100, content[at : at + length], content[at : at + length] * 2, content[:SEGMENT_HEADER]):
        topic = disk.open(disk.with_file(disk.log, content + tail))
        assert read(topic) == VALUES
        assert topic.append(0, raw(b"next")).base == 4
        assert read(topic) == [*VALUES, b"next"]
        assert topic.describe()["torn_bytes_cut"] == len(tail)


def test_two_torn_tails_at_one_place_are_both_kept() -> None:
    disk = Disk()
    storage = disk.with_file(disk.log, disk.files[disk.log] + b"first")
    assert read(disk.open(storage)) == VALUES
    storage.files[disk.log] += b"second"
    assert read(disk.open(storage)) == VALUES
    assert sorted(bytes(c) for path, c in storage.files.items() if ".cut-" in path) == [b"first", b"second"]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_segment_is_damage(missing: int) -> None:
    disk = Disk(segment_size=1)
    storage = disk.with_file(disk.logs[missing], None)
    with pytest.raises(Exception, match=r"damaged|begins at offset") as caught:
        read(disk.open(storage))
    assert type(caught.value).__name__ in ("Damaged", "OffsetGone")


def test_a_missing_last_segment_that_was_acknowledged_is_damage() -> None:
    disk = Disk(segment_size=1)
    with pytest.raises(Damaged):
        read(disk.open(disk.with_file(disk.log, None)))
    with pytest.raises(Damaged):
        disk.open(disk.with_file(disk.log, None)).append(0, raw(b"next"))


def test_a_segment_of_another_topic_is_not_taken_for_ours() -> None:
    ours, theirs = Disk(), Disk()
    storage = ours.with_file(ours.log, theirs.files[theirs.log])
    with pytest.raises(Damaged, match="damaged at offset 0"):
        read(ours.open(storage))


def test_a_damaged_partition_leaves_the_others_alone() -> None:
    storage = MemoryStorage()
    topic = open_log(storage).create(TopicSpec("t", partitions=2))
    for partition in (0, 1):
        topic.append(partition, raw(b"x"))
    [path] = [p for p in storage.files if "/0/" in p and p.endswith(".log")]
    storage.files[path][200] ^= 1
    fresh = open_log(storage).topic("t")
    assert [v for _, rows in fresh.read(1) for v in rows.column("value").to_pylist()] == [b"x"]
    fresh.append(1, raw(b"y"))
    with pytest.raises(Damaged, match="partition 0"):
        list(fresh.read(0))


@pytest.mark.parametrize("settings", [b"", b"{}", b"garbage", b"[]", b'{"format": 99}'])
def test_damaged_settings_are_told_and_not_taken_for_a_missing_topic(settings: bytes) -> None:
    disk = Disk()
    with pytest.raises(Damaged, match=r"topic\.json"):
        disk.open(disk.with_file("topics/t/topic.json", settings))


def test_a_length_of_a_gibibyte_is_not_believed() -> None:
    """FAULTS 22: crafted lengths cost nothing."""
    disk = Disk()
    content = bytearray(disk.files[disk.log])
    at = disk.frames[-1][1]
    for length in (1 << 30, 1 << 62, 2**63 - 64, 0, 64):
        content[at + 16 : at + 24] = length.to_bytes(8, "little")
        with pytest.raises(Damaged):
            read(disk.open(disk.with_file(disk.log, bytes(content))))

"""What the file log adds to the contract: processes, threads, pickles, durability, files."""

import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.schema import Schema
from penstock.errors import NotFound
from penstock.log.file import topic as topics
from penstock.log.file.log import FileLog
from penstock.log.file.topic import FileTopic
from penstock.log.memory import MemoryLog
from penstock.log.port import Appended, Sender, TopicSpec
from penstock.storage.faulty import FaultyStorage
from penstock.storage.local import LocalStorage, volatile_twin


def raw(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def read(topic: object, start: int = 0) -> list[bytes]:
    return [v for _, rows in topic.read(0, start) for v in rows.column("value").to_pylist()]  # type: ignore[attr-defined]


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    return FileLog(LocalStorage(tmp_path / "log"))


def test_a_topic_can_be_pickled_open_and_used(log: FileLog) -> None:
    topic = log.create(TopicSpec("t"))
    topic.append(0, raw(b"one"))
    copy = pickle.loads(pickle.dumps(topic))  # noqa: S301
    assert copy.append(0, raw(b"two")).base == 1
    assert read(topic) == read(copy) == [b"one", b"two"]
    assert pickle.loads(pickle.dumps(log)).topics() == ["t"]  # noqa: S301


def test_two_openings_see_each_others_records_and_producers(log: FileLog, tmp_path: Path) -> None:
    topic, other = log.create(TopicSpec("t")), FileLog(LocalStorage(tmp_path / "log"), segment_size=1000).topic("t")
    for at in range(10):
        writer, retry = (topic, other) if at % 2 else (other, topic)
        assert writer.append(0, raw(b"%d" % at), sender=Sender("p", 0, at)) == Appended(at, 1, False)
        assert retry.append(0, raw(b"%d" % at), sender=Sender("p", 0, at)) == Appended(at, 1, True)
    assert read(topic) == read(other) == [b"%d" % at for at in range(10)]


def test_a_forked_process_writes_beside_its_parent(log: FileLog) -> None:
    topic = log.create(TopicSpec("t"))
    topic.append(0, raw(b"parent"))
    rows = raw(b"child")
    pid = os.fork()
    if not pid:
        try:
            topic.append(0, rows)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert topic.append(0, raw(b"parent again")).base == 2
    assert read(topic) == [b"parent", b"child", b"parent again"]


def test_threads_that_append_at_once_share_a_sync() -> None:
    storage = FaultyStorage()
    topic = FileLog(storage).create(TopicSpec("t"))
    syncs, waiting = 0, threading.Event()

    def watch(operation: str, path: str) -> None:
        nonlocal syncs
        if operation == "sync":
            syncs += 1
            if syncs == 1:
                waiting.set()
                assert queue_is_full(topic, 8)

    storage.watch = watch
    answers: list[int] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(topic.append(0, raw(b"%d" % n)).base)) for n in range(9)]
    threads[0].start()
    assert waiting.wait(5)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(answers) == list(range(9))
    assert sorted(read(topic)) == [b"%d" % n for n in range(9)]
    assert syncs == 2


def queue_is_full(topic: object, count: int) -> bool:
    """Waits until so many appends wait behind the one that is being synced."""
    deadline = threading.Event()
    for _ in range(1000):
        if topic._writers[0]._appends.waiting >= count:  # type: ignore[attr-defined]
            return True
        deadline.wait(0.005)
    return False


class Interrupted(FaultyStorage):
    """Calls `meanwhile` whenever a directory was listed: what another thread may do at just that moment."""

    meanwhile: Callable[[], object] | None = None

    def list(self, path: str) -> list[str]:
        names = super().list(path)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()
            self.meanwhile = meanwhile
        return names


def test_what_is_appended_while_an_added_column_is_noticed_can_be_read() -> None:  # G1
    storage = Interrupted()
    log = FileLog(storage)
    topic = log.create(TopicSpec("t", schema=Schema.of("a long")))
    log.evolve("t", Schema.of("a long, b string"))
    acknowledged: list[int] = []
    storage.meanwhile = lambda: acknowledged.append(topic.append(0, pa.record_batch({"a": [7]})).base)
    topic.take_settings()
    storage.meanwhile = None
    assert acknowledged
    read = [row for _, rows in FileLog(storage).topic("t").read(0) for row in rows.to_pylist()]
    assert read == [{"a": 7, "b": None}] * len(acknowledged)


def test_a_topic_can_be_opened_while_others_make_room_for_theirs(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.create(TopicSpec("t"))
    monkeypatch.setattr(FileTopic, "take_settings", lambda self: topics._OPEN.clear())
    assert log.topic("t").spec.name == "t"


def test_a_reader_never_sees_what_is_not_acknowledged() -> None:
    storage = FaultyStorage()
    topic = FileLog(storage).create(TopicSpec("t"))
    topic.append(0, raw(b"one"))
    seen: list[int] = []
    storage.watch = lambda operation, path: seen.append(FileLog(storage).topic("t").ends()[0].next)
    topic.append(0, raw(b"two"))
    storage.watch = None
    assert seen == [1] * len(seen)
    assert len(seen) >= 3
    assert topic.ends()[0].next == 2


def test_segments_are_rolled_and_read_across(tmp_path: Path) -> None:
    log = FileLog(LocalStorage(tmp_path / "log"), segment_size=2000)
    topic = log.create(TopicSpec("t"))
    values = [b"%d" % n for n in range(40)]
    for n, value in enumerate(values):
        topic.append(0, raw(value), sender=Sender("p", 0, n))
    assert topic.describe()["segments"] > 5
    fresh = FileLog(LocalStorage(tmp_path / "log"), segment_size=2000).topic("t")
    for start in range(0, 41, 7):
        assert read(fresh, start) == values[start:]
    assert fresh.append(0, raw(b"0"), sender=Sender("p", 0, 0)) == Appended(0, 1, True)
    files = sorted(p.name.split(".")[-1] for p in (tmp_path / "log").rglob("0*"))
    assert files.count("acks") == files.count("log")  # they are the index of closed segments, too


def test_only_the_segments_of_a_range_are_opened() -> None:
    class Counting(FaultyStorage):
        reads: list[str] = []  # noqa: RUF012

        def read(self, path: str) -> pa.Buffer:
            self.reads.append(path)
            return super().read(path)

    storage = Counting()
    topic = FileLog(storage, segment_size=1).create(TopicSpec("t"))
    for n in range(30):
        topic.append(0, raw(b"%d" % n))
    fresh = FileLog(storage, segment_size=1).topic("t")
    storage.reads.clear()
    assert [c.frame.base for c in fresh.read(0, 10, 12)] == [10, 11]
    assert len({path for path in storage.reads if path.endswith(".log")}) <= 6


def forget_memory(place: Path) -> None:
    twin = volatile_twin(LocalStorage(place / "log"))
    if twin:
        shutil.rmtree(twin.root)


@pytest.mark.parametrize("durability", ["fsync", "os", "memory"])
def test_every_durability_keeps_records_between_openings_and_says_what_it_is(tmp_path: Path, durability: str) -> None:
    log = FileLog(LocalStorage(tmp_path / "log"))
    topic = log.create(TopicSpec("t", durability=durability))  # type: ignore[arg-type]
    try:
        topic.append(0, raw(b"x"))
        again = FileLog(LocalStorage(tmp_path / "log"), segment_size=7).topic("t")
        assert again.id == topic.id
        assert read(again) == [b"x"]
        assert str(topic.describe()["durability"]).startswith(durability + ":")
    finally:
        log.delete("t")
        forget_memory(tmp_path)
    assert [p for p in (tmp_path / "log").rglob("*") if p.is_file()] == []


def test_a_topic_in_memory_is_another_one_when_the_memory_was_lost(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "log")
    twin = volatile_twin(storage)
    if twin is None:
        pytest.skip("this machine has no memory directory")
    log = FileLog(storage)
    topic = log.create(TopicSpec("t", durability="memory"))
    try:
        topic.append(0, raw(b"x"))
        assert not list((tmp_path / "log").rglob("*.log"))
        before = topic.id
        twin.remove("topics")
        fresh = FileLog(LocalStorage(tmp_path / "log")).topic("t")
        assert fresh.id != before
        assert fresh.append(0, raw(b"y")).base == 0
    finally:
        log.delete("t")
        forget_memory(tmp_path)


def test_where_there_is_no_memory_directory_memory_is_kept_as_os() -> None:
    topic = FileLog(FaultyStorage()).create(TopicSpec("t", durability="memory"))
    topic.append(0, raw(b"x"))
    assert read(topic) == [b"x"]
    assert "kept as with os" in str(topic.describe()["durability"])


def test_a_topic_kept_open_shows_a_column_that_was_added(log: FileLog) -> None:
    log.create(TopicSpec("t", schema=Schema.of("a long")))
    wider = Schema.of("a long, b long")
    assert log.evolve("t", wider).spec.schema == wider
    assert log.topic("t").spec.schema == wider


def test_what_an_interrupted_delete_left_is_swept_by_the_next_create(log: FileLog, tmp_path: Path) -> None:
    topic = log.create(TopicSpec("t"))
    topic.append(0, raw(b"x"))
    log.storage.remove("topics/t/topic.json")
    with pytest.raises(NotFound):
        log.topic("t")
    again = log.create(TopicSpec("t"))
    assert read(again) == []
    assert not (tmp_path / "log" / "topics" / "t" / topic.id).exists()


def test_a_writer_of_a_deleted_topic_leaves_no_record_in_the_new_one(log: FileLog, tmp_path: Path) -> None:
    topic = FileLog(LocalStorage(tmp_path / "log"), segment_size=99).topic(log.create(TopicSpec("t")).spec.name)
    topic.append(0, raw(b"old"))
    log.delete("t")
    again = log.create(TopicSpec("t"))
    with pytest.raises(NotFound, match="was deleted and made again"):
        topic.append(0, raw(b"old"))
    assert read(again) == []


def test_logs_without_a_given_clock_use_the_machines() -> None:
    for log in (MemoryLog(), FileLog(FaultyStorage())):
        topic = log.create(TopicSpec("t"))
        topic.append(0, raw(b"x"))
        assert topic.frames(0)[0].appended > 1_700_000_000_000_000

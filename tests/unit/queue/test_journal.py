"""Journals: what is written is read by all, what is torn is cut, what is damaged is told."""

import pytest

from penstock.errors import Damaged, DiskFull, NotFound, StorageError
from penstock.queue.on_log.journal import DELETED, Found, Journal
from penstock.queue.state.events import Encoded
from penstock.storage.faulty import Failure, FaultyStorage
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage

START: Encoded = ["all", 0]


def begun(storage: Storage) -> Journal:
    Journal(storage, "q").begin(START)
    return Journal(storage, "q")


def content(storage: MemoryStorage, number: int = 1) -> bytearray:
    return storage.files[f"q/journal-{number:08}"]


def test_the_first_look_gives_all_and_the_next_what_came_since() -> None:
    storage = MemoryStorage()
    one, other = begun(storage), Journal(storage, "q")
    assert one.catch_up() == Found([START], fresh=True)
    one.sync(one.write([["a"], ["b"]]))
    assert other.catch_up() == Found([START, ["a"], ["b"]], fresh=True)
    other.write([["c"]])
    assert one.catch_up() == Found([["c"]], fresh=False)
    assert one.catch_up() == Found([], fresh=False)


def test_a_journal_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="is gone"):
        Journal(MemoryStorage(), "q").catch_up()


@pytest.mark.parametrize("left", range(1, 20))
def test_half_a_record_at_the_end_is_cut_and_writing_goes_on(left: int) -> None:
    storage = MemoryStorage()
    journal = begun(storage)
    journal.catch_up()
    journal.write([["a"]])
    whole = len(content(storage))
    journal.write([["torn"]])
    del content(storage)[whole + left :]
    found = Journal(storage, "q")
    assert found.catch_up() == Found([START, ["a"]], fresh=True)
    found.write([["b"]])
    assert journal.catch_up().events[-1] == ["b"]
    assert Journal(storage, "q").catch_up().events == [START, ["a"], ["b"]]


def test_what_was_synced_and_is_not_whole_is_damage() -> None:
    storage = MemoryStorage()
    journal = begun(storage)
    journal.catch_up()
    start = len(content(storage))
    journal.sync(journal.write([["a"]]))
    journal.write([["b"]])
    content(storage)[start + 25] ^= 1
    with pytest.raises(Damaged, match=f"journal-00000001 is damaged at byte {start}"):
        Journal(storage, "q").catch_up()


def test_a_first_record_that_is_not_whole_is_damage() -> None:
    storage = MemoryStorage()
    journal = begun(storage)
    content(storage)[30] ^= 1
    with pytest.raises(Damaged, match="first record"):
        journal.catch_up()


def test_in_a_new_file_all_go_on() -> None:
    storage = MemoryStorage()
    one, other, third = begun(storage), Journal(storage, "q"), Journal(storage, "q")
    for journal in (one, other, third):
        journal.catch_up()
    one.write([["a"]])
    one.move(["all", "a"])
    one.write([["b"]])
    assert list(storage.files) == ["q/journal-00000002"]
    assert other.catch_up() == Found([["all", "a"], ["b"]], fresh=True)  # its file is gone
    assert not other.must_move
    other.write([["c"]])
    assert third.catch_up().events == [["all", "a"], ["b"], ["c"]]
    assert one.catch_up() == Found([["c"]], fresh=False)


def test_a_move_that_was_interrupted_is_done_by_the_next() -> None:
    storage = FaultyStorage()
    one, other = begun(storage), Journal(storage, "q")
    one.catch_up()
    other.catch_up()
    storage.arm(Failure("publish"))
    with pytest.raises(StorageError):
        one.move(["all", 1])
    assert other.catch_up() == Found([], fresh=False)
    assert other.must_move
    other.move(["all", 2])
    assert one.catch_up() == Found([["all", 2]], fresh=True)


def test_files_left_before_the_newest_are_removed() -> None:
    storage = MemoryStorage()
    journal = begun(storage)
    journal.catch_up()
    old = bytes(content(storage))
    journal.move(["all", 1])
    storage.publish("q/journal-00000001", old)
    assert Journal(storage, "q").catch_up() == Found([["all", 1]], fresh=True)
    assert list(storage.files) == ["q/journal-00000002"]


def test_a_queue_that_was_deleted_is_not_found() -> None:
    storage = MemoryStorage()
    one, other = begun(storage), Journal(storage, "q")
    one.catch_up()
    other.catch_up()
    one.write([[DELETED]])
    with pytest.raises(NotFound, match="deleted"):
        other.catch_up()


def test_one_sync_serves_all_that_was_written_before_it() -> None:
    storage = FaultyStorage()
    journal = begun(storage)
    journal.catch_up()
    first, second = journal.write([["a"]]), journal.write([["b"]])
    syncs = []
    storage.watch = lambda operation, path: syncs.append(operation) if operation == "sync" else None
    journal.sync(first)
    journal.sync(second)
    assert syncs == ["sync"]


def test_a_file_that_could_not_be_synced_is_not_synced_again() -> None:
    storage = FaultyStorage()
    journal = begun(storage)
    journal.catch_up()
    first, second = journal.write([["a"]]), journal.write([["b"]])
    storage.arm(Failure("sync"))
    for written in (first, second, first):
        with pytest.raises(StorageError):
            journal.sync(written)
    assert journal.must_move
    journal.move(["all", "a and b"])
    journal.sync(first)  # it is in the new file, and safe
    journal.sync(second)
    assert Journal(storage, "q").catch_up().events == [["all", "a and b"]]


def test_what_could_not_be_written_is_not_there() -> None:
    storage = FaultyStorage()
    journal = begun(storage)
    journal.catch_up()
    storage.arm(Failure("write", kind="short"))
    with pytest.raises(DiskFull):
        journal.write([["a"]])
    assert Journal(storage, "q").catch_up().events == [START]
    assert journal.must_move

"""The faulty disk does what real disks do."""

import random

import pytest

from penstock.errors import DiskFull, StorageError
from penstock.storage.faulty import Failure, FaultyStorage


def contents(storage: FaultyStorage, path: str, tries: int = 300) -> set[bytes | None]:
    rng = random.Random(1)
    found = set()
    for _ in range(tries):
        files = storage.crash(rng).files
        found.add(bytes(files[path]) if path in files else None)
    return found


def test_what_was_synced_survives_every_loss() -> None:
    storage = FaultyStorage()
    file = storage.append("file")
    file.write(b"synced")
    file.sync()
    assert contents(storage, "file") == {b"synced"}


def test_what_was_not_synced_is_lost_torn_zeroed_or_kept() -> None:
    storage = FaultyStorage()
    file = storage.append("file")
    file.sync()
    file.write(b"one")
    file.write(b"two")
    found = contents(storage, "file")
    assert {b"", b"on", b"one", b"onetwo", b"\0\0\0two", b"onet"} <= found
    assert None not in found


def test_a_file_whose_entry_was_not_synced_may_be_gone() -> None:
    storage = FaultyStorage()
    storage.append("file").write(b"x")
    assert {None, b"", b"x"} <= contents(storage, "file")


def test_a_cut_that_was_not_synced_may_be_undone() -> None:
    storage = FaultyStorage()
    file = storage.append("file")
    file.write(b"long")
    file.sync()
    file.truncate(1)
    assert bytes(storage.read("file")) == b"l"
    assert contents(storage, "file") == {b"l", b"long"}


def test_published_and_removed_is_durable_at_once() -> None:
    storage = FaultyStorage()
    storage.publish("a", b"a")
    storage.publish("b", b"b")
    storage.remove("b")
    assert contents(storage, "a") == {b"a"}
    assert contents(storage, "b") == {None}


def test_the_nth_call_fails_once() -> None:
    storage = FaultyStorage()
    failure = storage.arm(Failure("write", nth=2))
    file = storage.append("file")
    file.write(b"one")
    with pytest.raises(StorageError, match="Input/output error"):
        file.write(b"two")
    with pytest.raises(StorageError, match="used after it failed"):
        file.write(b"three")
    storage.append("file").write(b"four")
    assert bytes(storage.read("file")) == b"onefour"
    assert failure.met == 1


def test_a_failure_may_last() -> None:
    storage = FaultyStorage()
    storage.arm(Failure("publish", nth=1, kind="ENOSPC", forever=True))
    for _ in range(3):
        with pytest.raises(DiskFull):
            storage.publish("file", b"")


def test_a_short_write_leaves_a_part() -> None:
    storage = FaultyStorage()
    storage.arm(Failure("write", kind="short"))
    with pytest.raises(DiskFull):
        storage.append("file").write(b"abcd")
    assert bytes(storage.read("file")) == b"ab"


def test_after_a_failed_sync_the_bytes_never_reach_the_disk_although_they_can_be_read() -> None:
    storage = FaultyStorage()
    storage.arm(Failure("sync"))
    file = storage.append("file")
    file.write(b"lost")
    with pytest.raises(StorageError):
        file.sync()
    again = storage.append("file")
    again.sync()
    assert bytes(storage.read("file")) == b"lost"
    assert contents(storage, "file") == {b""}


def test_every_kind_of_damage_has_its_image() -> None:
    storage = FaultyStorage()
    file = storage.append("file")
    file.write(b"x")
    assert len(list(storage.images(random.Random(0)))) == 7


def test_what_was_removed_in_passing_may_come_back() -> None:
    storage = FaultyStorage({"d/a": b"a", "d/b": b"b"})
    storage.remove("d/a", durable=False)
    assert storage.list("d") == ["b"]
    assert contents(storage, "d/a") == {None, b"a"}
    storage.publish("d/a", b"new")
    assert contents(storage, "d/a") == {b"new"}
    storage.remove("d")
    assert contents(storage, "d/a") == contents(storage, "d/b") == {None}

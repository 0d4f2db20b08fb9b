"""What every storage promises, real and faulty."""

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import AlreadyThere, NotFound, StorageError
from penstock.storage.faulty import FaultyStorage
from penstock.storage.local import LocalStorage
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage


@pytest.fixture(params=["local", "memory", "faulty"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    makers = {"local": lambda: LocalStorage(tmp_path / "root"), "memory": MemoryStorage, "faulty": FaultyStorage}
    return makers[request.param]()


@pytest.fixture
def file(storage: Storage) -> Iterator[object]:
    appender = storage.append("a/b/file")
    yield appender
    appender.close()


def test_what_is_appended_is_read_and_counted(storage: Storage, file) -> None:
    file.write(b"one")
    file.write(memoryview(b"two"))
    file.sync()
    assert file.size == 6
    assert bytes(storage.read("a/b/file")) == b"onetwo"


def test_a_file_is_opened_at_its_end(storage: Storage, file) -> None:
    file.write(b"one")
    again = storage.append("a/b/file")
    assert again.size == 3
    again.write(b"two")
    again.close()
    assert bytes(storage.read("a/b/file")) == b"onetwo"
    assert file.size == 6


def test_a_large_file_is_read_whole(storage: Storage, file) -> None:
    data = bytes(range(256)) * 4096
    file.write(data)
    assert bytes(storage.read("a/b/file")) == data


def test_a_buffer_once_read_does_not_change_when_the_file_grows(storage: Storage, file) -> None:
    file.write(b"x" * 100_000)
    before = storage.read("a/b/file")
    file.write(b"more")
    assert before.size == 100_000
    assert storage.read("a/b/file").size == 100_004


def test_an_empty_file_is_an_empty_buffer(storage: Storage, file) -> None:
    assert storage.read("a/b/file").size == 0


def test_a_cut_file_goes_on_at_its_new_end(storage: Storage, file) -> None:
    file.write(b"keep and cut")
    file.truncate(4)
    file.write(b"!")
    assert bytes(storage.read("a/b/file")) == b"keep!"


def test_only_the_first_publisher_wins(storage: Storage) -> None:
    storage.publish("d/settings", b"first")
    with pytest.raises(AlreadyThere):
        storage.publish("d/settings", b"second")
    assert bytes(storage.read("d/settings")) == b"first"
    assert storage.list("d") == ["settings"]


def test_one_of_many_threads_publishes(storage: Storage) -> None:
    won = []

    def publish(n: int) -> None:
        try:
            storage.publish("race", str(n).encode())
            won.append(n)
        except AlreadyThere:
            pass

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert bytes(storage.read("race")) == str(won[0]).encode()


def test_a_directory_lists_its_files_and_directories_sorted(storage: Storage) -> None:
    for path in ("d/b", "d/a", "d/c/deep", "other"):
        storage.publish(path, b"")
    assert storage.list("d") == ["a", "b", "c"]
    assert storage.list("nowhere") == []


def test_files_and_whole_directories_are_removed(storage: Storage) -> None:
    for path in ("d/a", "d/sub/b", "e"):
        storage.publish(path, b"x")
    storage.remove("e")
    storage.remove("d")
    storage.remove("never there")
    storage.remove("never/there")
    assert storage.list("d") == []
    with pytest.raises(NotFound):
        storage.read("e")


def test_what_is_not_there_is_not_found(storage: Storage) -> None:
    with pytest.raises(NotFound):
        storage.read("nothing/here")


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a//b", "a/./b", "a/", "a\0b", ".."])
def test_no_path_leads_out(storage: Storage, path: str) -> None:
    for act in (storage.append, storage.read, storage.remove, lambda p: storage.publish(p, b""), storage.list):
        with pytest.raises(StorageError):
            act(path)
    with pytest.raises(StorageError), storage.lock(path):
        pass


def test_a_lock_is_held_by_one(storage: Storage) -> None:
    with storage.lock("d/lock") as held:
        assert held
        with storage.lock("d/lock", wait=False) as second:
            assert not second
    with storage.lock("d/lock", wait=False) as again:
        assert again


def test_a_lock_is_waited_for(storage: Storage) -> None:
    order = []
    inside = threading.Event()

    def second() -> None:
        inside.set()
        with storage.lock("lock"):
            order.append("second")

    with storage.lock("lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert inside.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_a_storage_can_be_pickled(storage: Storage) -> None:
    storage.publish("d/a", b"content")
    assert bytes(pickle.loads(pickle.dumps(storage)).read("d/a")) == b"content"  # noqa: S301

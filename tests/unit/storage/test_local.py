"""What a real disk adds: modes, links, limits, kills."""

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import DiskFull, NotFound, StorageError
from penstock.storage.local import LocalStorage, volatile_twin
from penstock.storage.memory import MemoryStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "root")


def test_files_are_for_their_owner_alone(storage: LocalStorage) -> None:
    storage.append("d/file").close()
    storage.publish("d/published", b"x")
    with storage.lock("d/lock"):
        pass
    root = Path(storage.root)
    assert {stat.S_IMODE(p.stat().st_mode) for p in (root, root / "d")} == {0o700}
    assert {stat.S_IMODE(p.stat().st_mode) for p in (root / "d").iterdir()} == {0o600}


def test_symbolic_links_are_not_followed(storage: LocalStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    storage.publish("real", b"x")
    (Path(storage.root) / "link").symlink_to(outside / "secret")
    (Path(storage.root) / "dir").symlink_to(outside)
    for path in ("link", "dir/secret", "dir/new"):
        for act in (storage.read, storage.append):
            with pytest.raises((StorageError, NotFound)):
                act(path)
    with pytest.raises(StorageError):
        storage.list("dir")
    storage.remove("dir")
    assert sorted(p.name for p in outside.iterdir()) == ["secret"]


def test_a_missing_root_is_not_made_by_reading(storage: LocalStorage) -> None:
    assert storage.list("d") == []
    with pytest.raises(NotFound):
        storage.read("d/file")
    storage.remove("d")
    assert not Path(storage.root).exists()


def test_a_root_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("not a directory")
    with pytest.raises(StorageError, match="a file stands where a directory should be"):
        LocalStorage(tmp_path / "root").append("file")


def test_a_full_disk_is_told_apart(storage: LocalStorage) -> None:
    appender = storage.append("file")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, appender.fileno())
    os.close(full)
    with pytest.raises(DiskFull, match="no space left to write file"):
        appender.write(b"x")


def test_a_short_write_is_carried_on_and_then_told(storage: LocalStorage) -> None:
    appender = storage.append("file")
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old[1]))
    try:
        with pytest.raises(StorageError, match="File too large"):
            appender.write(b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)
    assert appender.size == 1000
    appender.truncate(0)
    appender.write(b"y" * 5000)
    assert bytes(storage.read("file")) == b"y" * 5000


def test_a_publisher_that_fails_leaves_nothing(storage: LocalStorage) -> None:
    storage.publish("there", b"x")
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, old[1]))
    try:
        with pytest.raises(StorageError):
            storage.publish("new", b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)
    assert os.listdir(storage.root) == ["there"]


def test_half_published_files_are_not_listed(storage: LocalStorage) -> None:
    storage.publish("d/whole", b"x")
    (Path(storage.root) / "d" / ".tmp-123").write_bytes(b"ha")
    assert storage.list("d") == ["whole"]


def test_a_lock_ends_with_its_process(storage: LocalStorage) -> None:
    code = (
        "import sys; from penstock.storage.local import LocalStorage\n"
        f"with LocalStorage({storage.root!r}).lock('lock'): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with storage.lock("lock", wait=False) as held:
            assert not held
        holder.kill()
        holder.wait()
        with storage.lock("lock", wait=False) as held:
            assert held


def test_a_lock_file_that_was_removed_meanwhile_is_not_trusted(storage: LocalStorage) -> None:
    with storage.lock("lock"):
        storage.remove("lock")
        with storage.lock("lock", wait=False) as other:
            assert other  # another file: whoever removes lock files has to know


def test_a_read_closes_what_it_opened(storage: LocalStorage) -> None:
    storage.publish("small", b"x")
    storage.publish("large", b"x" * 100_000)
    storage.read("small")  # the directory stays open
    before = len(os.listdir("/proc/self/fd"))
    kept = [storage.read(path) for path in ("small", "large") * 20]
    assert len(os.listdir("/proc/self/fd")) == before
    assert [buffer.size for buffer in kept] == [1, 100_000] * 20
    assert {bytes(buffer) for buffer in kept} == {b"x", b"x" * 100_000}


def test_a_file_is_found_in_a_directory_that_was_removed_and_made_again(storage: LocalStorage) -> None:
    storage.publish("d/file", b"old")
    assert bytes(storage.read("d/file")) == b"old"
    storage.remove("d")
    with pytest.raises(NotFound):
        storage.read("d/file")
    storage.publish("d/file", b"new")
    assert bytes(storage.read("d/file")) == b"new"


def test_so_many_directories_stay_open_and_no_more(storage: LocalStorage) -> None:
    for number in range(200):
        storage.publish(f"d{number}/file", b"x")
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        storage.read(f"d{number}/file")
    assert len(os.listdir("/proc/self/fd")) <= before + 128


def test_a_directory_is_no_file(storage: LocalStorage) -> None:
    storage.publish("d/file", b"x")
    with pytest.raises(StorageError):
        storage.read("d")


def test_the_memory_of_a_root_is_its_own(storage: LocalStorage, tmp_path: Path) -> None:
    twin, other = volatile_twin(storage), volatile_twin(LocalStorage(tmp_path / "other"))
    assert volatile_twin(MemoryStorage()) is None
    if twin is None or other is None:
        pytest.skip("this machine has no memory directory")
    try:
        assert twin.root != other.root
        assert volatile_twin(storage).root == twin.root
        assert stat.S_IMODE(os.stat(twin.root).st_mode) == 0o700
    finally:
        os.rmdir(twin.root)
        os.rmdir(other.root)


def test_a_lock_is_found_again_after_its_directory_was_removed(storage: LocalStorage) -> None:
    with storage.lock("d/lock") as held:
        assert held
    storage.remove("d")
    with storage.lock("d/lock") as held:
        assert held
        with LocalStorage(storage.root).lock("d/lock", wait=False) as other:
            assert not other
    with pytest.raises(StorageError), storage.lock("d/.."):
        pass

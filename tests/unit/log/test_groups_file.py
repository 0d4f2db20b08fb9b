"""The file of groups: damage, strangers, other processes."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import BadInput, Damaged, DiskFull, NotFound, StorageError
from penstock.log.file.log import FileLog
from penstock.log.groups import file
from penstock.log.groups.leases import MachineClock
from penstock.log.groups.port import Source
from penstock.log.groups.sqlite import SqliteGroups
from penstock.storage.faulty import FaultyStorage

SOURCE = Source("t", "life", 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "groups.db"


@pytest.fixture
def groups(path: Path) -> Iterator[SqliteGroups]:
    made = SqliteGroups(path)
    yield made
    made.close()


def test_looking_makes_no_file(groups: SqliteGroups, path: Path) -> None:
    assert groups.describe() == []
    assert groups.positions("t") == []
    with pytest.raises(NotFound):
        groups.forget("web")
    assert not path.exists()


def test_offsets_are_there_when_the_file_is_opened_again(groups: SqliteGroups, path: Path) -> None:
    groups.put("web", SOURCE, {0: 5})
    groups.close()
    with closing(SqliteGroups(path)) as again:
        assert [held.offset for held in again.positions("t")] == [5]
    assert oct(path.stat().st_mode & 0o777) == "0o600", "for its owner alone"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert groups.connection()[1].execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to be looked at" * 50])
def test_a_file_that_is_not_ours_is_refused(groups: SqliteGroups, path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(Damaged):
        groups.describe()
    assert path.read_bytes() == content


def test_a_newer_format_is_refused(groups: SqliteGroups, path: Path) -> None:
    groups.put("web", SOURCE, {0: 5})
    groups.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="format 99"):
        groups.describe()


def test_a_page_that_was_overwritten_is_told(groups: SqliteGroups, path: Path) -> None:
    groups.put("web", SOURCE, {0: 5})
    groups.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(Damaged, match="damaged"):
        groups.describe()


def test_a_process_that_holds_the_file_for_too_long_is_told(
    groups: SqliteGroups, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups.put("web", SOURCE, {0: 5})
    groups.close()
    monkeypatch.setattr(file, "WAIT", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"locked(?s:.*)may hold it"):
            groups.put("web", SOURCE, {0: 6})
        assert [held.offset for held in groups.positions("t")] == [5], "readers are not held up"
        other.execute("ROLLBACK")
    groups.put("web", SOURCE, {0: 6})


def test_a_full_disk_changes_nothing_and_is_told(groups: SqliteGroups, path: Path) -> None:
    groups.put("web", SOURCE, {0: 5})
    connection = groups.connection()[1]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull, match="did not change"):
        groups.put("web", Source("t", "life", 5000), dict.fromkeys(range(5000), 7))
    assert [(held.partition, held.offset) for held in groups.positions("t")] == [(0, 5)]


def test_a_place_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used"):
        SqliteGroups(tmp_path / "file" / "groups.db").put("web", SOURCE, {0: 1})


FORKING = """
import os, sys
from pathlib import Path
from penstock.log.groups.port import Source
from penstock.log.groups.sqlite import SqliteGroups
groups, source = SqliteGroups(Path(sys.argv[1])), Source("t", "life", 2)
groups.put("web", source, {0: 5})
child = os.fork()
groups.put("web", source, {1: 7} if child else {0: 6})
if child:
    os.waitpid(child, 0)
groups.positions("t")
"""


def test_a_forked_process_opens_the_file_for_itself(groups: SqliteGroups, path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKING, str(path)], check=True)
    assert [held.offset for held in groups.positions("t")] == [6, 7]


def test_a_log_without_a_directory_has_no_groups() -> None:
    with pytest.raises(BadInput, match="no place for groups"):
        FileLog(FaultyStorage()).groups()


def test_the_machines_clock_runs_and_knows_its_boot() -> None:
    first, second = MachineClock().beat(), MachineClock().beat()
    assert first.at <= second.at
    assert first.boot == second.boot

"""G27. A group's offsets are what was committed, or an error: whatever happens to the bytes of the file that holds them."""

import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Damaged, PenstockError
from penstock.log.groups.leases import ManualClock
from penstock.log.groups.port import Source
from penstock.log.groups.sqlite import SqliteGroups

SOURCE, OTHER = Source("orders", "life", 3), Source("payments", "other", 1)
QUESTIONS: dict[str, Callable[[SqliteGroups], Any]] = {
    "all": lambda groups: groups.describe(),
    "one": lambda groups: groups.describe("web"),
    "positions": lambda groups: groups.positions("orders"),
    "join": lambda groups: groups.join("web", SOURCE, dict.fromkeys(range(3), 0), label="late", lease=10) and standing(groups),
}


def standing(groups: SqliteGroups) -> list[int]:
    return [held.offset for held in groups.positions("orders") if held.reader == "web"]


def write(path: Path) -> None:
    with contextlib.closing(SqliteGroups(path, leases=ManualClock())) as groups:
        members = [groups.join("web", SOURCE, dict.fromkeys(range(3), 0), label=f"host-{n}", lease=10) for n in range(2)]
        for member in members:
            standing = member.heartbeat(SOURCE)
            member.commit(dict.fromkeys(standing.owned, 4711))
        groups.put("bill", SOURCE, {0: 5, 1: 6, 2: 7})
        groups.put("ship", OTHER, {0: 17})


def asked(path: Path, name: str) -> Any:
    with contextlib.closing(SqliteGroups(path, leases=ManualClock())) as groups:
        return QUESTIONS[name](groups)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("log") / "groups.db"
    write(path)
    return path.read_bytes()


@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.long)])
def test_a_flipped_bit_never_moves_a_group(count: int, written: bytes, tmp_path: Path) -> None:
    def damaged(name: str, content: bytes) -> Any:
        path = tmp_path / "groups.db"
        for left in tmp_path.iterdir():
            left.unlink()
        path.write_bytes(content)
        return asked(path, name)

    right = {name: damaged(name, written) for name in QUESTIONS}
    chance, errors = random.Random(1), 0
    used = [at for at, byte in enumerate(written) if byte]
    for _ in range(count):
        flipped = bytearray(written)
        flipped[chance.choice(used)] ^= 1 << chance.randrange(8)
        for name in QUESTIONS:
            try:
                found = damaged(name, bytes(flipped))
            except PenstockError:
                errors += 1
            else:
                assert found == right[name], name
    assert errors > count


LIES = {
    "an offset": "UPDATE positions SET next = 0 WHERE name = 'web' AND partition = 1",
    "an owner": "UPDATE positions SET owner = NULL WHERE name = 'web'",
    "a missing partition": "DELETE FROM positions WHERE name = 'web' AND partition = 1",
    "a missing member": "DELETE FROM members WHERE name = 'web'",
    "a missing group": "DELETE FROM groups WHERE name = 'web'",
    "another name": "UPDATE groups SET name = 'wec' WHERE name = 'web'",
    "text that is none": "UPDATE groups SET topic_id = CAST(x'ff' AS TEXT) WHERE name = 'web'",
}


@pytest.mark.parametrize("lie", LIES)
def test_what_sqlite_takes_for_whole_is_found_too(lie: str, written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "groups.db"
    path.write_bytes(written)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(LIES[lie])
    for name in QUESTIONS:
        with pytest.raises(Damaged, match="the groups are damaged") as found:
            asked(path, name)
        assert "restore the file" in str(found.value)


def test_groups_of_an_older_version_go_on_and_gain_a_checksum_when_they_change(written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "groups.db"
    path.write_bytes(written)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ALTER TABLE groups DROP COLUMN crc")
        connection.execute("PRAGMA user_version = 1")
    with contextlib.closing(SqliteGroups(path, leases=ManualClock())) as groups:
        assert [(held.reader, held.offset) for held in groups.positions("payments")] == [("ship", 17)]
        groups.put("ship", OTHER, {0: 18})
        groups.put("ship", OTHER, {0: 19})
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert dict(connection.execute("SELECT name, crc IS NULL FROM groups")) == {"bill": 1, "ship": 0, "web": 1}
        connection.execute("UPDATE positions SET next = 3 WHERE name = 'ship'")
    with pytest.raises(Damaged):
        asked(path, "all")

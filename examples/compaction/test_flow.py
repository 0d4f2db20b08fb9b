"""The latest record of every user stays with its own offset, and the table made of it is that of the whole log."""

import json
import os
import runpy
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Producer, Schema, TopicSpec
from penstock.log.consumer import records
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage

HERE = Path(__file__).parent
SPEC = TopicSpec("users", schema=Schema.of("user string, value string"), key="user", compact=True, tombstones=timedelta(0))


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / "users.jsonl").read_text().splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    made = FileLog(LocalStorage(tmp_path / "log"))
    with Producer(made.create(SPEC)) as producer:
        for row in rows():
            producer.send(row)
    return made


def left(log: FileLog) -> dict[str, tuple[str, int]]:
    """By user: the value, and its offset."""
    return {r.value["user"]: (r.value["value"], r.offset) for r in records(log.topic("users"), start="earliest") if not r.deleted}


LATEST = {"user:789": ("V1", 3), "user:456": ("V2", 4), "user:123": ("V3", 5)}


def test_the_latest_record_of_every_user_stays_with_its_own_offset(log: FileLog) -> None:
    assert left(log) == LATEST
    [cleaned] = log.clean("users")
    assert (cleaned.rows_before, cleaned.rows) == (6, 3)
    assert [r.offset for r in records(log.topic("users"), start="earliest")] == [3, 4, 5]
    assert left(log) == LATEST
    with Producer(log.topic("users")) as producer:
        receipt = producer.send({"user": "user:456", "value": "V3"})
    assert receipt.position is not None
    assert receipt.position.offset == 6


def test_a_deleted_user_is_gone_for_good(log: FileLog) -> None:
    with Producer(log.topic("users")) as producer:
        producer.delete("user:123")
    for _ in range(2):
        log.clean("users")
        assert left(log) == {"user:789": ("V1", 3), "user:456": ("V2", 4)}
    assert [r.offset for r in records(log.topic("users"), start="earliest")] == [3, 4]


def test_a_kill_in_the_middle_of_a_cleaning_changes_nothing_of_it(log: FileLog) -> None:
    pid = os.fork()
    if not pid:
        log.storage.publish = lambda *args: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[attr-defined]
        try:
            log.clean("users")
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert left(log) == LATEST
    log.clean("users")
    assert left(log) == LATEST


def test_a_table_rebuilt_from_what_is_left_is_that_of_the_whole_log() -> None:
    """MISSION B5."""
    whole, rebuilt = [view(cleaned) for cleaned in (False, True)]
    assert whole == rebuilt == {"user:789": "V1", "user:456": "V2", "user:123": "V3"}


def view(cleaned: bool) -> dict[str, str]:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.log.create(SPEC)
        t.send("users", *rows())
        if cleaned:
            t.log.clean("users")
            assert [int(o) for chunk in t.log.topic("users").read(0) for o in chunk.offsets] == [3, 4, 5]
        t.epoch()
        return {row["user"]: row["value"] for row in t.rows("current")}

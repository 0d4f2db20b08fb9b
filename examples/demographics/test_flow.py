"""Alice is 28, Bob 35, and of the third nobody knows."""

import json
import runpy
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock import Flow, database
from penstock.errors import Unanswered

HERE = Path(__file__).parent
ANSWERS = [
    ("UserID1", "LoggedIn", "Alice", 28),
    ("UserID1", "LoggedOut", "Alice", 28),
    ("UserID2", "ViewedProduct", "Bob", 35),
    ("UserID3", "LoggedIn", None, None),
]


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


def shown(test: Any, view: str) -> list[tuple[Any, ...]]:
    return sorted((r["user_id"], r["action"], r["name"], r["age"]) for r in test.rows(view))


def test_the_copy_and_the_database_say_the_same() -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send("profiles", *rows("profiles"))
        t.send("activity", *rows("activity"))
        t.end()
        assert shown(t, "by_local_copy") == shown(t, "by_lookup") == ANSWERS
        books = t.fates("asked")
        assert (books["answered"], books["unmatched"], books["keys"], books["calls"]) == (3, 1, 3, 1)


def test_answers_stay_as_they_were_given_though_epochs_crash() -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send("profiles", *rows("profiles"))
        for row in rows("activity"):
            t.send("activity", row)
            t.crash("after_decide")
        t.end()
        assert shown(t, "by_lookup") == ANSWERS


def test_a_database_in_a_file_is_asked_by_its_url(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "profiles.db")
    connection.executescript((HERE / "profiles.sql").read_text())
    connection.close()
    flow = Flow("by_url")
    activity = flow.stream("activity", "user_id string, action string, at timestamp", time="at")
    remote = database(f"sqlite:///{tmp_path}/profiles.db", table="profiles")
    activity.lookup(remote, on="user_id", schema="name string, age int").view("by_url")
    with flow.test() as t:
        t.send("activity", *rows("activity"))
        t.end()
        assert shown(t, "by_url") == ANSWERS


def test_while_the_database_is_away_nothing_is_lost(tmp_path: Path) -> None:
    flow = Flow("away")
    activity = flow.stream("activity", "user_id string, action string, at timestamp", time="at")
    remote = database(f"sqlite:///{tmp_path}/profiles.db", table="profiles")
    activity.lookup(remote, on="user_id", schema="name string, age int", retries=1, pause="1 ms").view("found")
    with flow.test() as t:
        t.send("activity", *rows("activity"))
        with pytest.raises(Unanswered, match="table profiles did not answer: 2 calls failed in a row"):
            t.epoch()
        connection = sqlite3.connect(tmp_path / "profiles.db")
        connection.executescript((HERE / "profiles.sql").read_text())
        connection.close()
        t.end()
        assert shown(t, "found") == ANSWERS

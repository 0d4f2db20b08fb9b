"""Alice is 28, Bob 35; Carol turns 31 at midnight."""

import json
import runpy
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


def answered(test: Any) -> list[tuple[Any, ...]]:
    return [(r["user_id"], r["action"], r["name"], r["age"]) for r in test.rows("who_did_what")]


ANSWERS = [
    ("UserID1", "LoggedIn", "Alice", 28),
    ("UserID2", "ViewedProduct", "Bob", 35),
    ("UserID3", "LoggedIn", "Carol", 30),
    ("UserID3", "ViewedProduct", "Carol", 31),
    ("UserID4", "LoggedIn", None, None),
]


def test_each_event_finds_the_profile_of_its_time() -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send("profiles", *rows("profiles"))
        t.send("activity", *rows("activity"))
        t.end()
        assert sorted(answered(t)) == ANSWERS
        assert {r["version_offset"] for r in t.rows("who_did_what") if r["name"] == "Carol"} == {"profiles/0@2", "profiles/0@3"}
        assert t.fates("who_did_what")["answered"] == 5


def test_answers_do_not_depend_on_where_epochs_are_cut_or_crash() -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send("profiles", *rows("profiles"))
        for row in rows("activity"):
            t.send("activity", row)
            t.crash("after_decide")
        t.end()
        assert sorted(answered(t)) == ANSWERS


def test_a_birthday_that_becomes_known_too_late_counts_for_later_events_only() -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        *known, birthday = rows("profiles")
        t.send("profiles", *known)
        t.send("activity", *rows("activity")[:4])
        t.epoch()
        t.send("profiles", birthday)
        t.send("activity", {"user_id": "UserID3", "action": "LoggedOut", "at": "2024-01-16T00:10:00Z"})
        t.end()
        carol = [(r["action"], r["age"]) for r in t.rows("who_did_what") if r["name"] == "Carol"]
        assert carol == [("LoggedIn", 30), ("ViewedProduct", 30), ("LoggedOut", 31)]

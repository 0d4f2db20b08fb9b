"""Envelopes keep the cache current; a second flow rebuilds a table from the changelog of the first."""

import json
import runpy
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FLOWS = runpy.run_path(str(HERE / "flow.py"))


def envelopes() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / "users_cdc.jsonl").read_text().splitlines()]


def test_the_cache_holds_what_the_database_holds() -> None:
    with FLOWS["flow"].test() as t:
        for envelope in envelopes():
            t.send("users_cdc", envelope)
            t.epoch()
        assert t.rows("profile_cache") == [
            {"user_id": 1, "name": "Alice", "city": "Rome"},
            {"user_id": 3, "name": "Caroline", "city": "Berlin"},
        ]


def test_an_older_change_never_overwrites_a_newer_one() -> None:
    with FLOWS["flow"].test() as t:
        t.send("users_cdc", *reversed(envelopes()))
        t.epoch()
        assert [row["name"] for row in t.rows("profile_cache")] == ["Alice", "Caroline"]

"""Searches for "tissues", the clicks that came of them, and those that led nowhere."""

import runpy
from pathlib import Path
from typing import Any

import orjson
import pytest

HERE = Path(__file__).parent


def flow() -> Any:
    return runpy.run_path(str(HERE / "flow.py"))["flow"]


def data(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (HERE / f"{name}.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("rows", [1, 2, None])
def test_a_click_belongs_to_the_searches_that_showed_it(rows: int | None) -> None:
    with flow().test() as t:
        t.send("searches", *data("searches"))
        t.send("clicks", *data("clicks"))
        t.epoch(rows)
        t.end()
        found = [(r["user"], r["query"], r["url"], f"{r['clicked']:%H:%M:%S}") for r in t.rows("found")]
        assert sorted(found) == [(1, "tissues", "/tissues/soft", "10:00:20"), (2, "tissues", "/tissues/box", "10:01:30")]
        assert sorted((r["user"], r["query"]) for r in t.rows("in_vain")) == [(2, "tisues"), (3, "tissues")]


def test_a_search_is_in_vain_only_when_no_click_can_come_for_it() -> None:
    with flow().test() as t:
        t.send("searches", *data("searches"))
        t.mark("searches", "2024-01-15T10:10:00Z")
        t.mark("clicks", "2024-01-15T10:05:00Z")
        t.catch_up()
        assert t.rows("in_vain") == []
        t.mark("clicks", "2024-01-15T10:06:00Z")
        t.catch_up()
        assert sorted((r["user"], f"{r['at']:%H:%M:%S}") for r in t.rows("in_vain")) == [(1, "10:00:00"), (2, "10:00:30")]

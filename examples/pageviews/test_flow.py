"""The page views under test: no broker, no JVM, no waiting."""

import runpy
from pathlib import Path
from typing import Any

import orjson

HERE = Path(__file__).parent


def flow() -> Any:
    return runpy.run_path(str(HERE / "flow.py"))["flow"]


def data() -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (HERE / "events.jsonl").read_bytes().splitlines()]


def test_page_views_are_counted_by_page_and_minute_and_clicks_are_not() -> None:
    with flow().test() as t:
        t.send("events", *data())
        t.end()
        counted = [(row["page"], f"{row['window_start']:%H:%M}", row["views"]) for row in t.rows("views_per_minute")]
        assert sorted(counted) == [("/cart", "10:31", 1), ("/products", "10:30", 2)]
        assert t.fates("page_views")["filtered"] == 1


def test_a_view_that_comes_after_its_minute_is_complete_is_kept_as_late() -> None:
    first, *_, last = data()
    with flow().test() as t:
        t.send("events", first, {**last, "timestamp": "2024-01-15T10:32:00"}, {**first, "session_id": "late"})
        t.end()
        assert [row["session_id"] for row in t.rows("late_views")] == ["late"]

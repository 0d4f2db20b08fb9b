"""The producer has written the watermark 10:00:10 into the stream; then a row of 10:00:08 comes."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def at(id: str, time: str) -> dict[str, str]:
    return {"id": id, "at": f"2024-01-15T{time}Z"}


@pytest.fixture
def test() -> Iterator[Any]:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send("rows", at("a", "10:00:06"), at("b", "10:00:09"))
        t.mark("rows", "2024-01-15T10:00:10Z")
        t.catch_up()
        t.send("rows", at("late", "10:00:08"), at("c", "10:00:11"))
        t.end()
        yield t


def shown(test: Any, view: str) -> list[tuple[str, int, int]]:
    return [(f"{row['window_start']:%H:%M:%S}", row["n"], row["revision"]) for row in test.rows(view)]


def test_ignored_it_is_counted_and_nothing_else(test: Any) -> None:
    assert shown(test, "ignoring") == [("10:00:05", 2, 0), ("10:00:10", 1, 0)]
    assert test.fates("ignoring")["ignored"] == 1


def test_diverted_it_is_kept_apart(test: Any) -> None:
    assert shown(test, "diverting") == [("10:00:05", 2, 0), ("10:00:10", 1, 0)]
    assert [row["id"] for row in test.rows("too_late")] == ["late"]
    assert test.fates("diverting")["diverted"] == 1


def test_corrected_the_window_comes_again_and_says_why(test: Any) -> None:
    assert shown(test, "correcting") == [("10:00:05", 3, 1), ("10:00:10", 1, 0)]
    (first, _) = test.rows("correcting")
    assert first["cause"] == {"rows": ["rows/0@2"], "count": 1}
    assert test.fates("correcting")["corrected"] == 1

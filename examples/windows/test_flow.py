"""The figures of the books: which windows there are, where they begin and end, what is in them."""

import runpy
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

HERE = Path(__file__).parent
Figure = list[tuple[str, str, int]]


def flow() -> Any:
    return runpy.run_path(str(HERE / "flow.py"))["flow"]


def at(time: str, user: str = "ann") -> dict[str, str]:
    return {"user": user, "at": f"2024-01-15T{time}Z"}


def shown(rows: list[dict[str, Any]]) -> Figure:
    return sorted((f"{row['window_start']:%H:%M:%S}", f"{row['window_end']:%H:%M:%S}", row["n"]) for row in rows)


def run(*times: str) -> dict[str, Figure]:
    names = ("per_minute", "overlapping", "with_gaps", "six_every_two", "six", "sessions")
    with flow().test() as t:
        t.send("visits", *map(at, times))
        t.end()
        return {name: shown(t.rows(name)) for name in names} | {"outside": t.fates("with_gaps").get("outside", 0)}


def test_side_by_side_two_two_one() -> None:
    found = run("10:00:15", "10:00:45", "10:01:10", "10:01:50", "10:02:20")
    assert found["per_minute"] == [("10:00:00", "10:01:00", 2), ("10:01:00", "10:02:00", 2), ("10:02:00", "10:03:00", 1)]


def test_sixty_seconds_every_thirty() -> None:
    assert run("10:00:15", "10:00:45", "10:01:10")["overlapping"] == [
        ("09:59:30", "10:00:30", 1),
        ("10:00:00", "10:01:00", 2),
        ("10:00:30", "10:01:30", 2),
        ("10:01:00", "10:02:00", 1),
    ]


EVERY_MINUTE = [f"10:{minute:02}:00" for minute in range(20)]


def test_six_minutes_every_ten_leaves_gaps_and_says_what_fell_into_them() -> None:
    found = run(*EVERY_MINUTE)
    assert found["with_gaps"] == [("10:00:00", "10:06:00", 6), ("10:10:00", "10:16:00", 6)]
    assert found["outside"] == 8


def test_six_minutes_every_two_overlap_threefold() -> None:
    found = run(*EVERY_MINUTE)["six_every_two"]
    assert found[:4] == [
        ("09:56:00", "10:02:00", 2),
        ("09:58:00", "10:04:00", 4),
        ("10:00:00", "10:06:00", 6),
        ("10:02:00", "10:08:00", 6),
    ]
    assert found[-1] == ("10:18:00", "10:24:00", 2)
    assert len(found) == 12


def test_six_minutes_side_by_side() -> None:
    assert run(*EVERY_MINUTE)["six"] == [
        ("10:00:00", "10:06:00", 6),
        ("10:06:00", "10:12:00", 6),
        ("10:12:00", "10:18:00", 6),
        ("10:18:00", "10:24:00", 2),
    ]


def test_ten_minutes_idle_end_a_session() -> None:
    found = run("10:00:00", "10:04:00", "10:13:59", "10:24:00", "10:33:59")["sessions"]
    assert found == [("10:00:00", "10:23:59", 3), ("10:24:00", "10:43:59", 2)]


def test_sliding_says_for_each_row_what_came_in_the_minute_before_it() -> None:
    with flow().test() as t:
        t.send("visits", *(at(time) for time in ("10:00:00", "10:00:30", "10:01:00", "10:01:00", "10:03:00")))
        t.end()
        found = [(f"{row['at']:%H:%M:%S}", row["n"]) for row in t.rows("last_minute")]
    assert sorted(found) == [("10:00:00", 1), ("10:00:30", 2), ("10:01:00", 3), ("10:01:00", 3), ("10:03:00", 1)]


@pytest.mark.parametrize(("name", "size", "every"), [("overlapping", 60, 30), ("with_gaps", 360, 600), ("six_every_two", 360, 120)])
def test_the_windows_are_those_of_a_batch_query(name: str, size: int, every: int) -> None:
    times = [f"10:{minute:02}:{second:02}" for minute in range(0, 40, 3) for second in (0, 17, 59)]
    query = """
        select to_timestamp(start), to_timestamp(start + $size), count(*)
        from (select unnest($times) as seen), (select unnest(range($begin, $begin + 86400, $every)) as start)
        where seen >= start and seen < start + $size group by start"""
    instants = [int(datetime.fromisoformat(f"2024-01-15T{time}+00:00").timestamp()) for time in times]
    begin = int(datetime.fromisoformat("2024-01-15T00:00:00+00:00").timestamp())
    duckdb.execute("set timezone = 'UTC'")
    rows = duckdb.execute(query, {"size": size, "every": every, "begin": begin, "times": instants}).fetchall()
    assert run(*times)[name] == sorted((f"{a:%H:%M:%S}", f"{b:%H:%M:%S}", n) for a, b, n in rows)

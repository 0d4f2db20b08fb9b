"""Averages that follow each reading, and a view that shrinks as time goes on."""

import runpy
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def flow() -> Any:
    return runpy.run_path(str(HERE / "flow.py"))["flow"]


def at(time: str, value: float, sensor: str = "s1") -> dict[str, Any]:
    return {"sensor": sensor, "value": value, "at": f"2024-01-15T{time}Z"}


def test_the_average_of_a_sensor_follows_each_reading() -> None:
    seen = []
    with flow().test() as t:
        for minute, value in enumerate((20.0, 22.0, 27.0)):
            t.send("readings", at(f"10:0{minute}:00", value))
            t.epoch()
            seen += [(row["n"], row["mean"]) for row in t.rows("averages")]
    assert seen == [(1, 20.0), (2, 21.0), (3, 23.0)]


def test_the_last_five_minutes_shrink_as_time_goes_on() -> None:
    def values() -> list[float]:
        return sorted(row["value"] for row in t.rows("recent"))

    with flow().test() as t:
        t.send("readings", at("10:00:00", 1.0), at("10:02:00", 2.0), at("10:04:00", 3.0))
        t.catch_up()
        assert values() == [1.0, 2.0, 3.0]
        t.mark("readings", "2024-01-15T10:06:00Z")
        t.catch_up()
        assert values() == [2.0, 3.0]
        t.send("readings", at("10:08:30", 4.0))
        t.catch_up()
        assert values() == [3.0, 4.0]

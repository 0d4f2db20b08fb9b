"""A device whose clock is two hours off: corrected = happened + (received - sent)."""

import runpy
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def reading(device: str, value: int, happened: str, sent: str, received: str) -> dict[str, Any]:
    times = {"happened": happened, "sent": sent, "received": received}
    return {"device": device, "value": value} | {name: f"2024-01-15T{time}Z" for name, time in times.items()}


def test_two_hours_ahead_and_on_time_fall_into_the_same_minute() -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        t.send(
            "readings",
            reading("ahead", 1, happened="12:00:05", sent="12:00:10", received="10:00:10"),
            reading("right", 2, happened="10:00:06", sent="10:00:11", received="10:00:11"),
            reading("ahead", 4, happened="12:00:20", sent="12:00:25", received="10:00:26"),
        )
        t.end()
        totals = {row["device"]: (f"{row['window_start']:%H:%M}", row["total"]) for row in t.rows("per_minute")}
        corrected = [(row["device"], f"{row['corrected']:%H:%M:%S}", row["uncertainty"]) for row in t.rows("right")]
    assert totals == {"ahead": ("10:00", 5), "right": ("10:00", 2)}
    assert sorted(corrected) == [("ahead", "10:00:05", 0.0), ("ahead", "10:00:20", 1.0), ("right", "10:00:06", 0.0)]

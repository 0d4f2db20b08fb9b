"""Mean and p95 against numbers that can be worked out by hand."""

import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_mean_and_p95_of_the_last_hour_per_endpoint() -> None:
    with runpy.run_path(str(HERE / "flow.py"))["flow"].test() as t:
        for ms in range(1, 101):
            at = f"2024-01-15T10:{ms % 60:02}:00Z"
            t.send("requests", {"endpoint": "/cart", "ms": float(ms), "status": 500 if ms > 90 else 200, "at": at})
        t.send("requests", {"endpoint": "/home", "ms": 7.0, "status": 200, "at": "2024-01-15T10:30:00Z"})
        t.end()
        cart, home = sorted(
            (row for row in t.rows("last_hour") if f"{row['window_start']:%H:%M}" == "10:00"), key=lambda row: row["endpoint"]
        )
    assert (cart["n"], cart["mean"], cart["failed"]) == (100, 50.5, 0.1)
    assert cart["p95"] == pytest.approx(95, rel=0.01)
    assert cart["per_second"] == pytest.approx(100 / 3600)
    assert (home["n"], home["mean"], home["p95"]) == (1, 7.0, pytest.approx(7.0, rel=0.01))

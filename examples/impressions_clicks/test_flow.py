"""Clicks within ten minutes, an impression that comes out alone, and the click-through rate."""

import runpy
from pathlib import Path
from typing import Any

import orjson

HERE = Path(__file__).parent


def flow() -> Any:
    return runpy.run_path(str(HERE / "flow.py"))["flow"]


def data(name: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (HERE / f"{name}.jsonl").read_bytes().splitlines()]


def outcomes(test: Any) -> list[tuple[int, str | None]]:
    return sorted((r["impression"], r["clicks_at"] and f"{r['clicks_at']:%H:%M:%S}") for r in test.rows("outcomes"))


def test_impression_456_of_1005_comes_out_alone_at_1015_although_nothing_more_arrives() -> None:
    with flow().test() as t:
        t.send("impressions", *data("impressions"))
        t.send("clicks", *data("clicks"))
        t.catch_up()
        together = [(123, "10:02:00"), (123, "10:02:03"), (789, "10:07:00")]
        assert outcomes(t) == together
        t.clock.set("2024-01-15T10:14:59Z")
        t.epoch()
        assert outcomes(t) == together
        t.clock.set("2024-01-15T10:15:06Z")  # the delay of five seconds, and a little, later
        t.epoch()
        assert outcomes(t) == sorted([*together, (456, None)], key=str)


def test_the_click_through_rate_counts_each_impression_once() -> None:
    with flow().test() as t:
        t.send("impressions", *data("impressions"))
        t.send("clicks", *data("clicks"))
        t.end()
        rates = {r["ad"]: (r["shown"], r["rate"]) for r in t.rows("click_through_rate")}
        assert rates == {"shoes": (2, 0.5), "tents": (1, 1.0)}


def test_a_click_after_more_than_ten_minutes_is_no_click() -> None:
    with flow().test() as t:
        t.send("impressions", {"impression": 1, "ad": "shoes", "at": "2024-01-15T10:00:00Z"})
        t.send("clicks", {"impression": 1, "user": "ann", "at": "2024-01-15T10:10:00.000001Z"})
        t.end()
        assert outcomes(t) == [(1, None)]
        assert [r["rate"] for r in t.rows("click_through_rate")] == [0.0]

"""Joins of streams in a whole flow: time that goes on by the clock, late rows of both sides, chains of joins."""

from typing import Any

import pytest

from penstock import Flow, Tumbling, agg
from penstock.engine.diagnose.describe import decode, describe
from penstock.flow.resolve import resolve
from penstock.flow.sql.analyzer import NoAnalyzer

IMPRESSIONS = "id long, ad string, at timestamp"
CLICKS = "id long, at timestamp"


def at(time: str) -> str:
    return f"2024-01-15T{time}Z"


def advertisements(**more: Any) -> tuple[Flow, Any, Any]:
    flow = Flow("ads")
    given: dict[str, Any] = {"time": "at", "lateness": "0 seconds"} | more
    return flow, flow.stream("impressions", IMPRESSIONS, **given), flow.stream("clicks", CLICKS, **given)


def test_an_impression_comes_out_alone_after_ten_minutes_although_nothing_more_arrives() -> None:
    flow, impressions, clicks = advertisements(delay="0 seconds")
    impressions.join(clicks, on="id", within=("0 seconds", "10 minutes"), how="left").view("outcomes")
    with flow.test() as t:
        t.clock.set(at("10:05:00"))
        t.send("impressions", {"id": 456, "ad": "x", "at": at("10:05:00")})
        t.epoch()
        t.clock.set(at("10:15:00"))
        t.epoch()
        assert t.rows("outcomes") == [], "a click of 10:15:00 can still come"
        t.clock.set(at("10:15:01"))
        t.epoch()
        assert [(row["id"], row["clicks_at"]) for row in t.rows("outcomes")] == [(456, None)]


def test_a_click_without_an_impression_comes_out_by_the_clock_too() -> None:
    flow, impressions, clicks = advertisements(delay="0 seconds")
    impressions.join(clicks, on="id", within=("0 seconds", "10 minutes"), how="full").view("outcomes")
    with flow.test() as t:
        t.clock.set(at("10:05:00"))
        t.send("clicks", {"id": 7, "at": at("10:05:00")})
        t.epoch()
        assert t.rows("outcomes") == [], "an impression of 10:05:00 can still come"
        t.clock.set(at("10:05:01"))
        t.epoch()
        assert [(row["id"], row["ad"], row["at"]) for row in t.rows("outcomes")] == [(7, None, None)]
        assert t.rows("outcomes")[0]["clicks_at"] is not None


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_rows_of_a_semi_or_anti_join_can_be_counted_in_windows_of_their_own_time(how: str) -> None:
    flow, impressions, clicks = advertisements()
    some = impressions.join(clicks, on="id", within=("0 seconds", "10 minutes"), how=how, name="some")
    some.window(Tumbling("1 minute"), by="ad").agg(n=agg.count()).view("counted")
    with flow.test() as t:
        rows = [{"id": i, "ad": "x", "at": at(f"10:00:{10 * i}")} for i in range(1, 6)]
        t.send("impressions", *rows)
        t.epoch(2)
        t.send("clicks", *({"id": i, "at": at(f"10:0{i}:00")} for i in (1, 2, 2, 2, 3)))
        t.epoch(1)
        t.end()
        (counted,) = t.rows("counted")
        assert (counted["ad"], f"{counted['window_start']:%H:%M}", counted["n"]) == ("x", "10:00", 3 if how == "semi" else 2)
        assert t.fates("some")["on time"] == 10


def test_late_rows_of_both_sides_can_be_read_with_the_columns_of_both() -> None:
    flow, impressions, clicks = advertisements()
    joined = impressions.join(clicks, on="id", within="10 minutes", how="anti", name="ignored")
    joined.view("ignored")
    joined.late.view("too_late")
    with flow.test() as t:
        t.send("impressions", {"id": 1, "ad": "x", "at": at("10:10:00")}, {"id": 2, "ad": "y", "at": at("10:00:00")})
        t.send("clicks", {"id": 3, "at": at("10:10:00")}, {"id": 4, "at": at("10:00:00")})
        t.end()
        assert [row["id"] for row in t.rows("ignored")] == [1]
        late = sorted((row["id"], row["ad"], row["clicks_at"] is not None) for row in t.rows("too_late"))
        assert late == [(2, "y", False), (4, None, True)]


def test_a_condition_reads_columns_that_do_not_come_out() -> None:
    flow = Flow("shop")
    given: dict[str, Any] = {"time": "at", "lateness": "0 seconds"}
    orders = flow.stream("orders", "order_id string, amount double, at timestamp", **given)
    payments = flow.stream("payments", "order_id string, paid double, at timestamp", **given)
    unpaid = orders.join(payments, on="order_id", within="30 minutes", how="anti", where="paid >= amount", name="short")
    unpaid.select("order_id").view("unpaid")
    with flow.test() as t:
        t.send("orders", *({"order_id": o, "amount": 20.0, "at": at("10:00:00")} for o in "abc"))
        t.send(
            "payments", {"order_id": "a", "paid": 20.0, "at": at("10:01:00")}, {"order_id": "b", "paid": 5.0, "at": at("10:01:00")}
        )
        t.end()
        assert sorted(row["order_id"] for row in t.rows("unpaid")) == ["b", "c"]


def test_a_full_join_can_be_joined_again() -> None:
    flow, impressions, clicks = advertisements()
    both = impressions.join(clicks, on="id", within=("0 seconds", "10 minutes"), how="full", name="both")
    ads = flow.stream("ads", "ad string, price double, at timestamp", time="at", lateness="0 seconds")
    both.join(ads, on="ad", within=("-1 hour", "0 seconds"), how="left", name="priced").view("priced", key="id")
    with flow.test() as t:
        t.send("ads", {"ad": "x", "price": 2.0, "at": at("09:30:00")})
        t.send("impressions", {"id": 1, "ad": "x", "at": at("10:00:00")}, {"id": 2, "ad": "z", "at": at("10:00:00")})
        t.send("clicks", {"id": 1, "at": at("10:01:00")}, {"id": 3, "at": at("10:01:00")})
        t.end()
        assert sorted((row["id"], row["price"]) for row in t.rows("priced")) == [(1, 2.0), (2, None), (3, None)]


def test_a_join_with_a_condition_can_be_made_again_from_what_is_kept_of_it() -> None:
    flow, impressions, clicks = advertisements()
    condition = "id in (1, 2, 3) and ad <> 'x' and clicks_at > timestamp'2024-01-15 10:00:00Z' and not id % 2 = 0"
    impressions.join(clicks, on="id", within="1 hour", how="full", where=condition).view("some")
    checked = resolve(flow, NoAnalyzer())
    (described,) = [step for step in describe(checked) if step["name"] == "some"]
    assert decode(described["definition"]) == checked.step("some").node
    assert described["views"] == ["some"]

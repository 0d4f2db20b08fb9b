"""Open windows shown now and then, and what updating steps promise on their way into a view."""

from typing import Any

import pytest

from penstock import Flow, Session, Tumbling, agg
from penstock.errors import BadFlow
from penstock.flow.stream import Stream

COLUMNS = "user string, amount long, at timestamp"


def stream(flow: Flow) -> Stream:
    return flow.stream("orders", COLUMNS, time="at", lateness="0 seconds")


def order(amount: int, at: str, user: str = "ann") -> dict[str, Any]:
    return {"user": user, "amount": amount, "at": f"2024-01-15T{at}Z"}


@pytest.mark.parametrize("window", [Tumbling("1 minute"), Session("30 seconds")])
def test_an_open_window_is_shown_when_the_clock_has_come_so_far_and_not_before(window: Any) -> None:
    flow = Flow("early")
    stream(flow).window(window, by="user", early="10 seconds").agg(total=agg.sum("amount"), name="sales").view("sales")
    with flow.test() as t:
        t.clock.set("2024-01-15T10:00:01Z")
        t.send("orders", order(1, "10:00:01"))
        t.epoch()
        first = [row["total"] for row in t.rows("sales")]
        t.clock.set("2024-01-15T10:00:02Z")
        t.send("orders", order(2, "10:00:02"))
        t.epoch()
        assert [row["total"] for row in t.rows("sales")] == first, "not yet ten seconds"
        t.clock.set("2024-01-15T10:00:12Z")
        t.epoch()
        assert [row["total"] for row in t.rows("sales")] == [3], "without a new row, since something was not shown yet"
        t.end()
        assert [row["total"] for row in t.rows("sales")] == [3]


def test_a_condition_takes_away_what_no_longer_meets_it() -> None:
    flow = Flow("few")
    sales = stream(flow).window(Tumbling("1 minute"), by="user", emit="updates").agg(total=agg.sum("amount"), name="sales")
    sales.where("total < 10", name="small").view("small")
    with flow.test() as t:
        t.send("orders", order(4, "10:00:01"))
        t.epoch()
        assert [row["total"] for row in t.rows("small")] == [4]
        t.send("orders", order(7, "10:00:02"))
        t.epoch()
        assert t.rows("small") == []
        t.send("orders", order(-8, "10:00:03"))
        t.epoch()
        assert [row["total"] for row in t.rows("small")] == [3]


def test_two_sessions_that_a_row_brings_together_become_one() -> None:
    flow = Flow("bridge")
    sessions = flow.stream("orders", COLUMNS, time="at", lateness="1 hour").window(Session("10 seconds"), by="user", emit="updates")
    sessions.agg(n=agg.count(), name="sessions").view("sessions")
    with flow.test() as t:
        t.send("orders", order(1, "10:00:00"), order(1, "10:00:15"))
        t.epoch()
        assert [row["n"] for row in t.rows("sessions")] == [1, 1]
        t.send("orders", order(1, "10:00:08"))
        t.epoch()
        assert [(row["n"], f"{row['window_start']:%S}", f"{row['window_end']:%S}") for row in t.rows("sessions")] == [
            (3, "00", "25")
        ]


def refused(make: Any) -> str:
    def checked() -> None:
        flow = Flow("wrong")
        make(stream(flow))
        flow.test()

    with pytest.raises(BadFlow) as caught:
        checked()
    return str(caught.value)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda s: s.window(Tumbling("1 minute"), late="correct").agg(n=agg.count()).view("v"), 'late="correct" needs a bound'),
        (lambda s: s.window(Tumbling("1 minute"), allowed="1 minute").agg(n=agg.count()).view("v"), "corrects none"),
        (
            lambda s: s.window(Tumbling("1 minute"), emit="updates", early="1 second").agg(n=agg.count()).view("v"),
            "early= shows open windows now and then",
        ),
        (lambda s: s.last("1 minute").to("topic"), "its rows change, and no column tells them apart"),
        (
            lambda s: s.window(Tumbling("1 minute"), by="user", emit="updates").agg(n=agg.count()).select("n").view("v"),
            "cannot select without 'window_start'",
        ),
        (
            lambda s: s.group_by("user").agg(n=agg.count()).window(Tumbling("1 minute")).agg(n=agg.count()).view("v"),
            "its rows change",
        ),
        (lambda s: s.group_by("user").agg(r=agg.rate()).view("v"), "no stretch of time"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(make: Any, what: str) -> None:
    assert what in refused(make)

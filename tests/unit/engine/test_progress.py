"""What a run says of itself, and what it measures of a topic's disorder."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Flow, FlowTest, Producer, Schema, TopicSpec, Tumbling, agg
from penstock.core.time import FOREVER, NEVER
from penstock.engine.disorder import suggest
from penstock.engine.progress import Tally, balance, clock_text
from penstock.log.memory import MemoryLog

Start = Callable[..., FlowTest]
COLUMNS = "user string, at timestamp"


def shop() -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="10 seconds", idle="1 day")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), name="sales").view("sales")
    return flow


def order(at: str) -> dict[str, Any]:
    return {"user": "a", "at": f"2024-01-15T10:{at}Z"}


def tallied(t: FlowTest, **cut: Any) -> tuple[Tally, str]:
    """A tally of one epoch, and its line of progress."""
    tally = Tally(t.driver)
    report = t.epoch(**cut)
    assert report
    tally.add(report)
    return tally, tally.progress(report)


def test_the_line_while_running_says_how_far_it_is_and_who_holds_it_back(flow_test: Start) -> None:
    t = flow_test(shop())
    t.topic("orders", partitions=2)
    t.send("orders", order("05:00"), order("06:00"), partition=0)
    t.send("orders", order("02:00"), order("02:01"), partition=1)
    t.clock.advance("30 seconds")
    _, line = tallied(t, cut=1)
    assert line.startswith("shop · epoch 0 · 2 rows in ")
    assert "watermark none yet, held back by orders/" in line, "a frame was cut: its time is not known yet"
    _, line = tallied(t)
    assert "watermark 2024-01-15 10:01:51, held back by orders/1" in line


def test_rows_not_yet_read_are_told_with_their_age(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("05:00"), order("06:00"), order("07:00"))
    t.clock.advance("30 seconds")
    _, line = tallied(t, cut=1)
    assert line.endswith("2 rows and 30 s behind")


def test_the_closing_line_says_what_came_in_what_is_late_and_what_is_open(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("05:00"), order("01:00"))
    tally, _ = tallied(t)
    assert tally.closing() == (
        "read 2 rows · 1 late (penstock fates) · 0 dead · watermark 2024-01-15 10:04:50, held back by orders/0"
        " · 1 window open until 2024-01-15 10:06:00 (view show --open, run --drain)"
    )


def test_the_closing_line_counts_this_run_alone(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("05:00"), order("01:00"))
    t.epoch()
    t.send("orders", order("05:01"))
    tally, _ = tallied(t)
    assert tally.closing().startswith("read 1 rows · 0 late · 0 dead")


def test_after_the_end_nothing_holds_it_back(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("05:00"))
    t.end()
    assert Tally(t.driver).closing().endswith("watermark +∞ (ended)")


def test_before_anything_came_in_it_says_so(flow_test: Start) -> None:
    assert "nothing has come in yet" in Tally(flow_test(shop()).driver).closing()


def test_times_are_for_people() -> None:
    assert [clock_text(us) for us in (NEVER, 0, FOREVER)] == ["none yet", "1970-01-01 00:00:00", "+∞ (ended)"]


def test_the_books_balance_when_every_row_has_a_fate() -> None:
    fates = {"a": {"in": 5, "passed": 3, "filtered": 2}, "b": {"in": 4, "on time": 2, "diverted": 1}}
    assert list(balance(fates)) == [("a", 5, 5), ("b", 4, 3)]


def topic_of(log: MemoryLog, seconds: list[int], **settings: Any) -> None:
    spec = TopicSpec("orders", 1, settings.pop("schema", Schema.of(COLUMNS)), **settings)
    with Producer(log.create(spec)) as producer:
        for second in seconds:
            producer.send({"user": "a", "at": f"2024-01-15T10:{second // 60:02d}:{second % 60:02d}Z"})


@pytest.mark.parametrize("settings", [{"time": "at"}, {}, {"schema": None, "time": "at"}, {"schema": None}])
def test_disorder_is_measured_wherever_the_time_stands(settings: dict[str, Any]) -> None:
    log = MemoryLog()
    topic_of(log, [0, 100, 40, 101, 102], **settings)
    said = suggest(log)("orders", "at")
    assert said
    assert "rows come up to 1 minute behind a newer one" in said
    assert 'lateness="1 minute"' in said


def test_a_row_in_a_thousand_is_left_out_of_the_suggestion() -> None:
    log = MemoryLog()
    topic_of(log, [*range(3000), 0, 2999, 2990])
    said = suggest(log)("orders", "at")
    assert said
    assert "up to 49 minutes 59 seconds behind" in said
    assert 'lateness="1 second"' in said


def test_where_nothing_can_be_measured_nothing_is_said() -> None:
    log = MemoryLog()
    assert suggest(log)("orders", "at") is None
    topic_of(log, [])
    assert suggest(log)("orders", "at") is None
    assert suggest(log)("orders", "other") is None


def test_a_flow_without_lateness_is_shown_the_measured_disorder() -> None:
    from penstock.errors import BadFlow
    from penstock.flow.analyzer import NoAnalyzer
    from penstock.flow.resolve import resolve

    log = MemoryLog()
    topic_of(log, [0, 100, 40])
    flow = Flow("shop")
    orders = flow.stream("orders", COLUMNS, time="at")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count()).view("sales")
    with pytest.raises(BadFlow, match="up to 1 minute behind"):
        resolve(flow, NoAnalyzer(), {}, suggest(log))

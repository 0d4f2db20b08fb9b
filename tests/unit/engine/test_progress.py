"""What a run says of itself, and what it measures of a topic's disorder."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Calendar, Flow, FlowTest, Hopping, Producer, Schema, Session, TopicSpec, Tumbling, agg
from penstock.core.time import FOREVER, NEVER
from penstock.engine.diagnose.disorder import disorder, suggest
from penstock.engine.run.progress import Tally, balance, clock_text
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
        "read 2 rows · 1 row late (penstock fates shop) · 0 dead · watermark 2024-01-15 10:04:50, held back by orders/0"
        " · 1 window open until 2024-01-15 10:06:00 (view show --open, run --drain)"
    )


def test_the_closing_line_counts_this_run_alone(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("05:00"), order("01:00"))
    t.epoch()
    t.send("orders", order("05:01"))
    tally, _ = tallied(t)
    assert tally.closing().startswith("read 1 rows · 0 rows late · 0 dead")


def test_a_row_that_several_windows_refuse_is_one_late_row(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="10 seconds")
    orders.window(Hopping("1 minute", every="10 seconds"), by="user").agg(n=agg.count()).view("sales")
    t = flow_test(flow)
    t.send("orders", order("05:00"), order("01:00"), order("01:01"))
    tally, _ = tallied(t)
    assert t.fates("sales") == {"in": 3, "judged": 3, "windows": 18, "on time": 6, "diverted": 12, "late rows": 2}
    assert "· 2 rows late (penstock fates shop) ·" in tally.closing()
    assert all(rows == known for _, rows, known in balance(t.fates()))


def test_where_several_steps_judge_the_same_rows_each_is_named(flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="10 seconds")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count()).view("sales")
    orders.window(Session("1 minute"), by="user").agg(n=agg.count()).view("visits")
    t = flow_test(flow)
    t.send("orders", order("05:00"), order("01:00"), order("04:45"))
    tally, _ = tallied(t)
    assert "· rows late: 2 at visits, 1 at sales (penstock fates shop) ·" in tally.closing()


def test_after_the_end_nothing_holds_it_back(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("05:00"))
    tally = Tally(t.driver)
    t.end()
    assert tally.closing().endswith("watermark +∞ (ended)")


def test_before_anything_came_in_it_says_so(flow_test: Start) -> None:
    assert "nothing has come in yet" in Tally(flow_test(shop()).driver).closing()


def test_times_are_for_people() -> None:
    assert [clock_text(us) for us in (NEVER, 0, FOREVER)] == ["none yet", "1970-01-01 00:00:00", "+∞ (ended)"]


def test_the_books_balance_when_every_row_has_a_fate() -> None:
    fates = {"a": {"in": 5, "passed": 3, "filtered": 2}, "b": {"in": 4, "on time": 2, "diverted": 1}}
    assert list(balance(fates)) == [("a", 5, 5), ("b", 4, 3)]


def test_windows_that_overlap_have_a_line_for_their_windows() -> None:
    judged = {"in": 5, "outside": 1, "judged": 4, "windows": 8, "on time": 5, "corrected": 1, "diverted": 2}
    assert list(balance({"a": judged})) == [("a", 5, 5), ("a, window by window", 8, 8)]
    assert list(balance({"a": judged | {"diverted": 1}}))[1] == ("a, window by window", 8, 7)
    assert next(iter(balance({"a": judged | {"judged": 3}}))) == ("a", 5, 4)


def test_rows_that_are_too_old_are_accounted_for() -> None:
    assert list(balance({"a": {"in": 3, "passed": 2, "too old": 1}})) == [("a", 3, 3)]


@pytest.mark.parametrize(
    ("kind", "how", "told"),
    [
        (Tumbling("1 minute"), {"late": "correct", "allowed": "1 hour"}, "1 window open until 2024-01-15 10:06:00"),
        (Hopping("1 minute", every="20 seconds"), {}, "3 windows open until 2024-01-15 10:06:20"),
        (Hopping("10 seconds", every="40 seconds"), {}, "1 window open until 2024-01-15 10:05:30"),
        (Calendar("day", "Europe/Berlin"), {}, "1 window open until 2024-01-15 23:00:00"),
    ],
)
def test_open_windows_are_counted_wherever_they_lie(kind: Any, how: dict[str, Any], told: str, flow_test: Start) -> None:
    flow = Flow("shop")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="10 seconds", idle="1 day")
    orders.window(kind, by="user", **how).agg(n=agg.count(), name="sales").view("sales")
    t = flow_test(flow)
    t.send("orders", order("01:00"), order("01:01"), order("05:25"))
    tally, _ = tallied(t)
    assert told in tally.closing()


def topic_of(log: MemoryLog, seconds: list[int], **settings: Any) -> None:
    frame = settings.pop("frame", 1_000)
    spec = TopicSpec("orders", 1, settings.pop("schema", Schema.of(COLUMNS)), **settings)
    with Producer(log.create(spec), batch_rows=frame) as producer:
        for second in seconds:
            producer.send({"user": "a", "at": f"2024-01-15T10:{second // 60:02d}:{second % 60:02d}Z"})


@pytest.mark.parametrize("settings", [{"time": "at"}, {}, {"schema": None, "time": "at"}, {"schema": None}])
def test_disorder_is_measured_wherever_the_time_stands(settings: dict[str, Any]) -> None:
    log = MemoryLog()
    topic_of(log, [0, 100, 40, 101, 102], **settings)
    said = suggest(log)("orders", "at")
    assert said
    assert "rows come up to 1 minute behind a newer one" in said
    assert 'lateness="1 minute" would keep 99.9 % of 5 rows' in said


def test_a_row_in_a_thousand_is_left_out_of_the_suggestion() -> None:
    log = MemoryLog()
    topic_of(log, [*range(3000), 0, 2999, 2990])
    said = suggest(log)("orders", "at")
    assert said
    assert "up to 49 minutes 59 seconds behind" in said
    assert 'lateness="1 second"' in said


def test_disorder_is_exact_within_a_batch_and_over_its_edges() -> None:
    log = MemoryLog()
    topic_of(log, [0, 100, 40, 101, 99])
    found = disorder(log.topic("orders"), "at")
    assert (found.behind.tolist(), found.rows, found.stored) == ([2_000_000, 60_000_000], 5, 5)
    assert [found.keeping(share) for share in (0.5, 0.8, 1.0)] == [0, 2_000_000, 60_000_000]


def test_only_the_last_rows_are_measured_and_that_is_said() -> None:
    log = MemoryLog()
    topic_of(log, [100, 0, 101, 102, 99], time="at", frame=1)
    found = disorder(log.topic("orders"), "at", sample=3)
    assert (found.behind.tolist(), found.of_what()) == ([3_000_000], "the last 3 of 5 rows")


def test_what_came_before_the_last_rows_counts_where_headers_know_it() -> None:
    log = MemoryLog()
    topic_of(log, [100, 40], time="at", frame=1)
    assert disorder(log.topic("orders"), None, sample=1).behind.tolist() == [60_000_000]


def test_a_time_from_far_away_is_no_disorder_of_the_others() -> None:
    log = MemoryLog()
    topic_of(log, [0, 100])
    with Producer(log.topic("orders")) as producer:
        producer.send({"user": "a", "at": "9000-01-01T00:00:00Z"})
        producer.send({"user": "a", "at": "2024-01-15T10:01:41Z"})
    assert disorder(log.topic("orders"), "at").worst == 0


def test_a_topic_timed_by_its_writing_is_in_order() -> None:
    log = MemoryLog()
    topic_of(log, [100, 0])
    found = disorder(log.topic("orders"), None)
    assert (found.worst, found.rows) == (0, 2)


def test_where_nothing_can_be_measured_nothing_is_said() -> None:
    log = MemoryLog()
    assert suggest(log)("orders", "at") is None
    topic_of(log, [])
    assert suggest(log)("orders", "at") is None
    assert suggest(log)("orders", "other") is None


def test_a_flow_without_lateness_is_shown_the_measured_disorder() -> None:
    from penstock.errors import BadFlow
    from penstock.flow.resolve import resolve
    from penstock.flow.sql.analyzer import NoAnalyzer

    log = MemoryLog()
    topic_of(log, [0, 100, 40])
    flow = Flow("shop")
    orders = flow.stream("orders", COLUMNS, time="at")
    orders.window(Tumbling("1 minute"), by="user").agg(n=agg.count()).view("sales")
    with pytest.raises(BadFlow, match="up to 1 minute behind"):
        resolve(flow, NoAnalyzer(), {}, suggest(log))


def test_a_table_is_never_who_holds_the_watermark_back(flow_test: Start) -> None:
    flow = Flow("shop")
    users = flow.table("users", "user string, name string", key="user")
    countries = flow.static([{"user": "a", "vat": 0.2}], "user string, vat double", key="user", name="vat")
    orders = flow.stream("orders", COLUMNS, time="at", lateness="10 seconds", idle="1 day")
    both = orders.enrich(users, on="user").enrich(countries, on="user")
    both.window(Tumbling("1 minute"), by="user").agg(n=agg.count(), name="sales").view("sales")
    t = flow_test(flow)
    t.send("users", {"user": "a", "name": "A"})
    t.send("orders", order("00:30"))
    tally, line = tallied(t)
    assert "watermark 2024-01-15 10:00:20, held back by orders/0" in line
    assert "held back by orders/0" in tally.closing()
    assert "1 window open" in tally.closing()
    t.end()
    assert "+∞ (ended)" in Tally(t.driver).closing()


def test_a_flow_of_tables_alone_says_that_it_has_no_watermark(flow_test: Start) -> None:
    flow = Flow("shop")
    flow.table("users", "user string, name string", key="user").view("current")
    t = flow_test(flow)
    t.send("users", {"user": "a", "name": "A"})
    tally, line = tallied(t)
    assert "tables alone, which have no watermark" in line
    assert "tables alone, which have no watermark" in tally.closing()


def test_a_run_over_an_ended_input_says_so_and_how_to_go_on(flow_test: Start) -> None:
    t = flow_test(shop())
    t.send("orders", order("05:00"))
    before = Tally(t.driver)
    t.end()
    assert "ended by --drain" not in before.closing()  # this run has ended it itself
    t.send("orders", order("06:00"))
    tally, _ = tallied(t)
    assert "its input was ended by --drain: new rows are late (penstock flow reopen shop)" in tally.closing()
    t.reopen()
    assert "ended by --drain" not in Tally(t.driver).closing()

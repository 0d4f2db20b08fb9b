"""Why: what is told of a record is what the engine did with it."""

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faults import engine_shop
from penstock import Count, Flow, FlowTest, Hopping, Schema, Session, Sliding, Tumbling, agg
from penstock.core.position import Position
from penstock.engine.diagnose.inspect import decisions_of
from penstock.engine.diagnose.locate import Event, Story, find, told_by_letters
from penstock.engine.diagnose.trace import programs
from penstock.engine.diagnose.whatif import what_if
from penstock.engine.diagnose.why import Followed
from penstock.engine.execute.program import lower
from penstock.engine.run.progress import balance
from penstock.errors import NotFound
from penstock.flow.resolve import resolve

Start = Callable[..., FlowTest]
START = datetime(2024, 1, 15, 10, tzinfo=UTC)
PAGES = "page string, ms long, at timestamp, other timestamp"
FATES = ("filtered", "dead", "implausible", "on time", "corrected", "diverted", "ignored", "outside", "too old")


def pages(**settings: Any) -> Flow:
    flow = Flow("pages")
    views = flow.stream("views", PAGES, **{"time": "at", "lateness": "2 seconds", "idle": "20 seconds", **settings})
    slow = views.where("ms > 10", name="slow")
    slow.window(Tumbling("5 seconds"), by="page").agg(n=agg.count(), name="per_page").view("per_page")
    return flow


def row(at: str, ms: int = 20) -> dict[str, Any]:
    return {"page": "a", "ms": ms, "at": f"2024-01-15T10:{at}Z"}


def story(t: FlowTest, offset: int, topic: str = "views", partition: int = 0) -> Story:
    return Followed(t.driver.program, t.log, t.driver.decisions, Position(topic, partition, offset)).story()


def of_step(t: FlowTest, step: str, offset: int) -> list[Event]:
    return [event for event in story(t, offset).events if event.step == step]


@pytest.fixture
def marked(flow_test: Start) -> FlowTest:
    """A watermark of 10:00:10 written into the stream, then a row of 10:00:08; and rows before and behind."""
    t = flow_test(pages())
    t.clock.set("2024-01-15T10:00:12Z")
    t.send("views", row("00:07"), row("00:06", ms=1))
    t.mark("views", "2024-01-15T10:00:10Z")
    t.send("views", row("00:08"), row("00:12"), {**row("00:13"), "at": "2033-01-01T00:00:00Z"})
    t.catch_up()
    return t


def test_a_row_on_time_is_told_with_its_window_and_where_the_result_went(marked: FlowTest) -> None:
    read, passed, judged = story(marked, 0).events
    assert read.text == "read in epoch 0, opened 2024-01-15T10:00:12Z; time 2024-01-15T10:00:07Z; no watermark yet"
    assert (passed.step, passed.fate) == ("slow", "passed")
    assert judged.text == (
        'window 2024-01-15T10:00:05Z to 2024-01-15T10:00:10Z: on time under {"page":"a"}, complete → view per_page'
    )


def test_a_window_still_open_is_told_with_how_far_time_has_come(marked: FlowTest) -> None:
    (judged,) = of_step(marked, "per_page", 3)
    assert "still open: time has come to 2024-01-15T10:00:10Z" in judged.text


def test_a_filtered_row_is_told_with_the_condition_and_its_values(marked: FlowTest) -> None:
    assert story(marked, 1).events[-1].text == 'filtered: ms > 10 is not true of {"ms":1}'


def test_a_late_row_is_told_with_its_cause_its_letter_and_what_would_have_changed_it(marked: FlowTest) -> None:
    read, _, late, written = story(marked, 2).events
    assert read.text.endswith("watermark 2024-01-15T10:00:10Z: a mark stands before it")
    assert (late.fate, late.facts["late_by_seconds"]) == ("diverted", 0.0)
    assert late.text == "window 2024-01-15T10:00:05Z to 2024-01-15T10:00:10Z: late, diverted: the watermark had reached its end"
    assert late.changes == ('late="correct" and an allowed of more than 0 seconds',), "no lateness helps against a mark"
    assert written.text == "written to pages.late/0@0"


def test_an_implausible_row_is_told_with_the_setting_that_would_take_it(marked: FlowTest) -> None:
    (taken_out,) = story(marked, 4).events
    assert taken_out.fate == "implausible"
    assert "its time 2033-01-01T00:00:00Z lies 3273 days 13 hours 59 minutes 48 seconds beyond its append time" in taken_out.text
    assert taken_out.text.endswith("→ pages.dead/0@0")
    assert taken_out.changes == ('a topic made with future="3273 days 13 hours 59 minutes 48 seconds"',)


def test_the_lateness_that_would_have_kept_a_row_is_the_least_one(flow_test: Start) -> None:
    t = flow_test(pages())
    t.send("views", row("00:30"), row("00:08"))
    t.catch_up()
    (late, _) = of_step(t, "per_page", 1)
    assert "the watermark lay 18 seconds beyond its end" in late.text
    assert late.changes[0] == "a lateness of more than 20 seconds"
    for lateness, fate in (("20 seconds", "diverted"), ("20 seconds 1 us", "on time")):
        again = flow_test(pages(lateness=lateness))
        again.send("views", row("00:30"), row("00:08"))
        again.catch_up()
        assert of_step(again, "per_page", 1)[0].fate == fate


def test_a_row_that_is_late_by_the_engines_own_mark_is_told_so(flow_test: Start) -> None:
    t = flow_test(pages())
    t.topic("views", partitions=2)
    t.send("views", row("00:01"), partition=1)
    t.send("views", row("00:01"), partition=0)
    t.epoch()
    t.clock.advance("1 minute")
    t.send("views", row("00:50"), partition=0)
    t.epoch()
    t.epoch()
    t.send("views", row("00:02"), partition=1)
    t.epoch()
    read, _, late, _ = story(t, 1, partition=1).events
    assert "the engine marked the partition" in read.text
    assert late.changes[:2] == ("a lateness of more than 45 seconds", "a longer idle=")


def test_rows_of_late_are_followed_on_and_judged_again(flow_test: Start) -> None:
    flow = pages()
    views = flow.stream("views", PAGES, time="at", lateness="2 seconds", idle="20 seconds")
    hourly = views.window(Tumbling("10 seconds"), by="page").agg(n=agg.count(), name="hourly")
    hourly.view("hourly")
    hourly.late.window(Tumbling("1 hour"), by="page").agg(n=agg.count(), name="again").view("again")
    t = flow_test(flow)
    t.send("views", row("00:30"), row("00:08"))
    t.catch_up()
    fates = [(event.step, event.fate) for event in story(t, 1).events]
    assert ("hourly", "diverted") in fates
    assert ("again", "on time") in fates
    assert sum(step == "hourly" and fate == "written" for step, fate in fates) == 0, "it went to .late, not to the flow's own topic"


def test_both_sides_of_a_join_are_told(flow_test: Start) -> None:
    flow = Flow("pages")
    views = flow.stream("views", PAGES, time="at", lateness="2 seconds")
    clicks = flow.stream("clicks", PAGES, time="at", lateness="2 seconds")
    views.join(clicks, on="page", within="5 seconds", name="pairs", late="ignore").view("pairs")
    t = flow_test(flow)
    t.send("clicks", row("00:30"), row("00:08"))
    t.catch_up()
    _, taken = story(t, 0, "clicks").events
    assert taken.text == 'on time under {"page":"a"} → view pairs'
    _, late = story(t, 1, "clicks").events
    assert (late.fate, late.changes) == ("ignored", ("a lateness of at least 22 seconds",)), "a join offers no correction"


def test_a_record_not_yet_read_is_told_so(flow_test: Start) -> None:
    t = flow_test(pages())
    t.send("views", row("00:01"))
    t.epoch()
    t.send("views", row("00:02"))
    told = story(t, 1)
    assert not told.read
    assert told.events[0].text == "not yet read: the flow has come to offset 1"


def test_an_epoch_that_was_swept_is_no_longer_named(flow_test: Start) -> None:
    t = flow_test(pages())
    for second in range(40):
        t.send("views", row(f"00:{second:02d}"))
        t.epoch()
    oldest = t.driver.decisions.epochs()[0]
    assert oldest > 0
    assert story(t, 0).events[0].text.startswith(f"read before epoch {oldest}, the oldest that is kept; time")


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (Position("views", 3, 0), "no partition 3"),
        (Position("views", 0, 5), "there is no record views/0@5 yet"),
        (Position("views", 0, -1), "there is no record"),
    ],
)
def test_a_record_that_is_not_there_is_not_found(where: Position, what: str, marked: FlowTest) -> None:
    with pytest.raises(NotFound, match=what):
        find(marked.log.topic("views"), where)


def test_a_record_of_a_raw_topic_is_shown_as_its_text(flow_test: Start) -> None:
    t = flow_test(pages())
    t.topic("views", schema=None)
    t.send("views", row("00:07"))
    found, appended = find(t.log.topic("views"), Position("views", 0, 0))
    assert found == {"value": '{"page":"a","ms":20,"at":"2024-01-15T10:00:07Z"}'}
    assert appended == t.clock.now()


def test_a_record_that_cannot_be_read_is_told_with_its_reason_and_its_letter(flow_test: Start) -> None:
    t = flow_test(pages())
    t.topic("views", schema=None)
    t.send("views", row("00:07"), {**row("00:08"), "ms": "many"})
    t.catch_up()
    (dead,) = story(t, 1).events
    assert dead.fate == "dead"
    assert "dead: " in dead.text
    assert "'many'" in dead.text or '"many"' in dead.text
    assert dead.text.endswith("→ pages.dead/0@0")


def test_without_the_program_the_letters_tell_what_was_written_down(marked: FlowTest) -> None:
    topic = marked.log.topic("views")
    told = told_by_letters(marked.log, marked.driver.decisions, topic, Position("views", 0, 2))
    assert [event.fate for event in told.events] == ["read", "diverted"]
    assert told.events[1].text == ("late: its time was 2024-01-15T10:00:08Z, the watermark 2024-01-15T10:00:10Z → pages.late/0@0")


def over(judge: Callable[[Any], Any], **settings: Any) -> Callable[[], Flow]:
    """A flow whose filtered rows go to a step called per_page."""

    def make() -> Flow:
        flow = Flow("pages")
        views = flow.stream("views", PAGES, **{"time": "at", "lateness": "2 seconds", "idle": "20 seconds", **settings})
        judge(views.where("ms > 10", name="slow")).view("per_page")
        return flow

    return make


def clocks_set_right() -> Flow:
    flow = Flow("pages")
    views = flow.stream("views", PAGES, lateness="2 seconds", idle="20 seconds")
    fixed = views.clock_fix(happened="other", sent="at", by="page", span="10 seconds")
    windowed(Tumbling("5 seconds"))(fixed.where("ms > 10", name="slow")).view("per_page")
    return flow


def windowed(kind: Any, **how: Any) -> Callable[[Any], Any]:
    return lambda slow: slow.window(kind, by="page", **how).agg(n=agg.count(), name="per_page")


KINDS = {
    "tumbling": over(windowed(Tumbling("5 seconds"))),
    "corrected": over(windowed(Tumbling("5 seconds"), late="correct", allowed="6 seconds")),
    "overlapping": over(windowed(Hopping("12 seconds", every="4 seconds"), late="ignore")),
    "overlapping and corrected": over(windowed(Hopping("12 seconds", every="4 seconds"), late="correct", allowed="6 seconds")),
    "with gaps": over(windowed(Hopping("6 seconds", every="10 seconds"))),
    "session": over(windowed(Session("3 seconds"))),
    "session, corrected": over(windowed(Session("3 seconds"), late="correct", allowed="10 seconds")),
    "sliding": over(windowed(Sliding("6 seconds"))),
    "count": over(windowed(Count(3))),
    "running": over(lambda slow: slow.group_by("page").agg(n=agg.count(), name="per_page")),
    "running, kept": over(lambda slow: slow.group_by("page", keep="6 seconds").agg(n=agg.count(), name="per_page")),
    "another time": over(windowed(Tumbling("5 seconds")), time="other"),
    "append time": over(windowed(Tumbling("5 seconds")), time="append", lateness=None),
    "clocks set right": clocks_set_right,
    "delayed": over(windowed(Tumbling("5 seconds")), delay="4 seconds"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_told_of_every_record_it_adds_up_to_the_books(kind: str, flow_test: Start) -> None:
    t = flow_test(KINDS[kind]())
    fill(t, random.Random(kind))
    told: Counter[tuple[str, str]] = Counter()
    for partition, end in t.log.topic("views").ends().items():
        for offset in range(end.next):
            told.update((e.step, e.fate) for e in story(t, offset, partition=partition).events if e.fate in FATES)
    books = Counter({(step, fate): n for step, counts in t.fates().items() for fate, n in counts.items() if fate in FATES and n})
    assert told == books
    assert all(rows == known for _, rows, known in balance(t.fates()))
    assert ("slow", "filtered") in told


def test_two_flows_of_a_home_that_was_drained_add_up_to_their_books(tmp_path: Path) -> None:
    engine_shop.fill(tmp_path, engine_shop.make_input(60))
    engine_shop.drain(tmp_path)
    for make in (engine_shop.shop, engine_shop.report):
        ((program, log),) = programs(tmp_path, [make()])
        decisions = decisions_of(tmp_path, program.plan.flow)
        told: Counter[tuple[str, str]] = Counter()
        for topic in {spec.topic for spec in program.sources.values()}:
            for partition, end in log.topic(topic).ends().items():
                for offset in range(end.next):
                    events = Followed(program, log, decisions, Position(topic, partition, offset)).story().events
                    told.update((e.step, e.fate) for e in events if e.fate in FATES)
        last = decisions.last()
        assert last
        assert told == Counter({(s, f): n for s, counts in last.fates.items() for f, n in counts.items() if f in FATES and n})


class Booleans:
    """Stands in for Spark's analysis: every expression is a condition."""

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        return pa.bool_()


def test_what_only_spark_can_evaluate_is_not_followed_and_that_is_said(flow_test: Start) -> None:
    t = flow_test(pages())
    t.send("views", row("00:07"))
    t.catch_up()
    flow = Flow("pages")
    views = flow.stream("views", PAGES, time="at", lateness="2 seconds")
    only_spark = views.where("page rlike 'a+'", name="matching")
    only_spark.window(Tumbling("5 seconds"), by="page").agg(n=agg.count(), name="per_page").view("per_page")
    program = lower(resolve(flow, Booleans()), {"views": t.log.topic("views")})
    told = Followed(program, t.log, t.driver.decisions, Position("views", 0, 0)).story()
    assert told.events[-1].text == "evaluated by Spark SQL, not followed"
    assert told.note is not None
    assert "its file has changed since it last ran" in told.note
    (tried,) = what_if(program, {"views": t.log.topic("views")}, [], 0)
    assert (tried.spark, tried.pairs) == (["matching"], 0)


def fill(t: FlowTest, rng: random.Random) -> None:
    """Disorder over two partitions, one of which falls idle; marks; times far in the future; epochs cut anywhere."""
    t.topic("views", partitions=2, time="at")
    t.clock.set(START)
    for n in range(80):
        t.clock.advance("1 second")
        at = START + timedelta(seconds=n - rng.choice([0, 0, 1, 3, 8, 25]), days=rng.choice([0] * 30 + [9]))
        row = {"page": rng.choice("ab"), "ms": rng.randrange(40), "at": at, "other": at - timedelta(seconds=rng.randrange(5))}
        t.send("views", row, partition=n % 2 if n < 40 or n > 75 else 0)
        if n % 20 == 10:
            t.mark("views", at.replace(day=15), partition=0)
        if n % 7 == 6:
            t.epoch(cut=3)
    t.catch_up()

"""What a flow says of the time of its streams, and what is refused."""

from datetime import timedelta

import pytest

from penstock import Tumbling, agg
from penstock.flow.explain import as_text
from penstock.flow.topics import TopicFacts

DDL = "user_id long, amount double, at timestamp, sent timestamp"
FIX = {"happened": "at", "sent": "sent", "by": "user_id"}
WRITTEN = {"events": TopicFacts(written_by_flow=True)}


def judged(stream):
    stream.window(Tumbling("1 minute"), by="user_id", late="ignore").agg(n=agg.count()).view("sales")


def source(shop, name="events", **facts):
    return shop.plan(**facts).step(name).node


def test_append_time_needs_no_lateness(shop):
    judged(shop.flow.stream("events", DDL, time="append"))
    made = source(shop, topics={})
    assert (made.append, made.time, made.lateness) == (True, None, timedelta(0))


def test_append_time_takes_a_lateness_where_one_is_given(shop):
    judged(shop.flow.stream("events", DDL, time="append", lateness="3 seconds"))
    assert source(shop).lateness == timedelta(seconds=3)


@pytest.mark.parametrize("what", ["time", "received"])
def test_append_cannot_be_a_column_too(shop, refused, what):
    stream = shop.flow.stream(
        "events", DDL + ", Append timestamp", lateness="1 s", **({"time": "append"} if what == "time" else {})
    )
    judged(stream if what == "time" else stream.clock_fix(**FIX, received="append"))
    assert refused() == (
        f"cannot tell what {what}='append' means: there is a column of that name\n"
        '  flow shop, step "events" (shop.py:N)\n'
        "  hint: 'append' stands for the time at which the log took a record; give the column another name"
    )


def test_a_delay_is_a_duration(shop, message):
    judged(shop.flow.stream("events", DDL, time="at", lateness="1 second", delay="10 seconds"))
    assert source(shop).delay == timedelta(seconds=10)
    said = message(lambda: shop.flow.stream("more", DDL, delay="soon"))
    assert said.startswith("cannot read delay 'soon'\n  flow shop (shop.py:N)")


def test_the_append_time_is_read_only_where_somebody_wants_it(shop):
    stream = shop.flow.stream("events", DDL, time="at", lateness="1 second", append_time="stored")
    judged(stream)
    assert source(shop).columns == ("user_id", "at")
    stream.select("amount", "stored").view("amounts")
    assert source(shop).columns == ("user_id", "amount", "at", "stored")


@pytest.mark.parametrize("name", ["amount", "AMOUNT"])
def test_the_append_time_must_have_a_name_of_its_own(shop, refused, name):
    judged(shop.flow.stream("events", DDL, time="at", lateness="1 second", append_time=name))
    assert refused().startswith(f"cannot read events: two columns would be called {name!r}")


def test_clock_correction_reads_its_columns_and_adds_two(shop):
    fixed = shop.flow.stream("events", DDL, lateness="1 second").clock_fix(**FIX)
    judged(fixed)
    made = source(shop)
    assert made.columns == ("user_id", "at", "sent")
    assert (made.time, made.clock.received, made.clock.span) == (None, None, timedelta(hours=1))
    fixed.view("all")
    step = shop.plan().step("events")
    assert step.schema.ddl() == (
        "user_id long, amount double, at timestamp, sent timestamp, corrected timestamp not null, uncertainty double"
    )


def test_the_same_correction_twice_is_one_source_and_a_named_stream_keeps_its_name(shop):
    stream = shop.flow.stream("events", DDL, lateness="1 second", name="readings")
    assert stream.clock_fix(**FIX).node is stream.clock_fix(**FIX).node
    judged(stream.clock_fix(**FIX))
    assert source(shop, "readings").clock is not None


def test_the_time_may_be_what_happened(shop):
    judged(shop.flow.stream("events", DDL, time="at", lateness="1 second").clock_fix(**FIX))
    assert source(shop).time is None


def test_a_stream_and_its_correction_need_two_names(shop, refused):
    stream = shop.flow.stream("events", DDL, lateness="1 second")
    judged(stream.clock_fix(**FIX))
    stream.view("as_told")
    assert refused().startswith("two steps would be called 'events'")


def test_both_can_be_read_under_two_names(shop):
    stream = shop.flow.stream("events", DDL, lateness="1 second")
    judged(stream.clock_fix(**FIX, name="right"))
    stream.view("as_told")
    assert source(shop).clock is None
    assert source(shop, "right").clock is not None


def test_corrected_times_need_a_lateness(shop, refused):
    judged(shop.flow.stream("events", DDL).clock_fix(**FIX))
    assert refused(topics={}).startswith("cannot judge the rows of events: no lateness")


def test_clocks_are_set_right_directly_on_a_stream(shop, message):
    stream = shop.flow.stream("events", DDL, lateness="1 second")
    assert message(lambda: stream.where("amount > 1").clock_fix(**FIX)) == (
        "cannot set clocks right here: the rows have gone through 'where' already\n"
        "  flow shop (shop.py:N)\n"
        "  hint: it is done while rows are read: call clock_fix directly on flow.stream(…)"
    )


@pytest.mark.parametrize(
    ("stream", "fix", "said"),
    [
        ({"time": "append"}, None, "cannot read events under time 'append': a flow wrote it"),
        ({"delay": "1 second"}, None, "cannot read events with delay=: a flow wrote it"),
        ({}, FIX, "cannot read events with clock_fix: a flow wrote it"),
    ],
)
def test_a_topic_that_a_flow_wrote_has_its_time(shop, refused, stream, fix, said):
    events = shop.flow.stream("events", DDL, **stream)
    judged(events.clock_fix(**fix) if fix else events)
    assert refused(topics=WRITTEN).startswith(said)


def test_a_plan_shows_where_the_time_comes_from(shop):
    shop.flow.stream("events", DDL, time="append", delay="5 seconds").view("events")
    shop.flow.stream("readings", DDL, lateness="1 second").clock_fix(**FIX).view("readings")
    shown = as_text(shop.plan())
    assert "  time     append time\n  lateness 0 seconds, idle after 30 seconds\n  delay    5 seconds behind the clock" in shown
    assert "  time     at + least append time - sent by user_id within 1 hour\n" in shown

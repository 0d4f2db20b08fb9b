import pytest

from penstock.core.schema import Schema
from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling
from penstock.flow.topics import TopicFacts

DDL = "user_id long, amount double, at timestamp"
WRITTEN = {"events": TopicFacts(written_by_flow=True)}
PLAIN = {"events": TopicFacts()}


def judged(shop, **given):
    events = shop.flow.stream("events", DDL, **given)
    events.where("amount > 1").window(Tumbling("1 minute"), by="user_id").agg(n=agg.count()).view("sales")


def test_a_judged_stream_without_lateness_is_refused(shop, refused):
    judged(shop, time="at")
    for topics in (None, {}, PLAIN):
        assert refused(topics=topics) == (
            "cannot judge the rows of events: no lateness\n"
            '  flow shop, step "events" (shop.py:N)\n'
            '  step "sales" (shop.py:N) needs it\n'
            '  hint: say how much later than a newer row one may come, e.g. lateness="10 seconds"'
        )


def test_a_measured_lateness_is_suggested(shop, refused):
    judged(shop, time="at")
    asked = []

    def suggest(topic, time):
        asked.append((topic, time))
        return 'lateness="7 seconds" keeps 99.9 % of the rows that are there'

    said = refused(topics=PLAIN, suggest=suggest)
    assert said.endswith('hint: lateness="7 seconds" keeps 99.9 % of the rows that are there')
    assert asked == [("events", "at")]


def test_where_nothing_was_measured_the_hint_is_the_plain_one(shop, refused):
    judged(shop, time="at")
    assert refused(topics=PLAIN, suggest=lambda topic, time: None).endswith('e.g. lateness="10 seconds"')


@pytest.mark.parametrize("topics", [{}, PLAIN])
def test_a_judged_stream_without_time_is_refused_unless_a_flow_wrote_it(shop, refused, topics):
    judged(shop)
    assert refused(topics=topics) == (
        "cannot judge the rows of events: no time\n"
        '  flow shop, step "events" (shop.py:N)\n'
        '  step "sales" (shop.py:N) needs it\n'
        '  hint: name the column, e.g. time="at"; only a topic that a flow has written brings its own'
    )
    assert shop.plan(topics=WRITTEN).step("events").node.time is None


def test_where_nothing_is_known_of_the_log_time_and_lateness_may_both_be_left_out(shop):
    judged(shop)
    assert shop.plan(topics=None).step("events").node.lateness is None


def test_a_lateness_alone_is_refused_even_where_nothing_is_known(shop, refused):
    judged(shop, lateness="1 second")
    assert refused().splitlines()[0] == "cannot judge the rows of events: no time"


def test_a_stream_that_no_step_judges_needs_neither(shop):
    shop.flow.stream("events", DDL).where("amount > 1").view("big")
    assert shop.plan(topics=PLAIN).step("events").node.time is None


def test_late_rows_that_are_judged_again_ask_their_source(shop, refused):
    sales = shop.orders.window(Tumbling("1 minute"), by="user_id").agg(n=agg.count())
    events = shop.flow.stream("events", "user_id long", time=None)
    sales.late.select("user_id").union(events).window(Tumbling("1 hour"), by="user_id").agg(n=agg.count()).view("again")
    assert refused(topics=PLAIN).splitlines()[0] == "cannot judge the rows of events: no time"


def test_a_topic_that_a_flow_wrote_is_read_under_its_own_time(shop, refused):
    judged(shop, time="at", lateness="1 second")
    assert refused(topics=WRITTEN) == (
        "cannot read events under time 'at': a flow wrote it and gave its rows their time\n"
        '  flow shop, step "events" (shop.py:N)\n'
        "  hint: leave time= and lateness= out"
    )
    assert refused(topics={"events": TopicFacts(written_by_flow=True, time="at")}).splitlines()[0] == (
        "cannot read events with a lateness: a flow wrote it, and its marks say when time has passed"
    )


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ("user_id long, amount double", "there is no column 'at'"),
        ("user_id int, amount double, at timestamp", "column 'user_id' is int there, not long"),
        ("USER_ID long, amount double, at timestamp", "column 'user_id' is called 'USER_ID' there"),
    ],
)
def test_a_declaration_that_the_topic_does_not_keep_is_refused(shop, refused, there, why):
    judged(shop, time="at", lateness="1 second")
    said = refused(topics={"events": TopicFacts(schema=Schema.of(there))})
    assert said.splitlines()[0] == f"cannot read events as the flow declares it: {why}"


def test_a_topic_may_have_more_columns_than_the_flow_declares(shop):
    judged(shop, time="at", lateness="1 second")
    shop.plan(topics={"events": TopicFacts(schema=Schema.of(f"extra string, {DDL}"))})

"""Why, timelines and what-if, where a flow also reads tables."""

from collections.abc import Callable

import pytest

from penstock import Flow, FlowTest, Tumbling, agg
from penstock.core.position import Position
from penstock.engine.diagnose.locate import find
from penstock.engine.diagnose.timeline import Stretch, source_of, timeline
from penstock.engine.diagnose.trace import marks_of
from penstock.engine.diagnose.whatif import what_if
from penstock.engine.diagnose.why import Followed
from penstock.errors import BadInput

Start = Callable[..., FlowTest]


def shop() -> Flow:
    flow = Flow("shop")
    users = flow.table("users", "user string, name string", key="user")
    vat = flow.static([{"user": "a", "vat": 0.2}], "user string, vat double", key="user", name="vat")
    users.view("current")
    orders = flow.stream("orders", "user string, at timestamp", time="at", lateness="1 second")
    orders.window(Tumbling("10 seconds"), by="user").agg(n=agg.count(), name="sales").view("sales")
    orders.enrich(users, on="user").enrich(vat, on="user").view("enriched")
    return flow


@pytest.fixture
def t(flow_test: Start) -> FlowTest:
    t = flow_test(shop())
    t.send("users", {"user": "a", "name": "A"}, {"user": "b", "name": "B"})
    t.delete("users", user="b")
    t.send("orders", *({"user": "a", "at": f"2024-01-15T10:00:{second:02}Z"} for second in (5, 30, 12)))
    t.catch_up()
    return t


def told(t: FlowTest, topic: str, offset: int) -> list[str]:
    story = Followed(t.driver.program, t.log, t.driver.decisions, Position(topic, 0, offset)).story()
    assert story.read
    return [event.text for event in story.events]


def test_a_record_of_a_table_is_a_version_that_its_steps_take(t: FlowTest) -> None:
    said = told(t, "users", 0)
    assert "a version of the row of its user" in said[0]
    assert any("→ view current" in text for text in said)
    assert "a version of the row of its user" in told(t, "users", 2)[0]


def test_a_delete_is_shown_as_one(t: FlowTest) -> None:
    shown, _ = find(t.log.topic("users"), Position("users", 0, 2))
    assert shown == {"user": "b", "name": None, "__op": "delete"}


def test_what_if_judges_the_rows_of_streams_alone(t: FlowTest) -> None:
    topics = {name: t.log.topic(name) for name in ("users", "orders")}
    (tried,) = what_if(t.driver.program, topics, marks_of(t.driver.decisions), 60_000_000)
    assert (tried.step, tried.sources, tried.own["late"], tried.other["late"]) == ("sales", ["orders"], 1, 0)


def test_a_timeline_is_of_a_stream_and_a_table_has_none(t: FlowTest) -> None:
    program = t.driver.program
    assert source_of(program, None).topic == "orders"
    spec = source_of(program, "users")
    with pytest.raises(BadInput, match="read as a table"):
        timeline(program, t.log.topic("users"), spec, Stretch(0, 0, 3), ())

import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import BadName
from penstock.flow.graph import FlowGraph
from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling


def test_writing_a_flow_loads_neither_spark_nor_the_sql_parser():
    program = """
import sys
from penstock.flow.graph import FlowGraph
from penstock.flow.steps.kinds import Tumbling
from penstock.flow.steps.aggregates import agg
flow = FlowGraph("shop")
orders = flow.stream("orders", "user_id long, amount double, at timestamp", time="at", lateness="1 second")
orders.where("amount > 1").window(Tumbling("1 minute"), by="user_id").agg(n=agg.count()).view("sales")
print(sorted({"pyspark", "sqlglot", "polars"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_stream_is_a_value_and_its_verbs_leave_it_as_it_was(shop):
    before = shop.orders.node
    shop.orders.where("amount > 1")
    assert shop.orders.node is before
    with pytest.raises(FrozenInstanceError):
        shop.orders.node = None


def test_outputs_give_the_stream_back_so_that_a_chain_goes_on(shop):
    assert shop.orders.to("copies").view("all") is shop.orders
    assert [(w.kind, w.name) for w in shop.flow.outputs] == [("topic", "copies"), ("view", "all")]


def test_every_node_knows_the_line_it_was_written_on(shop):
    node = shop.orders.where("amount > 1").node
    assert node.origin.file == "tests/unit/flow/test_graph.py" or node.origin.file == "test_graph.py"
    assert "shop.orders.where" in Path(__file__).read_text().splitlines()[node.origin.line - 1]


def test_a_file_outside_the_working_directory_is_shown_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    programs = {tmp_path / "below" / "shop.py": "below/shop.py", tmp_path.parent / "other" / "shop.py": "shop.py"}
    for file, shown in programs.items():
        names = {"FlowGraph": FlowGraph}
        exec(compile("\n\nflow = FlowGraph('shop')", file, "exec"), names)  # noqa: S102 - stands for a user's file
        assert str(names["flow"].origin) == f"{shown}:3"


def test_a_flow_typed_at_a_prompt_says_so():
    names = {"FlowGraph": FlowGraph}
    exec(compile("flow = FlowGraph('shop')", "<stdin>", "exec"), names)  # noqa: S102 - stands for a prompt
    assert str(names["flow"].origin) == "<stdin>:1"


def test_a_stream_is_shown_by_its_own_step_alone(shop):
    stream = shop.orders
    for _ in range(30):
        stream = stream.union(stream)
    assert len(repr(stream)) < 300


def test_the_same_topic_under_the_same_settings_is_one_source(shop):
    again = shop.flow.stream("orders", shop.orders.node.definition.schema, time="at", lateness="10 seconds")
    assert again.node is shop.orders.node


def test_the_same_topic_under_other_settings_is_refused_unless_it_has_a_name(shop, message):
    def other(**name):
        return shop.flow.stream("orders", "order_id string", **name)

    assert message(other) == (
        "topic 'orders' is read twice, under different settings\n"
        "  flow shop (shop.py:N)\n"
        "  the other one: shop.py:N\n"
        "  hint: use the first one again, or name= this one"
    )
    assert other(name="ids").node is other(name="ids").node


def test_a_schema_may_be_text_arrow_or_a_class(shop):
    arrow = shop.flow.stream("a", pa.schema([("x", pa.int64())])).node.definition.schema
    text = shop.flow.stream("b", "x long").node.definition.schema
    assert arrow == text


def test_late_rows_are_one_step_however_often_they_are_asked_for(shop):
    sales = shop.orders.window(Tumbling("1 minute"), by="user_id").agg(n=agg.count())
    assert sales.late.node is sales.late.node


def test_streams_of_two_flows_do_not_mix(shop, message):
    other = FlowGraph("bank").stream("accounts", "order_id string")
    assert message(lambda: shop.orders.union(other)).splitlines()[0] == "cannot bring streams of two flows together"


@pytest.mark.parametrize(
    ("call", "first_line"),
    [
        (lambda s: s.orders.window(Tumbling("1 minute"), by="user_id", late="maybe"), "late='maybe' is not known"),
        (lambda s: s.orders.window("1 minute", by="user_id"), "cannot open a window of '1 minute'"),
        (lambda s: s.orders.window(Tumbling("1 minute"), by="user_id").agg(n="count"), "cannot aggregate n='count'"),
        (lambda s: s.orders.window(Tumbling("1 minute"), by="user_id").agg(name=3), "cannot aggregate name=3"),
        (lambda s: s.orders.join(s.payments, on="order_id", within="1 hour", how="outer"), "how='outer' is not known"),
        (lambda s: s.orders.join(s.payments, on="order_id", within="1 hour", late="never"), "late='never' is not known"),
        (lambda s: s.orders.join(s.payments, on="order_id", within="soon"), "cannot read within 'soon'"),
        (lambda s: s.orders.join(s.payments, on="order_id", within="-5 minutes"), "within must not be negative: '-5 minutes'"),
        (
            lambda s: s.orders.join(s.payments, on="order_id", within=("1 hour", "-1 hour")),
            "within=('1 hour', '-1 hour') matches nothing: its first bound lies behind its second",
        ),
        (lambda s: s.orders.join(s.payments, on="order_id", within=("1 hour",)), "within has two bounds, not 1"),
        (lambda s: s.orders.join("payments", on="order_id"), "cannot bring a stream together with 'payments'"),
        (lambda s: s.orders.union("payments"), "cannot bring a stream together with 'payments'"),
        (lambda s: s.orders.map_arrow("upper", "x long"), "cannot call 'upper'"),
        (lambda s: s.orders.map_arrow(len, "x lon"), "cannot read the schema: there is no type 'lon'"),
        (lambda s: s.flow.stream("x", "a lon"), "cannot read the schema: there is no type 'lon'"),
        (lambda s: s.flow.stream("x", "a long", lateness="soon"), "cannot read lateness 'soon'"),
        (lambda s: s.flow.stream("x", "a long", idle="soon"), "cannot read idle 'soon'"),
        (lambda s: s.flow.stream("a/b", "a long"), "'a/b' cannot name a topic"),
        (lambda s: s.orders.to("a/b"), "'a/b' cannot name a topic"),
        (lambda s: s.orders.view("a/b"), "'a/b' cannot name a view"),
        (lambda s: s.orders.where("amount > 1", name="a/b"), "'a/b' cannot name a step"),
        (lambda s: s.orders.to("copies", partitions=0), "cannot write topic 'copies' with 0 partitions"),
        (lambda s: s.orders.named("a").named("b"), "cannot name a step 'b': it is already named 'a'"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_given(shop, message, call, first_line):
    said = message(lambda: call(shop)).splitlines()
    assert said[:2] == [first_line, "  flow shop (shop.py:N)"]


@pytest.mark.parametrize(
    ("size", "first_line"),
    [("1 parsec", "cannot read window size '1 parsec'"), ("0 seconds", "window size must be greater than zero")],
)
def test_a_wrong_window_says_its_line(message, size, first_line):
    assert message(lambda: Tumbling(size)).splitlines()[:2] == [first_line, "  shop.py:N"]


def test_a_topic_or_view_is_written_once(shop, message):
    shop.orders.view("all")
    assert message(lambda: shop.payments.view("all")) == (
        "view 'all' is written twice\n"
        "  flow shop (shop.py:N)\n"
        "  the other one: shop.py:N\n"
        "  hint: bring the streams together with union first, or choose another name"
    )
    shop.payments.to("all")


def test_a_flow_needs_a_proper_name():
    with pytest.raises(BadName):
        FlowGraph("my shop")


def test_windows_are_values():
    assert Tumbling("1 minute") == Tumbling("60 seconds")
    assert Tumbling("1 minute") != Tumbling("2 minutes")

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import pyarrow as pa
import pytest

from penstock import plan
from penstock.flow.definition import Known
from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling
from penstock.flow.steps.rows import WhereDefinition
from penstock.flow.stream import Stream

MINUTE = Tumbling("1 minute")


def schema(shop, step, **facts):
    return shop.plan(**facts).step(step).schema.ddl()


def output(shop, name, **facts):
    return next(o for o in shop.plan(**facts).outputs if o.name == name)


def test_where_keeps_the_columns(shop):
    shop.payments.where("paid > 1").view("big")
    assert schema(shop, "big") == "order_id string, paid double, at timestamp"


def test_select_gives_the_columns_in_order_then_the_expressions(shop):
    shop.orders.select("at", "ORDER_ID", eur="amount * 0.9", big="amount > 100").view("v")
    assert schema(shop, "v") == "at timestamp, order_id string, eur double, big boolean"


def test_with_columns_replaces_in_place_and_adds_at_the_end(shop):
    shop.payments.with_columns(paid="paid * 2", big="paid > 100").view("v")
    made = shop.plan().step("v")
    assert made.schema.ddl() == "order_id string, paid double, at timestamp, big boolean"
    assert [e.text for _, e in made.node.columns] == ["`order_id`", "paid * 2", "`at`", "paid > 100"]


def test_what_polars_cannot_evaluate_gets_its_type_from_the_analyzer(shop, strings):
    shop.payments.select(upper="upper(order_id)", paid="paid * 2").view("v")
    made = shop.plan(strings).step("v")
    assert strings.asked == ["upper(order_id)"]
    assert [(name, e.type, e.tree is None) for name, e in made.node.columns] == [
        ("upper", pa.string(), True),
        ("paid", pa.float64(), False),
    ]


def test_window_output_has_keys_times_aggregates_and_revision(shop):
    shop.orders.window(MINUTE, by="user_id").agg(n=agg.count(), total=agg.sum("amount"), last=agg.max("at")).view("sales")
    step = shop.plan().step("sales")
    assert step.schema.ddl() == (
        "user_id long, window_start timestamp not null, window_end timestamp not null,"
        " n long not null, total double, last timestamp, revision long not null"
    )
    assert step.node == plan.Window(
        ("user_id",),
        plan.Spaced(timedelta(minutes=1), timedelta(minutes=1)),
        (
            plan.Aggregate("n", "count", None, pa.int64()),
            plan.Aggregate("total", "sum", "amount", pa.float64()),
            plan.Aggregate("last", "max", "at", pa.timestamp("us", "UTC")),
        ),
        "divert",
    )


def test_a_window_over_everything_has_no_key(shop):
    shop.orders.window(MINUTE, by=[]).agg(n=agg.count()).view("sales")
    assert shop.plan().step("sales").node.by == ()
    assert output(shop, "sales").key == ("window_start",)


def test_an_aggregate_over_an_expression_gets_a_step_before_the_window(shop):
    shop.orders.window(MINUTE, by="user_id", late="ignore").agg(total=agg.sum("amount * 2"), n=agg.count()).view("sales")
    made = shop.plan()
    assert [s.name for s in made.steps] == ["orders", "sales.input", "sales"]
    assert made.step("sales.input").schema.ddl() == "user_id long, __in_total double"
    assert made.step("sales").node.aggregates[0].column == "__in_total"


@pytest.mark.parametrize(
    ("ddl", "function", "expected"),
    [
        ("tinyint", "sum", "long"),
        ("int", "sum", "long"),
        ("long", "sum", "long"),
        ("float", "sum", "double"),
        ("double", "sum", "double"),
        ("decimal(10,2)", "sum", "decimal(20,2)"),
        ("decimal(35,2)", "sum", "decimal(38,2)"),
        ("int", "avg", "double"),
        ("float", "avg", "double"),
        ("array<int>", "count", "long"),
        ("string", "min", "string"),
        ("date", "max", "date"),
        ("float", "max", "float"),
        ("decimal(10,2)", "min", "decimal(10,2)"),
    ],
)
def test_aggregates_have_the_types_that_spark_gives_them(shop, ddl, function, expected):
    source = shop.flow.stream("values", f"k long, x {ddl}, at timestamp", time="at", lateness="1 second")
    source.window(MINUTE, by="k").agg(r=getattr(agg, function)("x")).select("r").view("v")
    assert schema(shop, "v").removesuffix(" not null") == f"r {expected}"


def test_join_output_has_on_once_and_prefixes_what_collides(shop):
    shop.orders.select("order_id", "amount", "at").join(shop.payments, on="order_id", within="30 minutes", how="left").to("settled")
    step = shop.plan().step("settled")
    assert step.schema.ddl() == "order_id string, amount double, at timestamp, paid double, payments_at timestamp"
    half = timedelta(minutes=30)
    assert step.node == plan.Join(("order_id",), -half, half, "left", "divert", (("paid", "paid"), ("payments_at", "at")))


def test_the_prefix_is_the_name_the_user_knows(shop):
    shop.orders.join(shop.payments.where("paid > 1"), on="order_id", within="1 hour").view("a")
    shop.orders.join(shop.payments.where("paid > 2", name="paid-well"), on="order_id", within="1 hour").view("b")
    made = shop.plan()
    assert "payments_at" in made.step("a").schema
    assert "paid_well_at" in made.step("b").schema


def test_a_left_join_may_leave_the_right_side_null(shop):
    paid = shop.flow.stream("paid", "order_id string not null, paid double not null", time=None)
    plain = shop.flow.stream("plain", "order_id string not null, n long not null")
    plain.join(paid, on="order_id", within="1 hour", how="left").view("left_")
    plain.join(paid, on="order_id", within="1 hour").view("inner_")
    assert schema(shop, "left_") == "order_id string not null, n long not null, paid double"
    assert schema(shop, "inner_") == "order_id string not null, n long not null, paid double not null"


def test_two_bounds_of_a_join_say_how_far_before_and_after(shop):
    shop.orders.join(shop.payments, on="order_id", within=("-5 minutes", "+30 minutes")).view("v")
    definition = shop.plan().step("v").node
    assert (definition.lo, definition.hi) == (timedelta(minutes=-5), timedelta(minutes=30))


def test_bounds_may_be_timedeltas(shop):
    half = timedelta(minutes=30)
    shop.orders.join(shop.payments, on="order_id", within=half).view("a")
    shop.orders.join(shop.payments, on="order_id", within=(-half, timedelta(0))).view("b")
    made = shop.plan()
    assert [(s.node.lo, s.node.hi) for s in (made.step("a"), made.step("b"))] == [(-half, half), (-half, timedelta(0))]


def test_union_keeps_the_columns_and_lets_null_in_where_one_side_does(shop):
    a = shop.flow.stream("a", "x long not null, y string")
    b = shop.flow.stream("b", "x long, y string")
    a.union(b, a).view("v")
    step = shop.plan().step("v")
    assert step.schema.ddl() == "x long, y string"
    assert step.inputs == ("a", "b", "a")


def test_map_arrow_gives_the_columns_it_says(shop):
    def double(table):
        return table

    shop.orders.map_arrow(double, "twice double").view("v")
    step = shop.plan().step("v")
    assert step.node.function is double
    assert step.schema.ddl() == "twice double"


def test_late_rows_of_a_window_have_the_columns_that_came_in(shop):
    sales = shop.payments.window(MINUTE, by="order_id").agg(total=agg.sum("paid * 2"))
    sales.view("sales")
    sales.late.view("too_late")
    step = shop.plan().step("too_late")
    assert (step.inputs, step.node) == (("sales",), plan.LateRows(0))
    assert step.schema.ddl() == "order_id string, paid double, at timestamp"


def test_late_rows_of_a_join_have_its_columns_with_nulls_for_the_other_side(shop):
    left = shop.orders.select("order_id", "amount", "at")
    left.join(shop.payments, on="order_id", within="1 hour", name="settled").late.view("too_late")
    made = shop.plan()
    assert made.step("too_late").schema.ddl() == "order_id string, amount double, at timestamp, paid double, payments_at timestamp"
    assert isinstance(made.step("too_late").node, plan.Union)
    sides = {s.name: (s.inputs, s.node.port) for s in made.steps if isinstance(s.node, plan.LateRows)}
    assert sides == {"too_late.left": (("settled",), 0), "too_late.right": (("settled",), 1)}
    right = dict(made.step("too_late.right.columns").node.columns)
    assert {name: e.text for name, e in right.items()} == {
        "order_id": "`order_id`",
        "amount": "cast(null as double)",
        "at": "cast(null as timestamp)",
        "paid": "`paid`",
        "payments_at": "`at`",
    }


def test_keys_of_outputs_follow_the_step(shop):
    keyed = shop.flow.stream("keyed", "k string, x long", key="k")
    sales = shop.orders.window(MINUTE, by=["user_id", "order_id"]).agg(n=agg.count())
    sales.view("sales").to("sales_topic")
    sales.where("n > 1").select("order_id", "user_id", "window_start", m="n").view("renamed")
    sales.select(who="user_id", order="order_id", start="window_start").view("other_names").to("other_topic")
    sales.select("n").view("without_key")
    sales.view("by_hand", key=["order_id"])
    shop.orders.join(shop.payments, on="order_id", within="1 hour").to("settled").view("pairs")
    keyed.where("x > 1").to("kept").view("kept_view")
    shop.payments.to("copies")
    assert {(o.kind, o.name): o.key for o in shop.plan().outputs} == {
        ("view", "sales"): ("window_start", "user_id", "order_id"),
        ("topic", "sales_topic"): ("user_id", "order_id"),
        ("view", "renamed"): ("window_start", "user_id", "order_id"),
        ("view", "other_names"): ("start", "who", "order"),
        ("topic", "other_topic"): ("who", "order"),
        ("view", "without_key"): (),
        ("view", "by_hand"): ("order_id",),
        ("topic", "settled"): ("order_id",),
        ("view", "pairs"): (),
        ("topic", "kept"): ("k",),
        ("view", "kept_view"): (),
        ("topic", "copies"): (),
    }


def test_columns_are_found_without_regard_to_case_and_keep_the_declared_one(shop):
    shop.orders.where("AMOUNT > 1").window(MINUTE, by="User_Id").agg(n=agg.sum("Amount")).view("v", key="WINDOW_START")
    made = shop.plan()
    assert made.step("where-orders").node.condition.columns == ("amount",)
    assert made.step("v").node.by == ("user_id",)
    assert made.step("v").node.aggregates[0].column == "amount"
    assert made.outputs[0].key == ("window_start",)


def test_checking_twice_gives_the_same_plan(shop):
    shop.orders.where("amount > 1").window(MINUTE, by="user_id").agg(n=agg.sum("amount * 2")).view("v")
    assert shop.plan() == shop.plan()


@dataclass(frozen=True)
class Latest(WhereDefinition):
    """A step whose rows change, as running aggregates will be."""

    kind: ClassVar[str] = "latest"

    def resolve(self, at, inputs):
        known = super().resolve(at, inputs)
        return Known(tuple(replace(step, updating=True) for step in known.steps), at.name, inputs=known.inputs)


def test_an_updating_stream_is_refused_where_rows_must_stay(shop, refused):
    changing = Stream(shop.flow, shop.flow.add(Latest("amount > 1"), (shop.orders.node,), "current"))
    changing.where("amount > 2").window(MINUTE, by="user_id").agg(n=agg.count()).view("v")
    assert refused() == (
        "cannot window current: its rows change, and this step takes rows that stay\n"
        '  flow shop, step "v" (shop.py:N)\n'
        '  made updating by step "current" (shop.py:N)\n'
        "  hint: put this step before that one, or serve the changing rows as a view"
    )


def test_an_updating_stream_stays_updating_through_filters_and_can_be_viewed(shop):
    changing = Stream(shop.flow, shop.flow.add(Latest("amount > 1"), (shop.orders.node,), "current"))
    changing.where("amount > 2").select("user_id").view("v")
    assert [s.updating for s in shop.plan().steps] == [False, True, True, True]

"""Joins of streams: what comes out of each kind, and the condition on pairs."""

import pyarrow as pa
import pytest

from penstock.core.expression import Call, Column
from penstock.flow.explain import as_mermaid, as_text
from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling

ORDERS = "order_id string not null, amount double not null, at timestamp not null"
PAYMENTS = "order_id string not null, paid double not null, at timestamp not null"


@pytest.fixture
def both(shop):
    """The step that joins orders with payments, neither of which may be null."""

    def joined(how, **more):
        orders = shop.flow.stream("o", ORDERS, time="at", lateness="10 seconds")
        payments = shop.flow.stream("p", PAYMENTS, time="at", lateness="10 seconds")
        orders.join(payments, on="order_id", within="1 hour", how=how, name="both", **more).view("v")
        return shop.plan().step("both")

    return joined


@pytest.mark.parametrize(
    ("how", "nullable"),
    [
        ("inner", set()),
        ("left", {"paid", "p_at"}),
        ("right", {"amount", "at"}),
        ("full", {"amount", "at", "paid", "p_at"}),
    ],
)
def test_the_columns_of_a_side_that_may_be_missing_may_be_null(both, how, nullable):
    schema = both(how).schema
    assert schema.names == ["order_id", "amount", "at", "paid", "p_at"]
    assert {f.name for f in schema if f.nullable} == nullable


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_semi_or_anti_join_gives_the_rows_of_the_left_side_themselves(shop, how):
    totals = shop.orders.select("amount", "order_id", "at")
    totals.join(shop.payments, on="order_id", within="1 hour", how=how).view("v")
    plan = shop.plan()
    step = plan.step("v")
    assert step.schema == plan.step("select-orders").schema
    assert step.schema.names == ["amount", "order_id", "at"]
    assert step.node.right == ()
    assert plan.step("payments").node.columns == ("order_id", "paid", "at")  # whole, for late rows


def test_rows_of_a_semi_join_are_called_as_those_of_its_left_side(shop):
    paid = shop.orders.select("order_id", "amount").join(shop.payments, on="order_id", within="1 hour", how="semi")
    shop.payments.select("order_id", "paid").with_columns(amount="paid").join(paid, on="order_id", within="1 hour").view("v")
    assert shop.plan().step("v").schema.names == ["order_id", "paid", "amount", "orders_amount"]


def test_a_condition_is_over_the_columns_of_both_sides_by_their_names_in_the_joined_row(shop):
    shop.orders.join(shop.payments, on="order_id", within="1 hour", where="paid >= amount and payments_at > at").view("v")
    condition = shop.plan().step("v").node.condition
    assert condition.columns == ("amount", "at", "paid", "payments_at")
    assert isinstance(condition.tree, Call)
    assert condition.tree.args[0].args[0] == Column("paid", condition.tree.args[0].args[0].type)


@pytest.mark.parametrize("how", ["inner", "full", "semi", "anti"])
def test_what_a_condition_reads_is_read_though_it_does_not_come_out(shop, how):
    joined = shop.orders.join(
        shop.payments, on="order_id", within="1 hour", how=how, where="paid >= amount", late="ignore", name="both"
    )
    joined.select("user_id").view("v")
    plan = shop.plan()
    assert plan.step("orders").node.columns == ("order_id", "user_id", "amount", "at")
    assert plan.step("payments").node.columns == ("order_id", "paid", "at")
    assert plan.step("both").schema.names == ["order_id", "user_id"]
    assert plan.step("both").node.right == (("paid", "paid"),)


def test_a_plan_shows_the_condition(shop):
    shop.orders.join(shop.payments, on="order_id", within="1 hour", how="anti", where="paid >= amount").view("v")
    plan = shop.plan()
    assert "  on       order_id, anti\n" in as_text(plan)
    assert "  where    paid >= amount  [polars]\n" in as_text(plan)
    assert "paid #gt;= amount" in as_mermaid(plan)


class Conditions:
    """Stands for Spark: every expression it is asked about is a condition."""

    def type_of(self, sql, schema):
        return pa.bool_()


def test_a_condition_that_only_spark_can_evaluate_keeps_pairs_behind_an_inner_join(shop):
    shop.orders.join(shop.payments, on="order_id", within="1 hour", where="abs(paid - amount) < 1").view("v")
    plan = shop.plan(Conditions())
    pairs, where = plan.steps[2:]
    assert (pairs.name, where.name, where.inputs) == ("v", "v.where", ("v",))
    assert plan.outputs[0].input == "v.where"
    assert where.schema.names == ["order_id", "user_id", "amount", "at", "price", "tags", "paid", "payments_at"]


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_what_such_a_condition_says_of_pairs_goes_back_to_the_rows_of_other_joins(shop, how):
    joined = shop.orders.join(shop.payments, on="order_id", within="1 hour", how=how, where="abs(paid - amount) < 1", name="both")
    joined.select("user_id").view("v")
    plan = shop.plan(Conditions())
    assert [step.name for step in plan.steps[2:5]] == ["both.pairs", "both.where", "both"]
    assert plan.step("both").inputs == ("orders", "payments", "both.where")
    assert plan.step("both").schema.names == ["order_id", "user_id"]
    assert {"amount", "paid", "tags"} <= set(plan.step("both.where").schema.names), "a dead pair is told whole"


def test_without_spark_such_a_condition_is_refused(shop, refused):
    shop.orders.join(shop.payments, on="order_id", within="1 hour", where="abs(paid - amount) < 1").view("v")
    assert refused().startswith("cannot find the type of 'abs(paid - amount) < 1': it needs Spark")


@pytest.mark.parametrize(
    ("where", "first_line"),
    [
        ("paid", "cannot join orders with payments where 'paid': it is double, not true or false"),
        ("payed > 1", "cannot evaluate 'payed > 1': there is no column 'payed'"),
        ("paid >", "cannot read 'paid >': it is no expression of Spark SQL"),
    ],
)
def test_a_wrong_condition_is_refused(shop, refused, where, first_line):
    shop.orders.join(shop.payments, on="order_id", within="1 hour", where=where).view("v")
    assert refused().splitlines()[0].startswith(first_line)


def test_a_condition_on_a_join_of_tables_is_refused(shop, refused):
    users = shop.flow.table("users", "user_id long, name string, at timestamp", key="user_id", time="at")
    teams = shop.flow.table("teams", "user_id long, team string, at timestamp", key="user_id", time="at")
    users.join(teams, on="user_id", where="name <> team").view("v")
    said = refused()
    assert said.startswith("cannot join users with teams where 'name <> team': a join of tables takes no condition")
    assert "hint: use .where() after the join" in said


@pytest.mark.parametrize("how", ["inner", "full", "semi", "anti"])
def test_late_rows_of_every_join_have_the_columns_of_both_sides(shop, how):
    left = shop.orders.select("order_id", "amount")
    joined = left.join(shop.payments, on="order_id", within="1 hour", how=how, name="settled")
    joined.view("settled")
    joined.late.view("too_late")
    assert shop.plan().step("too_late").schema.names == ["order_id", "amount", "paid", "at"]


@pytest.mark.parametrize(("how", "key"), [("semi", ("window_start", "order_id")), ("inner", ())])
def test_rows_that_stay_themselves_are_named_as_before_and_pairs_by_their_position(shop, how, key):
    counted = shop.orders.window(Tumbling("1 minute"), by="order_id").agg(n=agg.count())
    counted.join(shop.payments, on="order_id", within="1 hour", how=how).view("v")
    (output,) = shop.plan().outputs
    assert output.key == key

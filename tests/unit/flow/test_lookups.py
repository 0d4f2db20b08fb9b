"""lookup as a user writes it: what is checked before anybody is asked."""

import os

import pytest

from penstock import database
from penstock.core.schema import Schema
from penstock.flow.explain import as_text
from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling
from penstock.plan import Lookup


def nobody(keys):
    raise AssertionError("nobody is asked while a flow is checked")


def looked_up(shop, remote=nobody, **given):
    return shop.orders.lookup(remote, **({"on": "user_id", "schema": "name string, age int not null"} | given))


def test_the_columns_of_the_stream_and_then_those_of_the_answers(shop):
    looked_up(shop).view("who")
    step = shop.plan().step("who")
    assert step.schema.names == ["order_id", "user_id", "amount", "at", "price", "tags", "name", "age"]
    assert step.schema.arrow.field("age").nullable, "a row without an answer has none"
    assert not step.updating


def test_with_inner_an_answer_that_is_never_null_stays_so(shop):
    looked_up(shop, how="inner").view("who")
    assert not shop.plan().step("who").schema.arrow.field("age").nullable


def test_it_is_named_by_its_kind_input_and_columns(shop):
    looked_up(shop).window(Tumbling("1 minute"), by="name").agg(n=agg.count()).view("counts")
    assert [s.name for s in shop.plan().steps] == ["orders", "lookup-orders-user_id", "counts"]


def test_nothing_is_read_that_nobody_needs_but_the_key(shop):
    looked_up(shop).select("name").view("names", key="name")
    plan = shop.plan()
    assert plan.step("orders").schema.names == ["user_id", "at"]
    step = plan.step("lookup-orders-user_id")
    assert step.schema.names == ["name"]
    assert isinstance(step.node, Lookup)
    assert step.node.answers.names == ["name", "age"], "what is asked for stays as it was agreed"


def test_the_plan_says_who_is_asked(shop):
    looked_up(shop).view("who")
    shop.payments.lookup(database("sqlite:///users.db", table="main.users"), on="order_id", schema="x long", how="inner").view("v")
    text = as_text(shop.plan())
    assert "who  (lookup, " in text
    assert "  on       user_id, left\n  asks     nobody\n" in text
    assert "  on       order_id, inner\n  asks     table main.users\n" in text


def test_rows_that_change_are_refused_and_their_maker_named(shop, refused):
    counts = shop.orders.group_by("user_id").agg(n=agg.count(), name="counts")
    counts.lookup(nobody, on="user_id", schema="name string").view("who")
    assert refused() == (
        "cannot lookup counts: its rows change, and this step takes rows that stay\n"
        '  flow shop, step "who" (shop.py:N)\n'
        '  made updating by step "counts" (shop.py:N)\n'
        "  hint: put this step before that one, or serve the changing rows as a view"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on": "user"}, "cannot look orders up: there is no column 'user'"),
        ({"on": ()}, "cannot look orders up: no column to ask with"),
        ({"on": "tags"}, "cannot look orders up: 'tags' is array<string>, which cannot be a key"),
        ({"schema": "amount double"}, "cannot look orders up: two columns would be called 'amount'"),
        (
            {"remote": database("sqlite:///users.db", table="users", key=("a", "b"))},
            "cannot look orders up: on=user_id are not as many columns as key=a, b of table users",
        ),
    ],
)
def test_what_does_not_fit_the_stream_is_refused_when_it_is_checked(shop, refused, given, said):
    looked_up(shop, **given).view("who")
    assert refused().splitlines()[0] == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"remote": "https://example.org"}, "cannot ask 'https://example.org'"),
        ({"how": "right"}, "how='right' is not known"),
        ({"batch": 0}, "batch=0 is out of range"),
        ({"retries": -1}, "retries=-1 is out of range"),
        ({"breaker": 1.5}, "breaker=1.5 is out of range"),
        ({"cache": "soon"}, "cannot read cache 'soon'"),
        ({"timeout": "-1 s"}, "timeout must not be negative: '-1 s'"),
        ({"schema": "name strin"}, "cannot read the schema: there is no type 'strin'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(shop, message, given, said):
    first, place, *_ = message(lambda: looked_up(shop, **given)).splitlines()
    assert first.startswith(said)
    assert "shop.py:N" in place


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"connect": "postgres://host/db"}, "cannot connect to 'postgres://host/db'"),
        ({"connect": "sqlite:///"}, "cannot connect to 'sqlite:///'"),
        ({"connect": 5}, "cannot connect with 5"),
        ({"table": 'users"; drop table x; --'}, "table='users\"; drop table x; --' is no name of a table"),
        ({"table": ""}, "table='' is no name of a table"),
        ({"key": "a b"}, "key='a b' is no name of a key"),
        ({"key": ("a", None)}, "key=None is no name of a key"),
        ({"paramstyle": "dollar"}, "paramstyle='dollar' is not known"),
    ],
)
def test_a_database_that_cannot_be_is_refused_where_it_is_written(message, given, said):
    connect = given.pop("connect", "sqlite:///users.db")
    assert message(lambda: database(connect, **({"table": "users"} | given))).startswith(said)


def test_a_path_counts_from_where_the_flow_was_written_down():
    assert database("sqlite:///data/users.db", table="users").connect == f"sqlite:///{os.path.abspath('data/users.db')}"
    assert database("sqlite:////data/users.db", table="users").connect == "sqlite:////data/users.db"


def test_a_lookup_is_a_value():
    assert database("sqlite:///u.db", table="users") == database("sqlite:///u.db", table="users")
    assert Schema.of("name string") == Schema.of("name string")

"""Everything that is refused before anything starts, in the words that are said."""

import pytest

from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling

MINUTE = Tumbling("1 minute")
COLUMNS = "order_id, user_id, amount, at, price, tags"


def counted(stream, **given):
    return stream.window(MINUTE, **({"by": "user_id"} | given)).agg(n=agg.count())


def test_a_join_without_a_bound(shop, refused):
    shop.orders.join(shop.payments, on="order_id").to("settled")
    assert refused() == (
        "cannot join orders with payments: no time bound\n"
        '  flow shop, step "settled" (shop.py:N)\n'
        '  hint: say how far apart two rows may be, e.g. within="30 minutes"'
    )


def test_an_unknown_column_with_the_ones_that_come_close(shop, refused):
    shop.orders.where("amoun > 100").view("big")
    assert refused() == (
        "cannot evaluate 'amoun > 100': there is no column 'amoun'\n"
        '  flow shop, step "big" (shop.py:N)\n'
        f"  hint: did you mean amount? the columns are {COLUMNS}"
    )


def test_an_unknown_column_that_comes_close_to_none(shop, refused):
    shop.orders.select("zebra").view("v")
    assert refused() == (
        f"cannot select 'zebra': there is no column 'zebra'\n  flow shop, step \"v\" (shop.py:N)\n  hint: the columns are {COLUMNS}"
    )


def said_of(build, shop, refused):
    build(shop)
    first, place, *rest = refused().splitlines()
    assert place.startswith("  flow shop")
    return first, rest[-1].removeprefix("  hint: ") if rest else None


HINT_SAME = "bring both to the same columns with select first"
HINT_COLUMN = "take the part that tells rows apart into a column of its own with with_columns first"


@pytest.mark.parametrize(
    ("build", "what", "hint"),
    [
        (
            lambda s: s.orders.where("amount").view("v"),
            "cannot keep rows where 'amount': it is double, not true or false",
            'write a condition, e.g. where("amount > 100")',
        ),
        (
            lambda s: s.orders.where("upper(order_id) = 'A'").view("v"),
            "cannot find the type of \"upper(order_id) = 'A'\": it needs Spark",
            "comparisons, and, or, not, is null, in, between and arithmetic of doubles do without; the rest needs Java",
        ),
        (
            lambda s: s.orders.select("amount * 2").view("v"),
            "cannot select 'amount * 2': it has no name",
            'only columns go without; write select(total="amount * 2")',
        ),
        (
            lambda s: s.orders.select("amount", "Amount").view("v"),
            "cannot select: two columns would be called 'amount'",
            "give one of them another name",
        ),
        (
            lambda s: s.orders.select("amount", AMOUNT="price").view("v"),
            "cannot select: two columns would be called 'AMOUNT' ('amount' differs in case only)",
            "give one of them another name",
        ),
        (
            lambda s: s.orders.select().view("v"),
            "cannot select nothing",
            'name a column, e.g. select("order_id", eur="amount * 0.9")',
        ),
        (
            lambda s: s.orders.with_columns().view("v"),
            "cannot add columns: none is given",
            'name an expression, e.g. with_columns(eur="amount * 0.9")',
        ),
        (
            lambda s: s.orders.with_columns(Amount="user_id").view("v"),
            "cannot add column 'Amount': there is 'amount', which differs in case only",
            "write amount to replace it, or give the new column another name",
        ),
        (
            lambda s: s.orders.with_columns(__x="user_id").view("v"),
            "'__x' cannot name a column",
            "use letters, digits and '_', not starting with a digit or with '__'",
        ),
        (lambda s: s.orders.union().view("v"), "cannot unite orders with nothing", "name the other streams, e.g. a.union(b, c)"),
        (
            lambda s: s.orders.union(s.payments).view("v"),
            "cannot unite orders with payments: payments has no column 'user_id'",
            HINT_SAME,
        ),
        (
            lambda s: s.payments.union(s.payments.with_columns(x="paid")).view("v"),
            "cannot unite payments with with_columns-payments: payments has no column 'x'",
            HINT_SAME,
        ),
        (
            lambda s: s.payments.union(s.payments.with_columns(paid="order_id").named("texts")).view("v"),
            "cannot unite payments with texts: column 'paid' is double in payments and string in texts",
            HINT_SAME,
        ),
        (
            lambda s: s.payments.union(s.payments.select("at", "paid", "order_id")).view("v"),
            "cannot unite payments with select-payments: their columns stand in another order",
            HINT_SAME,
        ),
        (
            lambda s: counted(s.orders, by="usr_id").view("v"),
            "cannot group the window: there is no column 'usr_id'",
            f"did you mean user_id? the columns are {COLUMNS}",
        ),
        (
            lambda s: counted(s.orders, by="tags").view("v"),
            "cannot group the window: 'tags' is array<string>, which cannot be a key",
            HINT_COLUMN,
        ),
        (
            lambda s: counted(s.orders, by=["user_id", "USER_ID"]).view("v"),
            "cannot group the window: column 'user_id' is named twice",
            None,
        ),
        (
            lambda s: s.orders.window(MINUTE, by="user_id").agg().view("v"),
            "cannot aggregate: no aggregate is given",
            "name one, e.g. agg(n=agg.count())",
        ),
        (
            lambda s: s.orders.window(MINUTE, by="user_id").agg(x=agg.sum("order_id")).view("v"),
            "cannot take sum of 'order_id', which is string: it takes numbers",
            'make numbers of it first, e.g. agg.sum("cast(order_id as double)")',
        ),
        (
            lambda s: s.orders.window(MINUTE, by="user_id").agg(x=agg.avg("at")).view("v"),
            "cannot take avg of 'at', which is timestamp: it takes numbers",
            'make numbers of it first, e.g. agg.avg("cast(at as double)")',
        ),
        (
            lambda s: s.orders.window(MINUTE, by="user_id").agg(x=agg.max("tags")).view("v"),
            "cannot take max of 'tags', which is array<string>: its values have no order",
            "take a part that has one",
        ),
        (
            lambda s: s.orders.window(MINUTE, by="user_id").agg(revision=agg.count()).view("v"),
            "cannot aggregate: two columns would be called 'revision'",
            "a window adds window_start, window_end and revision; give your column another name",
        ),
        (
            lambda s: counted(s.orders, late="ignore").late.view("v"),
            "cannot read the late rows of window-orders-user_id: it ignores them",
            'use late="divert" there',
        ),
        (
            lambda s: s.orders.join(s.payments, on="orderid", within="1 hour").view("v"),
            "cannot join orders with payments: orders lacks a column of `on`: there is no column 'orderid'",
            f"did you mean order_id? the columns are {COLUMNS}",
        ),
        (
            lambda s: s.orders.join(s.payments, on="amount", within="1 hour").view("v"),
            "cannot join orders with payments: payments lacks a column of `on`: there is no column 'amount'",
            "the columns are order_id, paid, at",
        ),
        (
            lambda s: s.orders.join(s.payments, on=[], within="1 hour").view("v"),
            "cannot join orders with payments: no column to join on",
            'name it, e.g. on="order_id"',
        ),
        (
            lambda s: s.orders.join(s.payments.with_columns(order_id="paid"), on="order_id", within="1 hour").view("v"),
            "cannot join orders with payments: 'order_id' is string in orders and double in payments",
            'bring both to one type first, e.g. with_columns(order_id="cast(order_id as string)")',
        ),
        (
            lambda s: s.orders.join(s.payments.select(Order_id="order_id"), on="order_id", within="1 hour").view("v"),
            "cannot join orders with payments: 'order_id' is called 'Order_id' in payments",
            "give it one name with select first",
        ),
        (
            lambda s: s.orders.join(s.orders, on="tags", within="1 hour").view("v"),
            "cannot join orders with orders: 'tags' is array<string>, which cannot be a key",
            HINT_COLUMN,
        ),
        (
            lambda s: s.orders.with_columns(payments_at="at").join(s.payments, on="order_id", within="1 hour").view("v"),
            "cannot join orders with payments: two columns would be called 'payments_at'",
            "select other names on one side before the join, e.g. payments.select(…)",
        ),
        (
            lambda s: s.flow.stream("x", "a string", time="a").view("v"),
            "cannot take the time of x from 'a': it is string, not timestamp",
            'declare the column as a timestamp: "a timestamp"',
        ),
        (
            lambda s: s.flow.stream("x", "a string", time="b").view("v"),
            "cannot take the time of x: there is no column 'b'",
            "the columns are a",
        ),
        (
            lambda s: s.flow.stream("x", "a string", key="b").view("v"),
            "cannot take the key of x: there is no column 'b'",
            "the columns are a",
        ),
        (
            lambda s: s.payments.view("v", key="idd"),
            "cannot key view 'v': there is no column 'idd'",
            "the columns are order_id, paid, at",
        ),
        (
            lambda s: s.orders.to("t", key="tags"),
            "cannot key topic 't': 'tags' is array<string>, which cannot be a key",
            HINT_COLUMN,
        ),
        (
            lambda s: s.orders.where("amount > 1").to("orders"),
            "cannot write topic 'orders': the flow also reads it, so it would feed itself",
            "write to another topic",
        ),
        (
            lambda s: s.orders.where("amount > 1"),
            "nothing to run: the flow has no output",
            'send a stream somewhere: stream.to("topic") or stream.view("name")',
        ),
    ],
)
def test_what_cannot_run_is_refused_with_what_to_do(shop, refused, build, what, hint):
    assert said_of(build, shop, refused) == (what, hint)


def test_the_place_of_an_output_is_its_own_line(shop, refused):
    shop.payments.view("v", key="idd")
    assert refused().splitlines()[1] == '  flow shop, step "payments" (shop.py:N)'

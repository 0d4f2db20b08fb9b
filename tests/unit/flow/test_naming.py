from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling

MINUTE = Tumbling("1 minute")


def names(shop):
    return [step.name for step in shop.plan().steps]


def test_a_step_is_named_by_the_first_thing_it_writes(shop):
    shop.orders.where("amount > 1").to("big").view("big_orders")
    assert names(shop) == ["orders", "big"]


def test_a_step_that_writes_nothing_is_named_by_kind_inputs_and_by(shop):
    sales = shop.orders.where("amount > 1").window(MINUTE, by=["user_id", "order_id"]).agg(n=agg.count())
    sales.join(shop.payments, on="order_id", within="1 hour").where("n > 1").view("busy")
    assert names(shop) == [
        "orders",
        "payments",
        "where-orders",
        "window-where-orders-user_id-order_id",
        "join-window-where-orders-user_id-order_id-payments-order_id",
        "busy",
    ]


def test_a_source_keeps_the_name_of_its_topic_whatever_it_writes(shop):
    shop.orders.view("all")
    assert names(shop) == ["orders"]


def test_a_given_name_comes_before_what_is_written(shop):
    shop.orders.where("amount > 1", name="large").view("big")
    shop.orders.select("order_id").named("ids").view("order_ids")
    shop.orders.window(MINUTE, by="user_id").agg(n=agg.count(), name="per_minute").view("sales")
    shop.orders.window(MINUTE, by="user_id", name="again").agg(n=agg.count()).view("sales_again")
    shop.orders.where("amount > 2").to("huge", name="very_large")
    assert names(shop) == ["orders", "large", "ids", "per_minute", "again", "very_large"]


def test_an_aggregate_may_be_called_name(shop):
    shop.orders.window(MINUTE, by="user_id").agg(name=agg.max("order_id")).view("sales")
    assert "name" in shop.plan().step("sales").schema


def test_two_equal_names_are_refused_with_both_places(shop, refused):
    shop.orders.where("amount > 1").window(MINUTE, by="user_id").agg(n=agg.count()).view("small")
    shop.orders.where("amount > 2").window(MINUTE, by="user_id").agg(n=agg.count()).view("large")
    assert refused() == (
        "two steps would be called 'where-orders'\n"
        "  flow shop (shop.py:N)\n"
        "  the other one: shop.py:N\n"
        "  hint: the name finds a step's state again, so it must be its own: "
        'give one of them another with name="…" or .named("…")'
    )


def test_a_step_may_not_take_the_name_of_a_source(shop, refused):
    shop.orders.where("amount > 1").view("orders")
    assert refused().splitlines()[0] == "two steps would be called 'orders'"


def test_a_step_may_not_take_the_name_of_a_hidden_one(shop, refused):
    shop.orders.window(MINUTE, by="user_id").agg(n=agg.sum("amount * 2")).view("sales")
    shop.orders.where("amount > 1", name="sales.input").view("big")
    assert refused().splitlines()[0] == "two steps would be called 'sales.input'"


def test_a_name_settles_it(shop):
    shop.orders.where("amount > 1", name="a").window(MINUTE, by="user_id").agg(n=agg.count()).view("small")
    shop.orders.where("amount > 2", name="b").window(MINUTE, by="user_id").agg(n=agg.count()).view("large")
    assert names(shop) == ["orders", "a", "small", "b", "large"]


def test_long_names_and_letters_outside_the_allow_list_stay_apart_by_a_digest(shop):
    sized = shop.orders.with_columns(größe="amount")
    first = sized.window(MINUTE, by="größe").agg(n=agg.count())
    first.where("n > 1").view("a")
    long = shop.orders
    for _ in range(40):
        long = long.where("amount > 1")
    long.where("amount > 1").view("b")
    made = names(shop)
    assert len(set(made)) == len(made)
    assert all(len(name) <= 200 and name.isascii() for name in made)
    assert "window-with_columns-orders-gr__e" not in made
    assert sum(name.startswith("window-with_columns-orders-gr__e-") for name in made) == 1


def test_steps_that_lead_nowhere_are_left_out(shop):
    shop.orders.where("no_such_column > 1")
    shop.payments.view("all")
    assert names(shop) == ["payments"]

from penstock.flow.steps.aggregates import agg
from penstock.flow.steps.kinds import Tumbling

MINUTE = Tumbling("1 minute")


def columns(shop, topic="orders"):
    return shop.plan().step(topic).node.columns


def test_a_source_gives_what_is_read_and_its_time(shop):
    shop.orders.where("amount > 1").window(MINUTE, by="user_id", late="ignore").agg(n=agg.count()).view("sales")
    made = shop.plan()
    assert made.step("orders").node.columns == ("user_id", "amount", "at")
    assert made.step("orders").schema.names == ["user_id", "amount", "at"]


def test_where_passes_on_whatever_comes_in(shop):
    shop.orders.where("amount > 1").window(MINUTE, by="user_id", late="ignore").agg(n=agg.count()).view("sales")
    shop.orders.select("price").view("prices")
    made = shop.plan()
    assert made.step("where-orders").schema == made.step("orders").schema


def test_diverted_rows_are_kept_whole(shop):
    shop.orders.window(MINUTE, by="user_id").agg(n=agg.count()).view("sales")
    assert columns(shop) == ("order_id", "user_id", "amount", "at", "price", "tags")


def test_where_the_flow_reads_its_late_rows_it_says_which_columns_it_wants(shop):
    sales = shop.orders.window(MINUTE, by="user_id").agg(n=agg.count())
    sales.view("sales")
    sales.late.select("order_id").view("too_late")
    made = shop.plan()
    assert made.step("orders").node.columns == ("order_id", "user_id", "at")
    assert made.step("late-sales").schema.names == ["order_id"]


def test_columns_that_nobody_reads_are_not_worked_out(shop):
    wide = shop.orders.with_columns(eur="amount * 0.9", cents="amount * 100")
    wide.window(MINUTE, by="user_id", late="ignore").agg(total=agg.sum("eur")).view("sales")
    step = shop.plan().step("with_columns-orders")
    assert [name for name, _ in step.node.columns] == step.schema.names == ["user_id", "eur"]
    assert columns(shop) == ("user_id", "amount", "at")


def test_an_output_reads_every_column_of_its_stream(shop):
    shop.orders.select("order_id").view("ids")
    assert columns(shop) == ("order_id", "at")
    shop.orders.view("all")
    assert len(columns(shop)) == 6


def test_a_function_reads_every_column(shop):
    shop.orders.map_arrow(lambda table: table, "x long").view("v")
    assert len(columns(shop)) == 6


def test_a_join_reads_its_keys_and_what_is_read_of_it(shop):
    joined = shop.orders.join(shop.payments, on="order_id", within="1 hour", late="ignore", name="both")
    joined.select("amount", when="payments_at").view("v")
    made = shop.plan()
    assert made.step("orders").node.columns == ("order_id", "amount", "at")
    assert made.step("payments").node.columns == ("order_id", "at")
    assert made.step("both").node.right == (("payments_at", "at"),)
    assert made.step("both").schema.names == ["order_id", "amount", "payments_at"]


def test_every_input_of_a_union_gives_what_is_read_of_it(shop):
    big = shop.orders.where("amount > 1")
    big.union(shop.orders).select("order_id").view("v")
    made = shop.plan()
    assert made.step("union-where-orders-orders").schema.names == ["order_id"]
    assert made.step("orders").node.columns == ("order_id", "amount", "at")


def test_several_readers_get_what_any_of_them_reads(shop):
    shop.orders.select("order_id").view("ids")
    shop.orders.select("price").view("prices")
    assert columns(shop) == ("order_id", "at", "price")

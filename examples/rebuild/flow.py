"""Orders of a shop in three stores: what users have spent in a table, the items in a search index, the orders in files."""

from penstock import Flow, agg
from penstock.sinks import parquet, search, sqlite

ORDERS = "order_id string not null, user string not null, item string, amount double, at timestamp"

flow = Flow("rebuild")
orders = flow.stream("orders", ORDERS, time="at")
spent = orders.group_by("user").agg(orders=agg.count(), total=agg.sum("amount"))
spent.view("spent")

spent.sink(sqlite("shop.db", "spent"))
orders.sink(search("items", key="order_id", text="item"))
orders.sink(parquet("lake", key="order_id"))

"""A shop's PostgreSQL, followed into a cache of its products, a search index over them, and a warehouse of its sales."""

import os

from penstock import Flow
from penstock.sinks import duckdb, redis, search

CACHE_URL = os.environ.get("CACHE_URL", "redis://127.0.0.1:6379/0")

flow = Flow("shop_sync")
customers, products, orders = (flow.table(f"shop.public.{name}") for name in ("customers", "products", "orders"))

products.sink(redis(CACHE_URL, "product"))
products.sink(search("products", text=["product", "description"]))
sales = orders.join(products, on="product_id").join(customers, on="customer_id")
sales.sink(duckdb("warehouse.duckdb", "sales", key="order_id", keep_open=False))

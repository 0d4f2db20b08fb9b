"""The shop: sales per minute, orders that nobody paid for within a minute, and settled orders as a topic for others."""

from penstock import Flow, Tumbling, agg

flow = Flow("shop")

orders = flow.stream("orders", "order_id string, product string, cents long, at timestamp", time="at", lateness="10 seconds")
payments = flow.stream("payments", "order_id string, paid long, at timestamp", time="at", lateness="10 seconds")

sales = orders.window(Tumbling("1 minute"), by="product").agg(orders=agg.count(), cents=agg.sum("cents"))
sales.view("sales_per_minute")
sales.late.view("late_orders")

outcome = orders.join(payments, on="order_id", within=("0 seconds", "1 minute"), how="left")
outcome.where("paid is null").view("unpaid_orders")
outcome.where("paid is not null").to("settled_orders")

"""A shop: sales per minute, and what became of every order: `Paid`, or `Unpaid` when no payment came within half an hour."""

from penstock import Flow, Tumbling, agg

flow = Flow("shop")

orders = flow.stream("orders", "order_id string, product string, amount long, at timestamp", time="at", lateness="10 seconds")
payments = flow.stream("payments", "order_id string, paid long, at timestamp", time="at", lateness="10 seconds")

sales = orders.window(Tumbling("1 minute"), by=[]).agg(orders=agg.count(), revenue=agg.sum("amount"))
sales.view("sales_per_minute")
sales.late.view("late_orders")

outcome = orders.join(payments, on="order_id", within="30 minutes", how="left")
paid = outcome.where("paid is not null", name="paid").with_columns(status="'Paid'")
unpaid = outcome.where("paid is null", name="unpaid").with_columns(status="'Unpaid'")
paid.union(unpaid).view("order_status", key="order_id")
paid.to("settled_orders", key="order_id")

"""Orders and payments: what became of each, also of an order that nobody paid and of a payment for which there is no order."""

from penstock import Flow

flow = Flow("orders_payments")

orders = flow.stream("orders", "order_id string, product string, amount long, at timestamp", time="at", lateness="10 seconds")
payments = flow.stream("payments", "order_id string, paid long, at timestamp", time="at", lateness="10 seconds")

both = orders.join(payments, on="order_id", within="30 minutes", how="full", name="both")
paid = both.where("product is not null and paid is not null", name="paid").with_columns(status="'Paid'")
unpaid = both.where("paid is null", name="unpaid").with_columns(status="'Unpaid'")
unknown = both.where("product is null", name="unknown").with_columns(status="'No order'")
paid.union(unpaid, unknown).view("order_status", key="order_id")

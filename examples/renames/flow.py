"""Orders with the names of their users: rename a user, and every one of their orders is shown under the new name."""

from penstock import Flow

flow = Flow("renames")

orders = flow.table("orders", "order_id string, user_id long, amount double", key="order_id")
users = flow.table("users", "user_id long, name string", key="user_id")

named = orders.join(users, on="user_id")
named.view("named_orders")
named.to("named_orders", partitions=2)  # a changelog: others read it with flow.table

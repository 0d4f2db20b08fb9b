"""Sales per user and minute, from a topic of Kafka into a table of PostgreSQL, exactly once."""

import os

from penstock import Flow, Tumbling, agg
from penstock.sinks import postgres

DATABASE_URL = os.environ.get("DATABASE_URL", "postgresql://postgres@localhost/postgres")

flow = Flow("kafka_to_postgres")
orders = flow.stream("orders", "order_id string, user_id long, amount double, at timestamp", time="at", lateness="10 seconds")
sales = orders.window(Tumbling("1 minute"), by="user_id").agg(n=agg.count(), total=agg.sum("amount"))
sales.sink(postgres(DATABASE_URL, "sales"))
sales.late.sink(postgres(DATABASE_URL, "late_orders", key="order_id"))

"""Sales per user and minute, from a topic of Kafka into another one, exactly once."""

from penstock import Flow, Tumbling, agg

flow = Flow("kafka_to_kafka")
orders = flow.stream("orders", "order_id string, user_id long, amount double, at timestamp", time="at", lateness="10 seconds")
sales = orders.window(Tumbling("1 minute"), by="user_id").agg(n=agg.count(), total=agg.sum("amount"))
sales.to("sales", key="user_id", partitions=2)
sales.late.to("late_orders")

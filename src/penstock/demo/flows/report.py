"""The bookkeeping: another flow, which reads the topic that the shop writes and sums up what was paid every five minutes."""

from penstock import Flow, Tumbling, agg

flow = Flow("report")

settled = flow.stream("settled_orders", "order_id string, product string, paid long")
takings = settled.window(Tumbling("5 minutes"), by="product").agg(orders=agg.count(), cents=agg.sum("paid"))
takings.view("takings")

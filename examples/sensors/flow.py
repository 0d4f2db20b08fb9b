"""Without a window: the running average of each sensor, and the readings of the last five minutes."""

from penstock import Flow, agg

flow = Flow("sensors")

readings = flow.stream("readings", "sensor string, value double, at timestamp", time="at", lateness="0 seconds")
readings.group_by("sensor", name="averages").agg(n=agg.count(), mean=agg.avg("value")).view("averages")
readings.last("5 minutes", name="recent").view("recent")

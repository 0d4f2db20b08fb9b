"""Response times of a web service: mean and 95th percentile per endpoint over the last hour, every minute."""

from penstock import Flow, Hopping, agg

flow = Flow("latency")

requests = flow.stream("requests", "endpoint string, ms double, status int, at timestamp", time="at", lateness="30 seconds")
hour = requests.window(Hopping("1 hour", every="1 minute"), by="endpoint").agg(
    n=agg.count(),
    mean=agg.avg("ms"),
    p95=agg.quantile("ms", 0.95),
    failed=agg.ratio("status >= 500"),
    per_second=agg.rate(),
)
hour.view("last_hour")

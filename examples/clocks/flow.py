"""Devices whose clocks are wrong: three timestamps set them right."""

from penstock import Flow, Tumbling, agg

flow = Flow("clocks")

readings = flow.stream(
    "readings",
    "device string, value long, happened timestamp, sent timestamp, received timestamp",
    lateness="10 seconds",
)
right = readings.clock_fix(happened="happened", sent="sent", received="received", by="device")
right.view("right")
right.window(Tumbling("1 minute"), by="device").agg(total=agg.sum("value")).view("per_minute")

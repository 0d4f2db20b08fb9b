"""A row that comes after its window is complete, under all three policies."""

from penstock import Flow, Tumbling, agg

flow = Flow("late_rows")

rows = flow.stream("rows", "id string, at timestamp", time="at", lateness="1 hour")
five = Tumbling("5 seconds")

rows.window(five, late="ignore", name="ignoring").agg(n=agg.count()).view("ignoring")
rows.window(five, late="correct", allowed="1 minute", name="correcting").agg(n=agg.count()).view("correcting")
diverting = rows.window(five, late="divert", name="diverting").agg(n=agg.count())
diverting.view("diverting")
diverting.late.view("too_late")

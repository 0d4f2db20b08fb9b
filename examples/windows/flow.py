"""Every kind of window over the same visits."""

from penstock import Flow, Hopping, Session, Sliding, Tumbling, agg

flow = Flow("windows")

visits = flow.stream("visits", "user string, at timestamp", time="at", lateness="0 seconds")


def counted(window: Tumbling | Hopping | Session, name: str) -> None:
    visits.window(window, name=name).agg(n=agg.count()).view(name)


counted(Tumbling("1 minute"), "per_minute")
counted(Hopping("60 seconds", every="30 seconds"), "overlapping")
counted(Hopping("6 minutes", every="10 minutes"), "with_gaps")
counted(Sliding("6 minutes", every="2 minutes"), "six_every_two")  # what we call hopping
counted(Tumbling("6 minutes"), "six")
visits.window(Session("10 minutes"), by="user", name="sessions").agg(n=agg.count()).view("sessions")
visits.window(Sliding("1 minute"), name="last_minute").agg(n=agg.count()).view("last_minute")

"""What users do, with who they were when they did it: the profile that was valid at the time of the event."""

from penstock import Flow

flow = Flow("profiles")

activity = flow.stream("activity", "user_id string, action string, at timestamp", time="at", lateness="5 seconds")
profiles = flow.table("profiles", "user_id string, name string, age int, since timestamp", key="user_id", time="since")

activity.enrich(profiles, on="user_id", version=True).view("who_did_what")

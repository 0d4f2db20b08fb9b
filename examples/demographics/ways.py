"""The same users found in three ways: in a file that was copied from their database, by asking it, and in its changes."""

import os

from penstock import Flow, lookups

flow = Flow("three_ways")

activity = flow.stream("actions", "user_id string, action string, at timestamp", time="at", lateness="1 hour")
copied = flow.static("copy.jsonl", "user_id string, name string, age int", key="user_id")
followed = flow.table("crm.public.profiles")

activity.enrich(copied, on="user_id", name="copied").view("by_file")
profiles = lookups.postgres(os.environ["DATABASE_URL"], "profiles")
activity.lookup(profiles, on="user_id", schema="name string, age int", cache=None, name="asked").view("by_lookup")
activity.enrich(followed, on="user_id", name="followed").view("by_changes")

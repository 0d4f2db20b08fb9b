"""Who did what: the age and name of a user from a local copy of the profiles, and by asking the database that holds them."""

import sqlite3
from pathlib import Path

from penstock import Flow, database

HERE = Path(__file__).parent


def connect() -> sqlite3.Connection:
    """A database elsewhere; here one in memory, so that the example needs nothing else."""
    connection = sqlite3.connect(":memory:")
    connection.executescript((HERE / "profiles.sql").read_text())
    return connection


flow = Flow("demographics")

activity = flow.stream("activity", "user_id string, action string, at timestamp", time="at", lateness="5 seconds")
profiles = flow.table("profiles", "user_id string, name string, age int", key="user_id")

activity.enrich(profiles, on="user_id", as_of="now", name="copied").view("by_local_copy")
activity.lookup(database(connect, table="profiles"), on="user_id", schema="name string, age int", name="asked").view("by_lookup")

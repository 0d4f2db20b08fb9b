"""A table over a compacted topic: the latest value of every user."""

from penstock import Flow

flow = Flow("current_users")
users = flow.table("users", "user string, value string", key="user")
users.view("current")

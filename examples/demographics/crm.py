"""The database of the users, on a PostgreSQL, and what they do.

python crm.py prepare         makes the table, the topic of actions, and a copy of the table: copy.jsonl
python crm.py act             Alice and Bob log in
python crm.py birthday        Alice is 29
python crm.py act_again       Alice logs out; and her view of a product, from before her birthday, arrives late
python crm.py compare         the age of the user of each action, as each of the three ways says

DATABASE_URL says where the database is.
"""

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import psycopg

from penstock import Producer, Schema, TopicSpec, View, open_log
from penstock.storage.home import find_home

HERE = Path(__file__).parent
WAYS = ("by_file", "by_lookup", "by_changes")


def asked(sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def prepare() -> None:
    asked((HERE / "profiles.sql").read_text())
    rows = asked("select user_id, name, age from profiles order by user_id")
    lines = [orjson.dumps(dict(zip(("user_id", "name", "age"), row, strict=True))) for row in rows]
    Path("copy.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    schema = Schema.of("user_id string, action string, at timestamp")
    open_log().create(TopicSpec("actions", schema=schema, time="at", key="user_id"))


def act(*actions: tuple[str, str, datetime]) -> None:
    with Producer(open_log().topic("actions")) as producer:
        for user, action, at in actions:
            producer.send({"user_id": user, "action": action, "at": at})


def now() -> datetime:
    """By the clock of the database, which also says when a transaction was committed."""
    ((found,),) = asked("select clock_timestamp()")
    return datetime.fromisoformat(str(found))


def act_again() -> None:
    with View(find_home() / "views", "by_changes") as view:
        earlier = min(row["at"] for row in view.rows().to_pylist())
    act(("UserID1", "LoggedOut", now()), ("UserID1", "ViewedProduct", earlier))


def answers() -> dict[str, list[tuple[str, str, int | None]]]:
    """What each way says of user, action and age."""
    found = {}
    for way in WAYS:
        with View(find_home() / "views", way) as view:
            found[way] = sorted((row["user_id"], row["action"], row["age"]) for row in view.rows().to_pylist())
    return found


def compare() -> None:
    print(f"{'user':8} {'action':14} {'by_file':>8} {'by_lookup':>10} {'by_changes':>11}")
    for (user, action, file), (_, _, lookup), (_, _, changes) in zip(*answers().values(), strict=True):
        print(f"{user:8} {action:14} {file!s:>8} {lookup!s:>10} {changes!s:>11}")


def main(command: str) -> None:
    if command == "act":
        act(("UserID1", "LoggedIn", now()), ("UserID2", "LoggedIn", now()))
    elif command == "birthday":
        asked("update profiles set age = 29 where user_id = 'UserID1'")
    else:
        {"prepare": prepare, "act_again": act_again, "compare": compare}[command]()


if __name__ == "__main__":
    main(sys.argv[1])

"""A group's state as rows of SQLite: loaded whole, and only what has changed is stored."""

import sqlite3

from penstock.log.groups.leases import Beat
from penstock.log.groups.rules import Member, Part, State

_KEY = "name = ? AND topic = ?"


def load(connection: sqlite3.Connection, group: str, topic: str) -> State | None:
    key = (group, topic)
    found = connection.execute(f"SELECT topic_id, generation FROM groups WHERE {_KEY}", key).fetchone()
    if found is None:
        return None
    members = connection.execute(f"SELECT id, label, seat, lease, boot, renewed FROM members WHERE {_KEY}", key)
    state = State(group, topic, found[0], found[1])
    for id, label, seat, lease, boot, renewed in members:
        state.members[id] = Member(id, label, seat, lease, Beat(boot, renewed))
    columns = "partition, next, moved, owner, target, hand, hand_since"
    for number, offset, moved, owner, target, hand, since in connection.execute(
        f"SELECT {columns} FROM positions WHERE {_KEY}", key
    ):
        state.parts[number] = Part(offset, moved, owner, target, None if hand is None else (hand, since))
    return state


def store(connection: sqlite3.Connection, before: State | None, after: State) -> None:
    """Within the caller's transaction."""
    key = (after.group, after.topic)
    if before is None and not after.parts:
        return
    before = before or State(*key, "", -1)
    if (before.topic_id, before.generation) != (after.topic_id, after.generation):
        connection.execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?)", (*key, after.topic_id, after.generation))
    for id in before.members.keys() - after.members.keys():
        connection.execute(f"DELETE FROM members WHERE {_KEY} AND id = ?", (*key, id))
    for number in before.parts.keys() - after.parts.keys():
        connection.execute(f"DELETE FROM positions WHERE {_KEY} AND partition = ?", (*key, number))
    members = [m for m in after.members.values() if before.members.get(m.id) != m]
    rows = [(*key, m.id, m.label, m.seat, m.lease, *m.renewed) for m in members]
    connection.executemany("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    parts = [(number, part) for number, part in after.parts.items() if before.parts.get(number) != part]
    rows = [(*key, number, p.offset, p.moved, p.owner, p.target, *(p.hand or (None, None))) for number, p in parts]
    connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def remove(connection: sqlite3.Connection, state: State) -> None:
    for table in ("groups", "members", "positions"):
        connection.execute(f"DELETE FROM {table} WHERE {_KEY}", (state.group, state.topic))


def names(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Every group and topic, sorted."""
    return list(connection.execute("SELECT name, topic FROM groups ORDER BY name, topic"))

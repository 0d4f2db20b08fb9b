"""A group's state as rows of SQLite: loaded whole, and only what has changed is stored.

Its line in `groups` carries a checksum over all of it: a value that has changed and a row that is missing are an error (G27).
"""

import sqlite3

import orjson
from crc32c import crc32c

from penstock.log.groups.leases import Beat
from penstock.log.groups.rules import Member, Part, State

_KEY = "name = ? AND topic = ?"


def load(connection: sqlite3.Connection, group: str, topic: str) -> State | None:
    key = (group, topic)
    crc = "crc" if connection.execute("PRAGMA user_version").fetchone()[0] > 1 else "NULL"
    found = connection.execute(f"SELECT topic_id, generation, {crc} FROM groups WHERE {_KEY}", key).fetchone()
    if found is None:
        if key in names(connection):
            raise sqlite3.DatabaseError(f"the line of group {group!r} in topic {topic!r} is missing")
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
    if found[2] is not None and found[2] != _check(state):
        raise sqlite3.DatabaseError(f"the checksum of group {group!r} in topic {topic!r} does not match")
    return state


def _check(state: State) -> int:
    members = [(m.id, m.label, m.seat, m.lease, *m.renewed) for m in state.members.values()]
    parts = [(number, p.offset, p.moved, p.owner, p.target, *(p.in_flight or ())) for number, p in state.parts.items()]
    try:
        whole = [
            state.group,
            state.topic,
            state.topic_id,
            state.generation,
            sorted(members),
            sorted(parts, key=lambda part: part[0]),
        ]
        return int(crc32c(orjson.dumps(whole)))
    except TypeError as error:  # no value of ours is of such a kind
        raise sqlite3.DatabaseError(
            f"group {state.group!r} in topic {state.topic!r} has values of another kind: {error}"
        ) from error


def store(connection: sqlite3.Connection, before: State | None, after: State) -> None:
    """Within the caller's transaction."""
    key = (after.group, after.topic)
    if before is None and not after.parts:
        return
    before = before or State(*key, "", -1)
    if before != after:
        line = (*key, after.topic_id, after.generation, _check(after))
        connection.execute("INSERT OR REPLACE INTO groups (name, topic, topic_id, generation, crc) VALUES (?, ?, ?, ?, ?)", line)
    for id in before.members.keys() - after.members.keys():
        connection.execute(f"DELETE FROM members WHERE {_KEY} AND id = ?", (*key, id))
    for number in before.parts.keys() - after.parts.keys():
        connection.execute(f"DELETE FROM positions WHERE {_KEY} AND partition = ?", (*key, number))
    members = [m for m in after.members.values() if before.members.get(m.id) != m]
    rows = [(*key, m.id, m.label, m.seat, m.lease, *m.renewed) for m in members]
    connection.executemany("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    parts = [(number, part) for number, part in after.parts.items() if before.parts.get(number) != part]
    rows = [(*key, number, p.offset, p.moved, p.owner, p.target, *(p.in_flight or (None, None))) for number, p in parts]
    connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def remove(connection: sqlite3.Connection, state: State) -> None:
    for table in ("groups", "members", "positions"):
        connection.execute(f"DELETE FROM {table} WHERE {_KEY}", (state.group, state.topic))


def names(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Every group and topic, sorted; also one that is only half there, which cannot be loaded."""
    tables = ("groups", "members", "positions")
    return list(
        connection.execute(" UNION ".join(f"SELECT name, topic FROM {table}" for table in tables) + " ORDER BY name, topic")
    )

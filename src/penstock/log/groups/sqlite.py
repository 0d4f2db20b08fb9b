"""Groups in an SQLite file beside the log: every change is one durable transaction, whichever process makes it."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

from penstock.core.time import Clock, SystemClock
from penstock.log.groups import rules
from penstock.log.groups.file import connect, refused
from penstock.log.groups.leases import Beat, LeaseClock, MachineClock
from penstock.log.groups.names import check_joined, check_reader, new_member, no_group
from penstock.log.groups.port import GroupState, InFlight, Source, Standing
from penstock.log.groups.rows import load, names, remove, store
from penstock.log.groups.rules import State
from penstock.log.holding import Held


class SqliteGroups:
    """The groups in one file. It is made by the first join or put; looking makes nothing."""

    def __init__(self, path: Path, clock: Clock | None = None, leases: LeaseClock | None = None) -> None:
        self._path = path
        self._clock, self._leases = clock or SystemClock(), leases or MachineClock()
        self._open: tuple[int, threading.Lock, sqlite3.Connection] | None = None
        self._opening = threading.Lock()
        self._inherited: list[object] = []  # a connection of the parent process is neither used nor closed

    def join(self, group: str, source: Source, begin: Mapping[int, int], *, label: str, lease: float) -> "SqliteMembership":
        check_joined(group)
        with self.changing(group, source) as (state, now, wall):
            member = new_member(label, lease, now)
            rules.join(state, member, source, begin, wall)
        return SqliteMembership(self, group, source, member.id)

    def put(self, group: str, source: Source, offsets: Mapping[int, int]) -> None:
        check_reader(group, offsets)
        with self.changing(group, source) as (state, now, wall):
            rules.put(state, source, offsets, now, wall)

    def forget(self, group: str, topic: str | None = None) -> None:
        if not self._path.exists():
            raise no_group(group, topic, [])
        with self._transaction("IMMEDIATE") as connection:
            there = names(connection)
            found = [load(connection, *key) for key in there if key[0] == group and topic in (None, key[1])]
            if not found:
                raise no_group(group, topic, [name for name, _ in there])
            for state in found:
                assert state
                rules.refuse_members(state, self._leases.beat())
                remove(connection, state)

    def describe(self, group: str | None = None) -> list[GroupState]:
        there, found = [], []
        if self._path.exists():
            with self._transaction("DEFERRED") as connection:
                there = names(connection)
                found = [load(connection, *key) for key in there if group in (None, key[0])]
        if group is not None and not found:
            raise no_group(group, None, [name for name, _ in there])
        now = self._leases.beat()  # after the rows were read: nothing in them is later
        return [rules.described(state, now) for state in found if state]

    def positions(self, topic: str) -> Sequence[Held]:
        if not self._path.exists():
            return []
        with self._transaction("DEFERRED") as connection:
            found = [load(connection, *key) for key in names(connection) if key[1] == topic]
        parts = [(state, number, part) for state in found if state for number, part in sorted(state.parts.items())]
        return [Held(state.group, topic, number, part.offset, part.moved) for state, number, part in parts]

    def close(self) -> None:
        """Closes the file; the next call opens it again."""
        if self._open and self._open[0] == os.getpid():
            self._open[2].close()
        self._open = None

    @contextlib.contextmanager
    def changing(self, group: str, source: Source) -> Iterator[tuple[State, Beat, int]]:
        """The group's state, to be changed in place; stored when the `with` ends without an error."""
        with self._transaction("IMMEDIATE") as connection:
            before = load(connection, group, source.topic)
            after = deepcopy(before) or State(group, source.topic, source.id)
            # The lease's clock is read under the lock, so that it never lies behind what another process wrote.
            yield after, self._leases.beat(), self._clock.now()
            store(connection, before, after)

    @contextlib.contextmanager
    def _transaction(self, kind: str) -> Iterator[sqlite3.Connection]:
        with refused(self._path):
            guard, connection = self.connection()
            with guard:
                connection.execute(f"BEGIN {kind}")
                try:
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def connection(self) -> tuple[threading.Lock, sqlite3.Connection]:
        """This process's own, opened when it is first asked for, and the lock under which it is used."""
        if self._open and self._open[0] != os.getpid():
            self._inherited.append(self._open)
            self._open, self._opening = None, threading.Lock()
        with self._opening:
            if self._open is None:
                self._open = (os.getpid(), threading.Lock(), connect(self._path))
            return self._open[1:]


class SqliteMembership:
    """A member of one of the groups of SqliteGroups."""

    def __init__(self, groups: SqliteGroups, group: str, source: Source, id: str) -> None:
        self._groups, self._group, self._source, self._id = groups, group, source, id

    @property
    def id(self) -> str:
        return self._id

    def heartbeat(self, source: Source, busy: Mapping[int, InFlight] | None = None) -> Standing:
        with self._groups.changing(self._group, self._source) as (state, now, wall):
            return rules.heartbeat(state, self._id, source, busy or {}, now, wall)

    def commit(self, offsets: Mapping[int, int]) -> None:
        with self._groups.changing(self._group, self._source) as (state, now, wall):
            rules.commit(state, self._id, offsets, now, wall)

    def leave(self) -> None:
        with self._groups.changing(self._group, self._source) as (state, now, _):
            rules.leave(state, self._id, now)

"""Sessions that write to three tables of a real PostgreSQL at once, whatever applications and their owners do."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
from psycopg import errors

KEYS: Mapping[str, Sequence[str]] = {"accounts": ("id",), "documents": ("id",), "entries": ("id", "part")}
MANY = 400  # keys of a table
CREATE = """
create table accounts (id int primary key, owner text, balance bigint, active boolean default true);
create table entries (id bigint, part int, amount numeric, memo text, primary key (id, part));
create table documents (id int primary key, title text, body text, seen int default 0);
alter table documents alter body set storage external;
"""
FILL = """
insert into accounts select i, 'owner ' || i, i from generate_series(0, {rows}) i;
insert into entries select i, i % 3, i / 4.0, 'memo' from generate_series(0, {rows}) i;
insert into documents select i, 'title', repeat('x', 3000) from generate_series(0, {few}) i;
"""
# So that every row is sent once more with the columns that its table has at last.
TOUCH = "update accounts set balance = balance + 1; update entries set memo = 'last'; update documents set seen = seen + 1"
EXPECTED = (
    errors.UniqueViolation,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.UndefinedColumn,
    errors.DuplicateColumn,
    errors.FeatureNotSupported,  # a plan whose columns were changed under it
)

Statement = Callable[[Random], str]


def _insert(random: Random) -> str:
    key = random.randrange(MANY)
    return random.choice(
        [
            f"insert into accounts values ({key}, 'ö''\"\\{random.random()}', {key}) on conflict (id) do nothing",
            f"insert into entries (id, part, amount) values ({key}, {random.randrange(3)}, {random.randrange(999)}.50) "
            "on conflict (id, part) do update set amount = excluded.amount",
            f"insert into documents (id, title, body) values ({key}, null, repeat('{random.choice('abc')}', 5000)) "
            "on conflict (id) do update set title = 'again'",
        ]
    )


def _several(random: Random) -> str:
    first = random.randrange(MANY)
    return (
        f"insert into accounts select i, 'many', {first} from generate_series({first}, {first + random.randrange(40)}) i "
        "on conflict (id) do update set balance = excluded.balance"
    )


def _update(random: Random) -> str:
    key, last = random.randrange(MANY), random.randrange(20)
    return random.choice(
        [
            f"update accounts set balance = balance + 1, active = not active where id between {key} and {key + last}",
            f"update entries set memo = 'm{random.random()}' where id = {key}",
            f"update documents set title = 't{random.random()}' where id = {key}",  # its body is not sent
            f"update documents set body = repeat('{random.choice('xyz')}', 4000) where id = {key}",
        ]
    )


def _move(random: Random) -> str:
    key, other = random.randrange(MANY), random.randrange(MANY)
    return random.choice(
        [
            f"update accounts set id = {other} where id = {key}",
            f"update entries set part = part + 3 where id = {key} and part < 3",
            f"update documents set id = {other} where id = {key}",
        ]
    )


def _delete(random: Random) -> str:
    key = random.randrange(MANY)
    table = random.choice(list(KEYS))
    return f"delete from {table} where id between {key} and {key + random.choice([0, 0, 5])}"


STATEMENTS: Sequence[Statement] = (_insert, _insert, _insert, _several, _update, _update, _update, _move, _delete)


EXTRA = "select attname from pg_attribute where attrelid = %s::regclass and attname like 'extra%%' and not attisdropped"


def _ddl(random: Random, table: str, there: Sequence[str]) -> str:
    """Adds, drops or renames a column. No name comes twice: a row from before would seem to have the new column, too."""
    new = f"extra_{random.getrandbits(40)}"
    add = [f"add {new} int default {random.randrange(9)}", f"add {new} text"] if len(there) < 4 else []
    change = [f"drop {random.choice(there)}", f"rename {random.choice(there)} to {new}"] if there else []
    return f"alter table {table} {random.choice(add + change)}"


@dataclass
class Session:
    """One application. ddl: how often it changes columns, truncates: how often it empties tables, pace: seconds between two
    transactions, so that a busy machine can follow."""

    url: str
    random: Random
    ddl: float = 0.01
    truncates: float = 0.005
    pace: float = 0.01
    transactions: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    wrong: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                with suppress(psycopg.OperationalError), psycopg.connect(self.url, autocommit=True, connect_timeout=5) as c:
                    c.execute("set lock_timeout = '2s'")
                    while not self.stop.wait(self.pace):
                        self._transaction(c)
                self.stop.wait(0.02)  # the server is away
        except BaseException as error:
            self.wrong = error

    def _transaction(self, c: "psycopg.Connection[Any]") -> None:
        random = self.random
        try:
            if random.random() < self.ddl:
                table = random.choice(["accounts", "entries"])
                there = [name for (name,) in c.execute(EXTRA, (table,))]
                c.execute(_ddl(random, table, there))  # type: ignore[call-overload]
            elif random.random() < self.truncates:
                c.execute(random.choice(["truncate entries", "truncate documents, entries"]))  # type: ignore[call-overload]
            elif random.random() < 0.03:
                self._copy(c)
            else:
                with c.transaction(force_rollback=random.random() < 0.15):
                    self._statements(c)
            self.transactions += 1
        except EXPECTED:
            pass

    def _statements(self, c: "psycopg.Connection[Any]") -> None:
        for _ in range(self.random.choice([1, 1, 2, 4, 8])):
            statement = self.random.choice(STATEMENTS)(self.random)
            if self.random.random() < 0.2:
                with suppress(*EXPECTED), c.transaction(force_rollback=self.random.random() < 0.4):  # a savepoint
                    c.execute(statement)  # type: ignore[call-overload]
            else:
                c.execute(statement)  # type: ignore[call-overload]

    def _copy(self, c: "psycopg.Connection[Any]") -> None:
        first = 1000 + self.random.randrange(10**6)
        with c.cursor().copy("copy entries (id, part, amount) from stdin") as copy:
            for i in range(self.random.choice([10, 200])):
                copy.write_row((first + i, 0, "1.5"))


class Workload:
    """Sessions in threads."""

    def __init__(self, url: str, seed: int, sessions: int = 3, **often: float) -> None:
        self.sessions = [Session(url, Random(f"{seed} {number}"), **often) for number in range(sessions)]
        self._threads = [threading.Thread(target=session.run) for session in self.sessions]

    @property
    def transactions(self) -> int:
        return sum(session.transactions for session in self.sessions)

    def __enter__(self) -> "Workload":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for session in self.sessions:
            session.stop.set()
        for thread in self._threads:
            thread.join(60)
        for session in self.sessions:
            if session.wrong:
                raise session.wrong

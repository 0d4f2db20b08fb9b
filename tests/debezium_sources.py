"""Databases that Debezium follows in tests, with a workload whose own record says which changes there are, in their order."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from penstock.capture.debezium.kind import DebeziumKind
from penstock.capture.definition import CaptureDefinition, Secret
from penstock.capture.runner import CaptureRun
from penstock.log.file.log import FileLog
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.capture.records import Record, envelopes_of, journal_of
from penstock.testing.servers.debezium import QUICK
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.postgres import PostgresServer

ACCOUNTS, ITEMS = "accounts", "items"
CREATE = "create table {0}accounts (id int primary key, v int); create table {0}items (id int primary key, v int);"
PASSWORD = "PENSTOCK_TEST_PASSWORD"

Change = tuple[str, str, int]  # table, op, key
State = dict[str, dict[int, int]]


class Source(ABC):
    """A place of its own in a database, with the tables accounts and items."""

    def __init__(self) -> None:
        self.name = f"t{secrets.token_hex(4)}"

    @abstractmethod
    def definition(self, **options: Any) -> CaptureDefinition: ...

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Executes statements; each commits, unless they say otherwise."""

    @abstractmethod
    def rows(self, table: str) -> dict[int, int]: ...

    def state(self) -> State:
        return {table: self.rows(table) for table in (ACCOUNTS, ITEMS)}

    def topic(self, table: str) -> str:
        return f"{self.name}.{self.name}.{table}"

    def options(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {"java": list(QUICK), "heartbeat": 0.3, **more}


class PostgresPlace(Source):
    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self.server = server
        server.execute(f"create schema {self.name}")
        self.execute(CREATE.format(""))

    def definition(self, **options: Any) -> CaptureDefinition:
        tables = tuple((self.name, table) for table in (ACCOUNTS, ITEMS))
        slot = {"slot": f"slot_{self.name}", "publication": f"slot_{self.name}"}
        return CaptureDefinition(self.name, "debezium", self.server.url, tables, options=self.options({**slot, **options}))

    def execute(self, sql: str) -> None:
        with psycopg.connect(self.server.url, autocommit=True, options=f"-c search_path={self.name}") as connection:
            connection.execute(sql.encode())

    def rows(self, table: str) -> dict[int, int]:
        return dict(self.server.execute(f"select id, v from {self.name}.{table}"))

    def drop(self) -> None:
        DebeziumKind().tear_down(self.definition())
        self.server.execute(f"drop schema {self.name} cascade")


class MariaDbPlace(Source):
    def __init__(self, server: MariaDbServer, jars: str) -> None:
        super().__init__()
        self.server, self.jars = server, jars
        server.execute(f"create database {self.name}")
        self.execute(CREATE.format(""))

    def definition(self, **options: Any) -> CaptureDefinition:
        tables = tuple((self.name, table) for table in (ACCOUNTS, ITEMS))
        given = self.options({"jars": self.jars, **options})
        return CaptureDefinition(
            self.name, "debezium", self.server.url(self.name), tables, secret=Secret(variable=PASSWORD), options=given
        )

    def execute(self, sql: str) -> None:
        self.server.execute(sql, self.name)

    def rows(self, table: str) -> dict[int, int]:
        return {int(key): int(value) for key, value in self.server.execute(f"select id, v from {table}", self.name)}

    def drop(self) -> None:
        self.server.execute(f"drop database {self.name}")


@dataclass
class Workload:
    """Transactions, made by chance, and what each of them changes."""

    random: Random
    state: State = field(default_factory=lambda: {ACCOUNTS: {}, ITEMS: {}})
    states: list[State] = field(default_factory=list)  # before each transaction
    transactions: list[list[Change]] = field(default_factory=list)
    next_key: int = 0

    def sql(self, transactions: int) -> str:
        """The statements of so many more."""
        return "\n".join(self._transaction() for _ in range(transactions))

    def _transaction(self) -> str:
        if self.random.random() < 0.1:
            return "begin; insert into accounts values (-1, 0); rollback;"
        self.states.append({table: dict(rows) for table, rows in self.state.items()})
        changes: list[Change] = []
        said = [self._statement(changes) for _ in range(self.random.choice((1, 1, 2, 3, 8)))]
        self.transactions.append(changes)
        return f"begin; {' '.join(said)} commit;"

    def _statement(self, changes: list[Change]) -> str:
        table = self.random.choice((ACCOUNTS, ITEMS))
        rows = self.state[table]
        what = self.random.choice("ccud") if rows else "c"
        value = self.random.randrange(10**6)
        if what == "c":
            self.next_key += 1
            key, rows[self.next_key] = self.next_key, value
            said = f"insert into {table} values ({key}, {value});"
        elif what == "u":
            key = self.random.choice(list(rows))
            value = rows[key] + 1  # MariaDB logs no update that changes nothing
            rows[key] = value
            said = f"update {table} set v = {value} where id = {key};"
        else:
            key = self.random.choice(list(rows))
            del rows[key]
            said = f"delete from {table} where id = {key};"
        changes.append((table, what, key))
        return said


@dataclass(frozen=True)
class Captured:
    """What stands in the topics of a capture."""

    log: FileLog
    source: Source

    def records(self, table: str) -> list[Record]:
        return envelopes_of(self.log, self.source.topic(table))

    def fold(self) -> State:
        found: State = {ACCOUNTS: {}, ITEMS: {}}
        for table, rows in found.items():
            for record in self.records(table):
                row = record.value["after"] or record.value["before"]
                rows.pop(row["id"], None)
                if record.value["op"] != "d":
                    rows[row["id"]] = row["v"]
        return found

    def snapshot(self) -> State:
        return {
            table: {each.value["after"]["id"]: each.value["after"]["v"] for each in self.records(table) if each.value["op"] == "r"}
            for table in (ACCOUNTS, ITEMS)
        }

    def transactions(self) -> list[list[Change]]:
        """The changes behind the snapshot, by transaction, in the order in which the journal has them."""
        found: dict[str, list[tuple[int, Change]]] = {}
        for table in (ACCOUNTS, ITEMS):
            for record in self.records(table):
                if record.value["op"] != "r":
                    key = (record.value["after"] or record.value["before"])["id"]
                    place = record.value["transaction"]["total_order"], (table, record.value["op"], key)
                    found.setdefault(record.transaction, []).append(place)
        ended = [entry.id for entry in journal_of(self.log, self.source.name) if entry.status == "END"]
        assert len(ended) == len(set(ended)), "a transaction has ended twice"
        order = [id for id in ended if id in found]
        assert set(order) == set(found), "changes of a transaction that has not ended"
        for changes in found.values():
            assert sorted(place for place, _ in changes) == list(range(1, len(changes) + 1))
        return [[change for _, change in sorted(found[id])] for id in order]


def check(captured: Captured, workload: Workload) -> None:
    """The snapshot is the tables between two transactions, and behind it stand all later ones: each once, whole and in order."""
    followed = captured.transactions()
    first = len(workload.transactions) - len(followed)
    assert first >= 0, "there are more transactions than were made"
    assert followed == workload.transactions[first:]
    before = workload.states[first] if first < len(workload.states) else workload.state
    assert captured.snapshot() == before
    assert captured.fold() == workload.state == captured.source.state()


def run_of(source: Source, home: Path, **options: Any) -> CaptureRun:
    definition = source.definition(**options)
    engine = DebeziumKind().open(definition, LocalStorage(home / "engine"))
    return CaptureRun(definition, FileLog(LocalStorage(home / "log")), LocalStorage(home / "capture"), engine)


def log_of(home: Path) -> FileLog:
    return FileLog(LocalStorage(home / "log"))

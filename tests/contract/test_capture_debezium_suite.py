"""Debezium's engine passes the suite of every engine, on PostgreSQL and on MariaDB. Each of its many starts takes seconds."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from contract.capture_databases import PostgresSchema, postgres_schema
from penstock.capture.writing.writer import POINTS
from penstock.testing.contracts.capture.contract import ROLL_BACK, CaptureContract
from penstock.testing.contracts.capture.following import Following
from penstock.testing.servers.debezium import QUICK
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.postgres import PostgresServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
OPTIONS: dict[str, Any] = {"java": list(QUICK), "heartbeat": 0.3}
RIGHTS = "select, reload, show databases, replication slave, binlog monitor, lock tables"


class DebeziumContract(CaptureContract):
    """A table without rows has no batch of its own, so that the third of the suite's starts has one only and passes its end once:
    the end of a batch is left to the test of a copy that was cut short."""

    engine, options = "debezium", OPTIONS

    @pytest.mark.parametrize("point", [point for point in POINTS if point != "capture.ended"])
    def test_a_crash_at_any_point_is_gone_on_from(self, shop: Following, point: str) -> None:
        super().test_a_crash_at_any_point_is_gone_on_from(shop, point)


class TestDebeziumOnPostgres(DebeziumContract):
    connector = "postgresql"

    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer, debezium: None) -> None:
        self.postgres = postgres

    def database(self, place: Path) -> AbstractContextManager[PostgresSchema]:
        return postgres_schema(self.postgres)


class MariaDbDatabase:
    """A database of its own, and a user without a password who may follow it."""

    def __init__(self, server: MariaDbServer) -> None:
        self._server, self.schema = server, f"s{uuid4().hex[:10]}"
        server.execute(f"create database {self.schema}; create user {self.schema}; grant {RIGHTS} on *.* to {self.schema}")
        self.url = f"mariadb://{self.schema}@{server.address}/{self.schema}"

    def execute(self, *statements: str) -> None:
        last = ROLL_BACK if ROLL_BACK in statements else "commit"
        said = "; ".join(_for_mariadb(statement) for statement in statements if statement != ROLL_BACK)
        self._server.execute(f"set sql_mode = 'ANSI', max_recursive_iterations = 100000; begin; {said}; {last};", self.schema)

    def drop(self) -> None:
        self._server.execute(f"drop database {self.schema}; drop user {self.schema}")


def _for_mariadb(statement: str) -> str:
    """What is inserted stands before the rows in it, a backslash in a text is written twice, and `real` is a word of its own."""
    found = re.fullmatch(r"(with recursive .*\)) insert into (\w+) (select .*)", statement)
    return (
        f"insert into {found[2]} {found[1]} {found[3]}" if found else statement.replace("\\", "\\\\").replace(" real ", ' "real" ')
    )


class TestDebeziumOnMariaDb(DebeziumContract):
    connector = "mariadb"
    positions = False  # a place in the binlog and a GTID instead

    @pytest.fixture(autouse=True)
    def server(self, mariadb: MariaDbServer, mariadb_jars: str, debezium: None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mariadb = mariadb
        monkeypatch.setenv("PENSTOCK_DEBEZIUM_JARS", mariadb_jars)

    @contextmanager
    def database(self, place: Path) -> Iterator[MariaDbDatabase]:
        made = MariaDbDatabase(self.mariadb)
        yield made
        made.drop()

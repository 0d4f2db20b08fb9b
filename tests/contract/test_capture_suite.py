"""Triggers and polls pass the suite of every engine, on PostgreSQL and on SQLite."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from contract.capture_databases import PostgresSchema, SqliteDatabase, postgres_schema, sqlite_file
from penstock.testing.contracts.capture import CaptureContract
from penstock.testing.servers.postgres import PostgresServer

EVERY = {"every": "100 ms"}


class OnPostgres(CaptureContract):
    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def database(self, place: Path) -> AbstractContextManager[PostgresSchema]:
        return postgres_schema(self.postgres)


class OnSqlite(CaptureContract):
    positions = False

    def database(self, place: Path) -> AbstractContextManager[SqliteDatabase]:
        return sqlite_file(place)


class TestPostgresTriggers(OnPostgres):
    engine, connector = "triggers", "postgresql"


class TestSqliteTriggers(OnSqlite):
    engine, connector = "triggers", "sqlite"
    boundaries = False  # SQLite does not number its transactions


class TestPostgresPolls(OnPostgres):
    engine, connector, options = "poll", "postgresql", EVERY
    each_change, positions = False, False


class TestSqlitePolls(OnSqlite):
    engine, connector, options = "poll", "sqlite", EVERY
    each_change = False

"""Databases for the suite of engines: a schema of a PostgreSQL, a file of SQLite."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg

from penstock.testing.contracts.capture.contract import ROLL_BACK
from penstock.testing.servers.postgres import PostgresServer


class PostgresSchema:
    """A schema of its own."""

    def __init__(self, server: PostgresServer) -> None:
        self.url, self.schema = server.url, f"s{uuid4().hex[:10]}"

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, options=f"-c search_path={self.schema}") as connection:
            for statement in statements:
                if statement != ROLL_BACK:
                    connection.execute(statement.encode())
            if ROLL_BACK in statements:
                connection.rollback()


@contextmanager
def postgres_schema(server: PostgresServer) -> Iterator[PostgresSchema]:
    made = PostgresSchema(server)
    server.execute(f"create schema {made.schema}")
    yield made
    server.execute(f"drop schema {made.schema} cascade")


class SqliteDatabase:
    """A file."""

    schema = "main"

    def __init__(self, place: Path) -> None:
        self.path = place / "shop.db"
        self.url = f"sqlite:///{self.path}"

    def execute(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("begin")
            for statement in statements:
                if statement != ROLL_BACK:
                    connection.execute(statement)
            connection.execute("rollback" if ROLL_BACK in statements else "commit")


@contextmanager
def sqlite_file(place: Path) -> Iterator[SqliteDatabase]:
    made = SqliteDatabase(place)
    made.execute()
    yield made

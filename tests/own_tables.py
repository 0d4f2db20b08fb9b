"""Databases of programs, with their own connections: SQLite in a file, and a schema of a real PostgreSQL."""

import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers.postgres import PostgresServer

KINDS = ("sqlite", "postgres")


class Database(ABC):
    """Connections as a program opens them: nothing is committed by itself."""

    mark: str  # for parameters

    @abstractmethod
    def connect(self) -> Any: ...

    @contextmanager
    def connection(self) -> Iterator[Any]:
        with closing(self.connect()) as connection:
            yield connection

    def run(self, connection: Any, statement: str, *values: Any) -> Any:
        """Parameters are ?."""
        return connection.execute(statement.replace("?", self.mark), values)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """In a connection of its own: what is committed."""
        with self.connection() as connection:
            return list(connection.execute(statement).fetchall())

    def make(self, *statements: str) -> None:
        with self.connection() as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()


class Sqlite(Database):
    mark = "?"

    def __init__(self, path: Path, isolation: str | None = "DEFERRED") -> None:
        self.path, self.isolation = path, isolation

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=self.isolation)  # type: ignore[arg-type]

    @property
    def opens(self) -> str:
        """An expression that another process can open a connection by."""
        return f"__import__('sqlite3').connect({str(self.path)!r}, timeout=60)"


class Postgres(Database):
    mark = "%s"

    def __init__(self, url: str, schema: str) -> None:
        self.url, self.options = url, f"-c search_path={schema}"

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.url, options=self.options)

    @property
    def opens(self) -> str:
        return f"__import__('psycopg').connect({self.url!r}, options={self.options!r})"


@contextmanager
def own_schema(server: PostgresServer) -> Iterator[Postgres]:
    schema = f"own{uuid.uuid4().hex[:12]}"
    server.execute(f"create schema {schema}")
    try:
        yield Postgres(server.url, schema)
    finally:
        server.execute(f"drop schema {schema} cascade")


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield Sqlite(tmp_path / "own.db")
    else:
        with own_schema(request.getfixturevalue("postgres")) as made:
            yield made

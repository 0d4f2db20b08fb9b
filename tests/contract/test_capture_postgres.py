"""PostgreSQL's log passes the suite of every engine."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from contract.capture_databases import PostgresSchema, postgres_schema
from penstock.testing.contracts.capture import CaptureContract
from penstock.testing.servers.postgres import PostgresServer


class TestPostgres(CaptureContract):
    engine, connector = "postgres", "postgresql"

    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def database(self, place: Path) -> AbstractContextManager[PostgresSchema]:
        return postgres_schema(self.postgres)

"""PostgreSQL's log passes the suite of every engine."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from contract.capture_databases import PostgresSchema, postgres_schema
from penstock.capture.kind import kind_of
from penstock.testing.contracts.capture.contract import USERS, CaptureContract
from penstock.testing.contracts.capture.following import Following
from penstock.testing.servers.postgres import PostgresServer


class TestPostgres(CaptureContract):
    engine, connector = "postgres", "postgresql"

    @pytest.fixture(autouse=True)
    def server(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def database(self, place: Path) -> AbstractContextManager[PostgresSchema]:
        return postgres_schema(self.postgres)


def test_a_copy_goes_on_although_every_look_at_the_stream_finds_something(postgres: PostgresServer) -> None:
    with postgres_schema(postgres) as database:
        database.execute(USERS, "insert into users values (1, 'ann', 30)")
        following = Following.of("postgres", database, "users").begin()
        engine = kind_of("postgres").open(following.definition, following.storage)
        engine.start(None, None)
        copied = False
        for number in range(2, 60):
            database.execute(f"insert into users values ({number}, 'new', 1)")
            batch = None
            while batch is None:  # a look may come before the server has sent the row
                batch = engine.next(10.0)
            engine.written(batch.position)
            copied |= "snapshot" in batch.transactions.id[0].as_py()
        engine.close()
        following.end()
    assert copied

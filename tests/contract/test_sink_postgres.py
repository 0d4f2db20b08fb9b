"""A table of a real PostgreSQL as a sink: the suite, and what is its own: types, tables that are there, rows that it refuses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.postgres import PostgresDefinition
from penstock.sinks.stores.sink import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from penstock.testing.servers.postgres import PostgresServer


class _OfPostgres:
    """A schema of its own for each place."""

    points = POINTS

    @pytest.fixture(autouse=True)
    def _server(self, postgres: PostgresServer) -> Iterator[None]:
        self.server, self.made = postgres, list[str]()
        yield
        for schema in self.made:
            postgres.execute(f"drop schema if exists {schema} cascade")

    def place(self, directory: Path) -> str:
        self.made.append(f"s{abs(hash(directory))}")
        return self.made[-1]

    def make(self, place: str, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        definition = PostgresDefinition(self.server.url, f"{place}.results")
        return definition.build(SinkContext(spec, None, storage, Path(), fail))  # type: ignore[arg-type]

    def held(self, place: str) -> list[Row]:
        return [(i, text) for i, text in self.server.execute(f"select id, text from {place}.results")]


class TestPostgres(_OfPostgres, SinkContract):
    def rows(self, place: str) -> list[Row]:
        return self.held(place)


class TestPostgresWithChanges(_OfPostgres, ChangesContract):
    def holds(self, place: str) -> Held:
        return dict(self.held(place))

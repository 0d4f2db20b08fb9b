"""Keys of a real Valkey as a sink: the suite, with hashes and with JSON."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.sinks.port import SinkContext, SinkSpec
from penstock.sinks.stores.redis.rows import Value
from penstock.sinks.stores.redis.store import redis
from penstock.sinks.stores.sink import POINTS
from penstock.storage.port import Storage
from penstock.testing.contracts.sink import Row, SinkContract
from penstock.testing.contracts.sink_changes import ChangesContract, Held
from penstock.testing.servers.valkey import ValkeyServer
from redis_keys import found


class _OfValkey:
    """A prefix, and a marker, of its own for each place."""

    points = POINTS
    value: Value = "hash"

    @pytest.fixture(autouse=True)
    def _server(self, valkey: ValkeyServer) -> None:
        self.server = valkey

    def place(self, directory: Path) -> str:
        return f"p{abs(hash(directory))}"

    def make(self, place: str, spec: SinkSpec, storage: Storage, fail: Callable[[str], None]) -> Any:
        context = SinkContext(replace(spec, name=place), None, storage, Path(), fail)  # type: ignore[arg-type]
        return redis(self.server.url, place, value=self.value).build(context)

    def held(self, place: str) -> list[Row]:
        return [(int(row[b"id"]), row[b"text"].decode()) for row in found(self.server, place).values()]


class TestRedis(_OfValkey, SinkContract):
    def rows(self, place: str) -> list[Row]:
        return sorted(self.held(place))


class TestRedisWithChanges(_OfValkey, ChangesContract):
    def holds(self, place: str) -> Held:
        return dict(self.held(place))


class TestRedisWithChangesInJson(TestRedisWithChanges):
    value = "json"

    def held(self, place: str) -> list[Row]:
        rows = [orjson.loads(text) for text in found(self.server, place).values()]
        return [(row["id"], row["text"]) for row in rows]

"""Delivery: each sink takes every decided epoch whole, once, in order. Here are the stores and actions a flow can write to."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Loaded when first asked for: a flow that writes to none of them does not wait for them.
_NAMES = {
    "ParquetFiles": "penstock.sinks.stores.files.parquet.reading",
    "Refused": "penstock.sinks.actions.port",
    "call": "penstock.sinks.actions.call",
    "command": "penstock.sinks.actions.command",
    "delta": "penstock.sinks.stores.files.delta",
    "duckdb": "penstock.sinks.stores.sql.duckdb",
    "email": "penstock.sinks.actions.mail",
    "iceberg": "penstock.sinks.stores.files.iceberg",
    "opensearch": "penstock.sinks.stores.search.opensearch",
    "parquet": "penstock.sinks.stores.files.parquet.definition",
    "parquet_files": "penstock.sinks.stores.files.parquet.reading",
    "postgres": "penstock.sinks.stores.sql.postgres",
    "push": "penstock.sinks.actions.push",
    "read_parquet": "penstock.sinks.stores.files.parquet.reading",
    "redis": "penstock.sinks.stores.redis.store",
    "search": "penstock.sinks.stores.search.fts5",
    "sqlite": "penstock.sinks.stores.sql.sqlite",
    "tantivy": "penstock.sinks.stores.search.tantivy",
    "webhook": "penstock.sinks.actions.webhook",
}

if TYPE_CHECKING:
    from penstock.sinks.actions.call import call
    from penstock.sinks.actions.command import command
    from penstock.sinks.actions.mail import email
    from penstock.sinks.actions.port import Refused
    from penstock.sinks.actions.push import push
    from penstock.sinks.actions.webhook import webhook
    from penstock.sinks.stores.files.delta import delta
    from penstock.sinks.stores.files.iceberg import iceberg
    from penstock.sinks.stores.files.parquet.definition import parquet
    from penstock.sinks.stores.files.parquet.reading import ParquetFiles, parquet_files, read_parquet
    from penstock.sinks.stores.redis.store import redis
    from penstock.sinks.stores.search.fts5 import search
    from penstock.sinks.stores.search.opensearch import opensearch
    from penstock.sinks.stores.search.tantivy import tantivy
    from penstock.sinks.stores.sql.duckdb import duckdb
    from penstock.sinks.stores.sql.postgres import postgres
    from penstock.sinks.stores.sql.sqlite import sqlite

__all__ = [
    "ParquetFiles",
    "Refused",
    "call",
    "command",
    "delta",
    "duckdb",
    "email",
    "iceberg",
    "opensearch",
    "parquet",
    "parquet_files",
    "postgres",
    "push",
    "read_parquet",
    "redis",
    "search",
    "sqlite",
    "tantivy",
    "webhook",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_NAMES[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__

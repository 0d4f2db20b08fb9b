"""Delivery: each sink takes every decided epoch whole, once, in order. Here are the stores and actions a flow can write to."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Loaded when first asked for: a flow that writes to none of them does not wait for them.
_NAMES = {
    "ParquetFiles": "penstock.sinks.stores.parquet.reading",
    "Refused": "penstock.sinks.actions.port",
    "call": "penstock.sinks.actions.call",
    "command": "penstock.sinks.actions.command",
    "delta": "penstock.sinks.stores.delta",
    "duckdb": "penstock.sinks.stores.duckdb",
    "email": "penstock.sinks.actions.mail",
    "iceberg": "penstock.sinks.stores.iceberg",
    "opensearch": "penstock.sinks.stores.opensearch",
    "parquet": "penstock.sinks.stores.parquet.definition",
    "parquet_files": "penstock.sinks.stores.parquet.reading",
    "postgres": "penstock.sinks.stores.postgres",
    "push": "penstock.sinks.actions.push",
    "read_parquet": "penstock.sinks.stores.parquet.reading",
    "redis": "penstock.sinks.stores.redis",
    "search": "penstock.sinks.stores.search",
    "sqlite": "penstock.sinks.stores.sqlite",
    "tantivy": "penstock.sinks.stores.tantivy",
    "webhook": "penstock.sinks.actions.webhook",
}

if TYPE_CHECKING:
    from penstock.sinks.actions.call import call
    from penstock.sinks.actions.command import command
    from penstock.sinks.actions.mail import email
    from penstock.sinks.actions.port import Refused
    from penstock.sinks.actions.push import push
    from penstock.sinks.actions.webhook import webhook
    from penstock.sinks.stores.delta import delta
    from penstock.sinks.stores.duckdb import duckdb
    from penstock.sinks.stores.iceberg import iceberg
    from penstock.sinks.stores.opensearch import opensearch
    from penstock.sinks.stores.parquet.definition import parquet
    from penstock.sinks.stores.parquet.reading import ParquetFiles, parquet_files, read_parquet
    from penstock.sinks.stores.postgres import postgres
    from penstock.sinks.stores.redis import redis
    from penstock.sinks.stores.search import search
    from penstock.sinks.stores.sqlite import sqlite
    from penstock.sinks.stores.tantivy import tantivy

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

"""Delivery: each sink takes every decided epoch whole, once, in order. Here are the stores and actions a flow can write to."""

from collections.abc import Callable
from functools import wraps
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
    "mariadb": "penstock.sinks.stores.sql.mysql",
    "mysql": "penstock.sinks.stores.sql.mysql",
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
    "two_phase": "penstock.sinks.stores.two_phase.definition",
    "webhook": "penstock.sinks.actions.webhook",
}

_NO_SINKS = ("ParquetFiles", "Refused", "parquet_files", "read_parquet")

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
    from penstock.sinks.stores.sql.mysql import mariadb, mysql
    from penstock.sinks.stores.sql.postgres import postgres
    from penstock.sinks.stores.sql.sqlite import sqlite
    from penstock.sinks.stores.two_phase.definition import two_phase

__all__ = [
    "ParquetFiles",
    "Refused",
    "call",
    "command",
    "delta",
    "duckdb",
    "email",
    "iceberg",
    "mariadb",
    "mysql",
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
    "two_phase",
    "webhook",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_NAMES[name]), name)
    globals()[name] = found = _located(found) if name not in _NO_SINKS else found
    return found


def _located(define: Callable[..., Any]) -> Callable[..., Any]:
    """The same; what is wrong with its arguments is said with the line of the user's program that gave them."""
    from penstock.plan.origin import located, origin

    @wraps(define)
    def defined(*given: Any, **named: Any) -> Any:
        with located(origin()):
            return define(*given, **named)

    return defined


def __dir__() -> list[str]:
    return __all__

"""Delivery: each sink takes every decided epoch whole, once, in order. Here are the stores and actions a flow can write to."""

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

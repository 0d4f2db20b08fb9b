"""The stores that are files, and those of databases: how each is written and read in tests."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from penstock.log.memory import MemoryLog
from penstock.plan.outputs import SinkDefinition
from penstock.sinks import delta, duckdb, iceberg, mariadb, parquet, postgres, read_parquet
from penstock.sinks.port import Sink, SinkContext, SinkSpec, nothing
from penstock.storage.port import Storage
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.postgres import PostgresServer

_SERVER = "server"  # a file with the URL of the server


@dataclass(frozen=True)
class Kind:
    """A kind of store, in a directory of its own."""

    define: Callable[[Path], SinkDefinition]
    read: Callable[[Path], pa.Table]  # the rows that are there now

    def make(self, place: Path, spec: SinkSpec, storage: Storage, fail: Callable[[str], None] = nothing) -> Sink:
        return self.define(place).build(SinkContext(spec, MemoryLog(), storage, place, fail))


def _of_duckdb(place: Path) -> pa.Table:
    from duckdb import connect

    with connect(place / "warehouse.db") as connection:
        return connection.sql("SELECT * FROM results").to_arrow_table()


def _of_delta(place: Path) -> pa.Table:
    from deltalake import DeltaTable, QueryBuilder

    results = QueryBuilder().register("results", DeltaTable(place / "lake")).execute("SELECT * FROM results")
    return pa.table(results.read_all())


def catalog(place: Path) -> dict[str, str]:
    """Properties of a catalog in SQLite."""
    return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/lake"}


def _of_iceberg(place: Path) -> pa.Table:
    from pyiceberg.catalog import load_catalog

    with load_catalog("lake", **catalog(place)) as found:
        return found.load_table("shop.results").scan().to_arrow()


KINDS: Mapping[str, Kind] = {
    "duckdb": Kind(lambda place: duckdb(place / "warehouse.db", "results"), _of_duckdb),
    "parquet": Kind(lambda place: parquet(place / "lake"), lambda place: read_parquet(place / "lake")),
    "delta": Kind(lambda place: delta(place / "lake"), _of_delta),
    "iceberg": Kind(lambda place: iceberg("lake", "shop.results", properties=catalog(place)), _of_iceberg),
}


def at_server(place: Path, server: PostgresServer | MariaDbServer) -> Path:
    """A directory that stands for schemas of this server, each for a directory below it."""
    url = server.url if isinstance(server, PostgresServer) else f"{server.url('', 'root')}?ssl-mode=DISABLED"
    (place / _SERVER).write_text(url)
    return place


def _url(place: Path) -> str:
    return next((above / _SERVER).read_text() for above in (place, *place.parents) if (above / _SERVER).exists())


def table_of(place: Path) -> str:
    """The one of this place, in a schema of its own."""
    return f"s{sha256(str(place).encode()).hexdigest()[:16]}.results"


def _of_postgres(place: Path) -> pa.Table:
    from psycopg import connect

    with connect(_url(place)) as connection:
        return _table(connection.execute(f"SELECT id, text FROM {table_of(place)}").fetchall())


def _of_mariadb(place: Path) -> pa.Table:
    from pymysql import connect

    with closing(connect(host="127.0.0.1", port=urlsplit(_url(place)).port or 0, user="root", ssl_disabled=True)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT id, text FROM {table_of(place)}")
        return _table(list(cursor.fetchall()))


def _table(rows: list[tuple[int, str]]) -> pa.Table:
    return pa.table({"id": [i for i, _ in rows], "text": [text for _, text in rows]})


SERVED: Mapping[str, Kind] = {
    "postgres": Kind(lambda place: postgres(_url(place), table_of(place)), _of_postgres),
    "mariadb": Kind(lambda place: mariadb(_url(place), table_of(place)), _of_mariadb),
}
EVERY: Mapping[str, Kind] = {**KINDS, **SERVED}

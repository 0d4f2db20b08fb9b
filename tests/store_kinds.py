"""The stores that are files: how each is written and read in tests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.log.memory import MemoryLog
from penstock.plan.outputs import SinkDefinition
from penstock.sinks import delta, duckdb, iceberg, parquet, read_parquet
from penstock.sinks.port import Sink, SinkContext, SinkSpec, nothing
from penstock.storage.port import Storage


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

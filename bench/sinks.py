"""Epochs of a flow into stores, as upserts and as appends: through Penstock's sinks, and through the store's own loader.

Rows are delivered as the engine does it: from staged files, with a marker, durably. The loader gets the same rows, ready in Arrow,
and keeps no marker. An epoch without rows shows what a sink costs where nothing happens."""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from measuring import Meter, median
from report import Table, milliseconds, options, parsed, percent, publish, rate

from penstock import Schema
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.time import NEVER
from penstock.plan.outputs import SinkDefinition
from penstock.sinks import delta, duckdb, parquet, postgres, redis, sqlite
from penstock.sinks.port import Delivery, Marker, SinkContext, SinkSpec
from penstock.sinks.stores.texts import copy_lines
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.sink import ipc_file
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.servers.valkey import ValkeyServer

SCHEMA = Schema.of("id long not null, name string, amount double, at timestamp")
_EPOCH = 50_000  # rows
_GONE = 0.05  # share of them that are deletes
_START = 1_705_312_800_000_000

Load = Callable[[pa.Table, list[int]], None]  # rows to put in, ids to take out


@dataclass(frozen=True)
class Side:
    """One store: how a flow writes to it, and how its own loader does."""

    name: str
    sink: Callable[[Path], SinkDefinition]
    plain: Callable[[Path], contextlib.AbstractContextManager[Load]]
    appends: bool = False


def rows_of(epoch: int, count: int, appends: bool) -> pa.Table:
    """Half of the keys are new, half were there before."""
    first = epoch * count if appends else epoch * count // 2
    ids = np.random.default_rng(epoch).permutation(np.arange(first, first + count))
    columns = {
        "id": ids,
        "name": pa.array([f"name of {i % 1000}" for i in ids]),
        "amount": np.random.default_rng(epoch).random(count),
        "at": pa.array(_START + ids, pa.timestamp("us", tz="UTC")),
    }
    return pa.table(columns, schema=SCHEMA.arrow)


def parts(epoch: int, count: int, appends: bool) -> tuple[pa.Table, pa.Table]:
    """What an epoch puts in, and what it takes out."""
    rows = rows_of(epoch, count, appends)
    gone = 0 if appends else int(count * _GONE)
    return rows.slice(gone), rows.slice(0, gone)


def staged(storage: LocalStorage, epoch: int, count: int, appends: bool) -> Delivery:
    put, gone = parts(epoch, count, appends)
    table = pa.concat_tables([put, gone])
    n = table.num_rows
    table = table.append_column(TIME, pa.array(_START + np.arange(n))).append_column(WATERMARK, pa.array(np.full(n, NEVER)))
    table = table.append_column(POSITION, pa.array([b"%08d%08d" % (epoch, i) for i in range(n)], pa.binary()))
    if not appends:
        ops = np.repeat(np.array([Op.INSERT, Op.DELETE], np.int8), [put.num_rows, gone.num_rows])
        table = table.append_column(OP, pa.array(ops))
    storage.publish(f"{epoch}.arrow", ipc_file(table))
    return Delivery(Marker("life", 1, epoch), [f"{epoch}.arrow"], frontier=0)


def through_a_sink(side: Side, place: Path, epochs: int, count: int) -> tuple[list[float], list[float]]:
    """Seconds of each epoch with rows, and of each without."""
    storage = LocalStorage(str(place / "staged"))
    spec = SinkSpec("bench", "out", SCHEMA, () if side.appends else ("id",), updating=not side.appends)
    sink = side.sink(place).build(SinkContext(spec, None, storage, place))  # type: ignore[arg-type]
    sink.open("life", 1)
    given = [staged(storage, epoch, count, side.appends) for epoch in range(epochs)]
    busy = [_timed(lambda d=delivery: sink.deliver(d)) for delivery in given]
    idle = [_timed(lambda n=n: sink.deliver(Delivery(Marker("life", 1, epochs + n), [], frontier=0))) for n in range(20)]
    sink.close()
    return busy, idle


def through_its_loader(side: Side, place: Path, epochs: int, count: int) -> list[float]:
    with side.plain(place) as load:
        given = [parts(epoch, count, side.appends) for epoch in range(epochs)]
        return [_timed(lambda p=put, g=gone: load(p, g["id"].to_pylist())) for put, gone in given]


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# the stores' own loaders


def _postgres(url: str) -> Callable[[Path], contextlib.AbstractContextManager[Load]]:
    @contextlib.contextmanager
    def loader(place: Path) -> Iterator[Load]:
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute("drop table if exists plain")
            connection.execute("create table plain (id bigint primary key, name text, amount double precision, at timestamptz)")
            connection.execute("create temp table incoming (like plain) on commit delete rows")
            connection.commit()

            def load(put: pa.Table, gone: list[int]) -> None:
                with connection.cursor() as cursor, cursor.copy("copy incoming from stdin") as copy:
                    for lines in copy_lines(put):
                        copy.write(lines)
                connection.execute("delete from plain where id = any(%s)", [gone])
                connection.execute(
                    "merge into plain t using incoming i on t.id = i.id "
                    "when matched then update set name = i.name, amount = i.amount, at = i.at "
                    "when not matched then insert values (i.id, i.name, i.amount, i.at)"
                )
                connection.commit()

            yield load

    return loader


@contextlib.contextmanager
def _sqlite(place: Path) -> Iterator[Load]:
    import sqlite3

    with contextlib.closing(sqlite3.connect(place / "plain.db", isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table plain (id integer primary key, name, amount, at)")

        def load(put: pa.Table, gone: list[int]) -> None:
            columns = [put[name].cast(pa.string()) if name == "at" else put[name] for name in SCHEMA.names]
            lines = zip(*(column.to_pylist() for column in columns), strict=True)
            connection.execute("begin")
            connection.executemany("delete from plain where id = ?", [(i,) for i in gone])
            connection.executemany("insert or replace into plain values (?, ?, ?, ?)", lines)
            connection.execute("commit")

        yield load


def _redis(address: str) -> Callable[[Path], contextlib.AbstractContextManager[Load]]:
    @contextlib.contextmanager
    def loader(place: Path) -> Iterator[Load]:
        from redis import Redis

        host, _, port = address.partition(":")
        with Redis(host=host, port=int(port)) as client:

            def load(put: pa.Table, gone: list[int]) -> None:
                pipe = client.pipeline(transaction=True)
                for row in put.to_pylist():
                    pipe.hset(f"plain:{row['id']}", mapping={name: str(value) for name, value in row.items()})
                for i in gone:
                    pipe.delete(f"plain:{i}")
                pipe.execute()

            yield load

    return loader


@contextlib.contextmanager
def _duckdb(place: Path) -> Iterator[Load]:
    import duckdb as library

    with library.connect(str(place / "plain.duckdb")) as connection:
        connection.execute("create table plain (id bigint, name varchar, amount double, at timestamptz)")

        def load(put: pa.Table, gone: list[int]) -> None:
            leaving = pa.table({"id": pa.concat_arrays([put["id"].combine_chunks(), pa.array(gone, pa.int64())])})
            connection.register("leaving", leaving)
            connection.register("incoming", put)
            connection.execute("begin")
            connection.execute("delete from plain where id in (select id from leaving)")
            connection.execute("insert into plain select * from incoming")
            connection.execute("commit")

        yield load


@contextlib.contextmanager
def _parquet(place: Path) -> Iterator[Load]:
    import os

    import pyarrow.parquet as pq

    (place / "plain").mkdir()

    def load(put: pa.Table, gone: list[int]) -> None:
        path = place / "plain" / f"{time.perf_counter_ns()}.parquet"
        pq.write_table(put, path)
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    yield load


@contextlib.contextmanager
def _delta(place: Path) -> Iterator[Load]:
    from deltalake import write_deltalake

    yield lambda put, gone: write_deltalake(str(place / "plain"), put, mode="append")


def sides(database: PostgresServer, cache: ValkeyServer) -> list[Side]:
    return [
        Side("PostgreSQL, upserts", lambda place: postgres(database.url, "kept"), _postgres(database.url)),
        Side("SQLite, upserts", lambda place: sqlite(place / "kept.db", "kept"), _sqlite),
        Side("Valkey, hashes, appendfsync always", lambda place: redis(cache.url, "kept"), _redis(cache.address)),
        Side("DuckDB, upserts", lambda place: duckdb(place / "kept.duckdb", "kept"), _duckdb),
        Side("Parquet, appends", lambda place: parquet(place / "kept"), _parquet, appends=True),
        Side("Delta, appends", lambda place: delta(place / "kept"), _delta, appends=True),
    ]


def main() -> None:
    given = parsed(options(__doc__, 500_000, 20_000))
    count = min(_EPOCH, given.rows // 2)
    epochs = given.rows // count
    into = Table(f"Epochs of {count:,} rows", "store", "Penstock, rows/s", "its own loader", "ratio", "foreign")
    idle = Table("An epoch without rows", "store", "median")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        home = Path(name)
        with PostgresServer(home / "postgres", fsync="on") as database, ValkeyServer(home / "valkey") as cache:
            for number, side in enumerate(sides(database, cache)):
                place = home / str(number)
                place.mkdir()
                with Meter() as meter:
                    busy, quiet = through_a_sink(side, place, epochs, count)
                    plain = through_its_loader(side, place, epochs, count)
                mine, theirs = count / median(busy), count / median(plain)
                into.add(side.name, rate(mine), rate(theirs), f"**{mine / theirs:.2f}×**", percent(meter.foreign))
                idle.add(side.name, milliseconds(median(quiet)))
    publish("sinks", [into, idle], given.markdown)


if __name__ == "__main__":
    main()

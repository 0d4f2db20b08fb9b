"""Epochs of a flow into stores, as upserts and as appends: through Penstock's sinks, and through the store's own loader. Rows as
webhooks.

Rows are delivered as the engine does it: from staged files, with a marker, durably. The loader gets the same rows, ready in Arrow,
and keeps no marker. Both sides take turns, epoch by epoch. Epochs without rows show what a sink costs where nothing happens."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loaders
import numpy as np
import pyarrow as pa
from loaders import Loader
from measuring import Meter, median
from report import Table, milliseconds, options, parsed, percent, publish, rate

from penstock import Schema
from penstock.core.change import Op
from penstock.core.columns import OP, POSITION, TIME, WATERMARK
from penstock.core.time import NEVER
from penstock.log.intake.text import encode_json
from penstock.log.open import open_log
from penstock.plan.outputs import SinkDefinition
from penstock.sinks import delta, duckdb, iceberg, mariadb, opensearch, parquet, postgres, redis, search, sqlite, tantivy, webhook
from penstock.sinks.port import Delivery, Marker, SinkContext, SinkSpec
from penstock.storage.local import LocalStorage
from penstock.testing.contracts.sink import ipc_file
from penstock.testing.servers.mariadb import MariaDbServer
from penstock.testing.servers.opensearch import OpenSearchServer
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.servers.valkey import ValkeyServer

SCHEMA = Schema.of("id long not null, name string, amount double, at timestamp")
_EPOCH = 50_000  # rows
_GONE = 0.05  # share of them that are deletes
_DURABLE = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1", "local_infile": "1", "innodb_buffer_pool_size": "256M"}
_IDLE = 32  # epochs without rows
_START = 1_705_312_800_000_000
_HOOKS = 5_000  # rows that become webhooks
_AT_ONCE = 16  # of them under way, as webhooks have it


@dataclass(frozen=True)
class Side:
    """One store: how a flow writes to it, and how its own loader does. share: of the rows, where they take long."""

    name: str
    sink: Callable[[Path], SinkDefinition]
    plain: Loader
    appends: bool = False
    share: float = 1.0


@dataclass
class Taken:
    """Seconds of each epoch through the sink and through the loader, and of one without rows."""

    mine: list[float]
    theirs: list[float]
    idle: float


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


def staged(storage: LocalStorage, epoch: int, put: pa.Table, gone: pa.Table, appends: bool) -> Delivery:
    table = pa.concat_tables([put, gone])
    n = table.num_rows
    table = table.append_column(TIME, pa.array(_START + np.arange(n))).append_column(WATERMARK, pa.array(np.full(n, NEVER)))
    table = table.append_column(POSITION, pa.array([b"%08d%08d" % (epoch, i) for i in range(n)], pa.binary()))
    if not appends:
        ops = np.repeat(np.array([Op.INSERT, Op.DELETE], np.int8), [put.num_rows, gone.num_rows])
        table = table.append_column(OP, pa.array(ops))
    storage.publish(f"{epoch}.arrow", ipc_file(table))
    return Delivery(Marker("life", 1, epoch), [f"{epoch}.arrow"], frontier=0)


def both(side: Side, place: Path, epochs: int, count: int) -> Taken:
    storage = LocalStorage(str(place / "staged"))
    spec = SinkSpec("bench", place.name, SCHEMA, () if side.appends else ("id",), updating=not side.appends)
    sink, mine, theirs = side.sink(place).build(SinkContext(spec, open_log(place / "home"), storage, place)), [], []
    sink.open("life", 1)
    with side.plain(place) as load:
        for epoch in range(epochs):
            put, gone = parts(epoch, count, side.appends)
            given, leaving = staged(storage, epoch, put, gone, side.appends), gone["id"].to_pylist()
            mine.append(_timed(lambda given=given: sink.deliver(given)))
            theirs.append(_timed(lambda put=put, leaving=leaving: load(put, leaving)))
    nothing = [Delivery(Marker("life", 1, epochs + n), [], frontier=0) for n in range(_IDLE)]
    idle = _timed(lambda: [sink.deliver(each) for each in nothing])
    sink.close()
    return Taken(mine, theirs, idle / _IDLE)


def hooks(place: Path, count: int, repeat: int) -> Iterator[tuple[float, float]]:
    """Seconds that so many webhooks took, through the outbox and posted by themselves."""
    with _receiver() as url, loaders.posts(url, _AT_ONCE) as load:
        for n in range(repeat):
            storage, spec = LocalStorage(str(place / f"staged{n}")), SinkSpec("bench", "out", SCHEMA, ())
            definition = webhook(url, hosts=["127.0.0.1"], at_once=_AT_ONCE, closing="10 minutes")
            sink = definition.build(SinkContext(spec, open_log(place / f"home{n}"), storage, place))
            sink.open("life", 1)
            put, gone = parts(0, count, appends=True)
            given, bodies = staged(storage, 0, put, gone, appends=True), encode_json(put)
            # closing waits until everything is sent
            yield _timed(lambda sink=sink, given=given: (sink.deliver(given), sink.close())), _timed(lambda b=bodies: load(b))


@contextlib.contextmanager
def _receiver() -> Iterator[str]:
    words = [sys.executable, str(Path(__file__).parent / "receiver.py")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        process.terminate()


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _catalog(place: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/lake"}


def sides(database: PostgresServer, other: MariaDbServer, cache: ValkeyServer, index: OpenSearchServer) -> list[Side]:
    plain_cache = loaders.redis(cache.address)
    return [
        Side("PostgreSQL, upserts", lambda place: postgres(database.url, "kept"), loaders.postgres(database.url)),
        Side("MariaDB, upserts", lambda place: mariadb(other.url("bench", "root"), "kept"), loaders.mariadb(other.port)),
        Side("SQLite, upserts", lambda place: sqlite(place / "kept.db", "kept"), loaders.sqlite),
        Side("Valkey, hashes, appendfsync always", lambda place: redis(cache.url, "kept"), plain_cache),
        Side("Valkey, JSON, appendfsync always", lambda place: redis(cache.url, "json", value="json"), plain_cache),
        Side("DuckDB, upserts", lambda place: duckdb(place / "kept.duckdb", "kept"), loaders.duckdb),
        Side("Parquet, appends", lambda place: parquet(place / "kept"), loaders.parquet, appends=True),
        Side("Delta, appends", lambda place: delta(place / "kept"), loaders.delta, appends=True),
        Side(
            *("Iceberg, appends", lambda place: iceberg("kept", "bench.kept", properties=_catalog(place)), loaders.iceberg),
            appends=True,
        ),
        Side("FTS5, upserts", lambda place: search(place / "search.db", text="name"), loaders.fts5, share=0.2),
        Side("tantivy, upserts", lambda place: tantivy(place / "index", text="name"), loaders.tantivy, share=0.2),
        Side("OpenSearch, upserts", lambda place: opensearch(index.url, "kept"), loaders.opensearch(index.url), share=0.2),
    ]


def main() -> None:
    given = parsed(options(__doc__, 500_000, 20_000))
    count = min(_EPOCH, given.rows // 2)
    epochs = given.rows // count
    into = Table(f"Epochs of {count:,} rows", "store", "Penstock, rows/s", "its own loader", "ratio", "foreign")
    idle = Table("An epoch without rows", "store", "mean")
    sent = Table(
        "Rows as webhooks to a receiver on this machine", "", "Penstock, rows/s", "posted by themselves", "ratio", "foreign"
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as servers:
        home = Path(name)
        database = servers.enter_context(PostgresServer(home / "postgres", fsync="on"))
        other = servers.enter_context(MariaDbServer(home / "mariadb", **_DURABLE))
        other.execute("create database bench")
        cache = servers.enter_context(ValkeyServer(home / "valkey"))
        index = servers.enter_context(OpenSearchServer(home / "opensearch"))
        for number, side in enumerate(sides(database, other, cache, index)):
            place, rows = home / str(number), int(count * side.share)
            place.mkdir()
            with Meter() as meter:
                taken = both(side, place, epochs, rows)
            mine, theirs = rows / median(taken.mine), rows / median(taken.theirs)
            into.add(side.name, rate(mine), rate(theirs), f"**{mine / theirs:.2f}×**", percent(meter.foreign))
            idle.add(side.name, milliseconds(taken.idle))
        rows = min(_HOOKS, given.rows)
        (home / "hooks").mkdir()
        with Meter() as meter:
            mine, theirs = (rows / median(times) for times in zip(*hooks(home / "hooks", rows, given.repeat), strict=True))
        sent.add("webhook", rate(mine), rate(theirs), f"**{mine / theirs:.2f}×**", percent(meter.foreign))
    publish("sinks", [into, idle, sent], given.markdown)


if __name__ == "__main__":
    main()

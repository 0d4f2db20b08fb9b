"""What the stores bring along to load rows, each used as its own documentation says; without markers, and durably."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.sinks.stores.texts import copy_lines

Load = Callable[[pa.Table, list[int]], None]  # rows to put in, ids to take out
Loader = Callable[[Path], contextlib.AbstractContextManager[Load]]


def postgres(url: str) -> Loader:
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


def mariadb(port: int) -> Loader:
    @contextlib.contextmanager
    def loader(place: Path) -> Iterator[Load]:
        import pymysql

        how: Any = {"host": "127.0.0.1", "port": port, "user": "root", "database": "bench", "local_infile": True}
        with contextlib.closing(pymysql.connect(**how)) as connection, connection.cursor() as cursor:
            columns = "id bigint primary key, name longtext, amount double, at datetime(6)"
            cursor.execute(f"create or replace table plain ({columns}) engine = InnoDB")
            cursor.execute("create temporary table incoming as select * from plain where false")

            def load(put: pa.Table, gone: list[int]) -> None:
                zoneless = put.set_column(3, "at", put["at"].cast(pa.timestamp("us")).cast(pa.string()))
                (place / "incoming.tsv").write_bytes(b"".join(copy_lines(zoneless)))
                cursor.execute(f"load data local infile '{place}/incoming.tsv' into table incoming")
                cursor.execute(f"delete from plain where id in ({', '.join(map(str, gone))})")
                sets = ", ".join(f"{name} = values({name})" for name in put.column_names[1:])
                cursor.execute(f"insert into plain select * from incoming on duplicate key update {sets}")
                cursor.execute("delete from incoming")
                connection.commit()

            yield load

    return loader


@contextlib.contextmanager
def sqlite(place: Path) -> Iterator[Load]:
    import sqlite3

    with contextlib.closing(sqlite3.connect(place / "plain.db", isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table plain (id integer primary key, name, amount, at)")

        def load(put: pa.Table, gone: list[int]) -> None:
            columns = [put[name].cast(pa.string()) if name == "at" else put[name] for name in put.column_names]
            lines = zip(*(column.to_pylist() for column in columns), strict=True)
            connection.execute("begin")
            connection.executemany("delete from plain where id = ?", [(i,) for i in gone])
            connection.executemany("insert or replace into plain values (?, ?, ?, ?)", lines)
            connection.execute("commit")

        yield load


def redis(address: str) -> Loader:
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
def duckdb(place: Path) -> Iterator[Load]:
    import duckdb as library

    with library.connect(str(place / "plain.duckdb")) as connection:
        connection.execute('create table plain (id bigint, name varchar, amount double, "at" timestamptz)')

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
def parquet(place: Path) -> Iterator[Load]:
    import pyarrow.parquet as pq

    (place / "plain").mkdir()

    def load(put: pa.Table, gone: list[int]) -> None:
        path = place / "plain" / f"{time.perf_counter_ns()}.parquet"
        pq.write_table(put, path)
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    yield load


@contextlib.contextmanager
def delta(place: Path) -> Iterator[Load]:
    from deltalake import write_deltalake

    yield lambda put, gone: write_deltalake(str(place / "plain"), put, mode="append")


@contextlib.contextmanager
def iceberg(place: Path) -> Iterator[Load]:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("plain", type="sql", uri=f"sqlite:///{place}/plain.db", warehouse=f"file://{place}/plain")
    catalog.create_namespace("bench")
    tables: list[Any] = []

    def load(put: pa.Table, gone: list[int]) -> None:
        if not tables:
            tables.append(catalog.create_table("bench.plain", schema=put.schema))
        tables[0].append(put)

    yield load
    catalog.close()


@contextlib.contextmanager
def fts5(place: Path) -> Iterator[Load]:
    import sqlite3

    with contextlib.closing(sqlite3.connect(place / "plain-search.db", isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create virtual table plain using fts5(name, amount unindexed, at unindexed)")

        def load(put: pa.Table, gone: list[int]) -> None:
            ids = put["id"].to_pylist()
            lines = zip(
                ids, put["name"].to_pylist(), put["amount"].to_pylist(), put["at"].cast(pa.string()).to_pylist(), strict=True
            )
            connection.execute("begin")
            connection.executemany("delete from plain where rowid = ?", [(i,) for i in [*gone, *ids]])
            connection.executemany("insert into plain (rowid, name, amount, at) values (?, ?, ?, ?)", lines)
            connection.execute("commit")

        yield load


@contextlib.contextmanager
def tantivy(place: Path) -> Iterator[Load]:
    import tantivy as library

    schema = library.SchemaBuilder()
    schema.add_integer_field("id", stored=True, indexed=True)
    schema.add_text_field("name", stored=True)
    schema.add_float_field("amount", stored=True)
    schema.add_text_field("at", stored=True, tokenizer_name="raw")
    (place / "plain").mkdir()
    index = library.Index(schema.build(), path=str(place / "plain"))

    def load(put: pa.Table, gone: list[int]) -> None:
        writer = index.writer(64 << 20, 1)
        rows = put.set_column(put.column_names.index("at"), "at", put["at"].cast(pa.string())).to_pylist()
        for i in [*gone, *(row["id"] for row in rows)]:
            writer.delete_documents_by_term("id", i)
        for row in rows:
            writer.add_document(library.Document(**row))
        writer.commit()
        writer.wait_merging_threads()

    yield load


def opensearch(url: str) -> Loader:
    @contextlib.contextmanager
    def loader(place: Path) -> Iterator[Load]:
        import orjson
        import urllib3

        with urllib3.PoolManager() as http:

            def load(put: pa.Table, gone: list[int]) -> None:
                lines = [orjson.dumps({"delete": {"_id": str(i)}}) for i in gone]
                for row in put.to_pylist():
                    lines += [orjson.dumps({"index": {"_id": str(row["id"])}}), orjson.dumps(row)]
                body = b"\n".join([*lines, b""])
                answer = http.request("POST", f"{url}/plain/_bulk", body=body, headers={"Content-Type": "application/x-ndjson"})
                assert answer.status == 200, answer.data[:500]

            yield load

    return loader


@contextlib.contextmanager
def posts(url: str, at_once: int) -> Iterator[Callable[[list[bytes]], None]]:
    """Bodies posted to a URL, so many at a time."""
    import urllib3

    with ThreadPoolExecutor(at_once) as threads, urllib3.PoolManager(maxsize=at_once, retries=False) as http:

        def post(body: bytes) -> int:
            return http.request("POST", url, body=body, headers={"Content-Type": "application/json"}).status

        def load(bodies: list[bytes]) -> None:
            assert set(threads.map(post, bodies)) == {200}

        yield load

"""The stores whose writers are killed: how each is written and read. Of a server it is the URL that says where it is."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from penstock.plan.outputs import SinkDefinition
from penstock.sinks import mariadb, opensearch, postgres, redis, sqlite
from penstock.sinks.port import Sink, SinkContext, SinkSpec, nothing
from penstock.storage.port import Storage
from store_kinds import KINDS

Rows = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class Killed:
    """define and read: get the place and the URL. server: the fixture that has it."""

    define: Callable[[Path, str], SinkDefinition]
    read: Callable[[Path, str], Rows]
    server: str | None = None

    def make(self, place: Path, url: str, spec: SinkSpec, storage: Storage, fail: Callable[[str], None] = nothing) -> Sink:
        context = SinkContext(replace(spec, name=name_of(place)), None, storage, place, fail)  # type: ignore[arg-type]
        return self.define(place, url).build(context)


def name_of(place: Path) -> str:
    """What its table, index or prefix is called on a server that others use too."""
    return "k" + sha256(str(place).encode()).hexdigest()[:12]


def _of_sqlite(place: Path, url: str) -> Rows:
    with closing(sqlite3.connect(place / "shop.db")) as connection:
        yield from connection.execute("select id, text from results").fetchall()


def _of_postgres(place: Path, url: str) -> Rows:
    import psycopg

    with psycopg.connect(url) as connection:
        yield from connection.execute(f"select id, text from {name_of(place)}").fetchall()  # type: ignore[arg-type]


def _of_mariadb(place: Path, url: str) -> Rows:
    from pymysql import connect

    with closing(connect(host="127.0.0.1", port=urlsplit(url).port or 0, user="root", ssl_disabled=True)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"select id, text from {name_of(place)}.results")
        yield from cursor.fetchall()


def _of_redis(place: Path, url: str) -> Rows:
    from redis import Redis

    with Redis.from_url(url) as client:
        for key in client.scan_iter(f"{name_of(place)}:*", count=10_000):
            row = client.hgetall(key)
            yield int(row[b"id"]), row[b"text"].decode()


def _of_opensearch(place: Path, url: str) -> Rows:
    import urllib3

    with urllib3.PoolManager() as http:
        http.request("POST", f"{url}/{name_of(place)}/_refresh")
        found = http.request("GET", f"{url}/{name_of(place)}/_search?size=10000").json()
    for hit in found["hits"]["hits"]:
        yield hit["_source"]["id"], hit["_source"]["text"]


def _in_files(kind: str) -> Killed:
    return Killed(
        lambda place, url: KINDS[kind].define(place),
        lambda place, url: ((row["id"], row["text"]) for row in KINDS[kind].read(place).to_pylist()),
    )


KILLED: Mapping[str, Killed] = {
    **{kind: _in_files(kind) for kind in KINDS},
    "sqlite": Killed(lambda place, url: sqlite(place / "shop.db", "results"), _of_sqlite),
    "postgres": Killed(lambda place, url: postgres(url, name_of(place)), _of_postgres, "postgres"),
    "mariadb": Killed(lambda place, url: mariadb(url, f"{name_of(place)}.results"), _of_mariadb, "mariadb"),
    "redis": Killed(lambda place, url: redis(url, name_of(place)), _of_redis, "valkey"),
    "opensearch": Killed(lambda place, url: opensearch(url, name_of(place)), _of_opensearch, "opensearch"),
}

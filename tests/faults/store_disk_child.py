"""A store on a small disk of its own (argv[2]), which runs full while epochs are written, and is given room again.

python store_disk_child.py KIND PLACE"""

import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from faults.full_disk_child import fill_up
from faults.killed_stores import KILLED, Killed, Rows
from penstock.errors import SinkUnavailable
from penstock.sinks import search, tantivy
from penstock.storage.memory import MemoryStorage
from penstock.testing.contracts.sink import SPEC, Row, delivery, staged
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.servers.processes import Server
from penstock.testing.servers.valkey import ValkeyServer
from penstock.views.search import SearchIndex


def _of_fts5(place: Path, url: str) -> Rows:
    with closing(sqlite3.connect(place / "index.db")) as connection:
        yield from connection.execute("select id, text from rows").fetchall()


def _of_tantivy(place: Path, url: str) -> Rows:
    with SearchIndex(place / "index") as index:
        yield from ((row["id"], row["text"]) for row in index.find("every", limit=100_000).to_pylist())


STORES = {
    **KILLED,
    "fts5": Killed(lambda place, url: search(place / "index.db"), _of_fts5),
    "tantivy": Killed(lambda place, url: tantivy(place / "index"), _of_tantivy),
}
SERVERS: dict[str, Callable[[Path], Any]] = {
    "postgres": lambda place: PostgresServer(place, fsync="on", max_wal_size="64MB"),
    "redis": ValkeyServer,
}
ROOMS = (0, 20_000, 150_000, 400_000)  # bytes that are left on the disk, one after the other
KINDS = [kind for kind, store in STORES.items() if kind in SERVERS or store.server is None]


def rows_of(epoch: int, size: int) -> list[Row]:
    """So many bytes that cannot be made much smaller."""
    chance = random.Random(epoch)
    return [(1_000 * epoch + n, f"every {chance.randbytes(size // 400).hex()}") for n in range(200)]


def main(kind: str, place: Path) -> None:
    server: Server | None = SERVERS[kind](place / "server") if kind in SERVERS else None
    if server:
        (place / "server").mkdir()
        server.start()
    url, size = str(getattr(server, "url", "")), 10_000_000 if kind == "postgres" else 600_000
    epochs = {0: rows_of(0, 1_000), **{n: rows_of(n, size) for n in range(1, len(ROOMS) + 1)}}
    storage, store, ballast, refused = MemoryStorage(), STORES[kind], place / "ballast", 0
    for epoch, rows in epochs.items():
        storage.publish(f"{epoch}/0.arrow", staged(rows[::2]))
        storage.publish(f"{epoch}/1.arrow", staged(rows[1::2]))
    sink = store.make(place, url, SPEC, storage)
    sink.open("life", 1)
    sink.deliver(delivery(0))
    for epoch, room in enumerate(ROOMS, 1):
        fill_up(ballast)
        with ballast.open("r+b") as file:
            file.truncate(max(ballast.stat().st_size - room, 0))
        try:
            sink.deliver(delivery(epoch))
        except SinkUnavailable as full:
            print(full, flush=True)
            refused += 1
        ballast.unlink()
        for each in range(_opened(sink, server) + 1, epoch + 1):
            sink.deliver(delivery(each))
    sink.close()
    assert refused, "the disk was never full"
    assert sorted(store.read(place, url)) == sorted(row for rows in epochs.values() for row in rows)
    if server:
        server.stop()
    print("whole")


def _opened(sink: Any, server: Server | None) -> int:
    """A server may have ended, or be about to."""
    while True:
        if server and server.process and server.process.poll() is not None:
            server.start()
        try:
            return int(sink.open("life", 1))
        except SinkUnavailable:
            continue


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

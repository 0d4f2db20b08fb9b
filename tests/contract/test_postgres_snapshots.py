"""The rule of visibility on a real PostgreSQL: chunks and stream together are the table, also where a change is streamed before it
is visible."""

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from capture_reference import Change, changes_in
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.copy.snapshots import Chunk, ChunkMerge, Settled, Snapshot, touched, visible
from penstock.capture.postgres.decode.batches import Batcher
from penstock.capture.postgres.decode.changes import Batch
from penstock.capture.postgres.decode.pgoutput import Decoder
from penstock.capture.postgres.lsn import lsn_of
from penstock.capture.postgres.slots import create_publication, create_slot
from penstock.capture.postgres.stream.replication import Replication
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until

PATIENCE = 60.0


@pytest.fixture
def server(tmp_path: Path, postgres: PostgresServer) -> Iterator[PostgresServer]:
    """One of its own, with a table that is followed; there is one, as there is another."""
    with PostgresServer(tmp_path) as made:
        made.execute("create table t (id int primary key, v text)")
        with connect(made.url) as connection:
            create_publication(connection, "p", [("public", "t")])
            create_slot(connection, "s")
        yield made


def chunk(connection: Any, after: int, size: int) -> Chunk:
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read read only")
        ((snapshot,),) = connection.execute("select pg_current_snapshot()::text")
        found = connection.execute("select id::text, v from t where id > %s order by id limit %s", (after, size)).fetchall()
    ((high,),) = connection.execute("select pg_current_wal_insert_lsn()::text")
    rows = pa.table({"id": pa.array([row[0] for row in found], pa.utf8()), "v": pa.array([row[1] for row in found], pa.utf8())})
    return Chunk(rows, rows["id"].combine_chunks(), Snapshot.parse(snapshot), lsn_of(high))


class Follower:
    """Chunks and changes of the table, merged into a log."""

    def __init__(self, server: PostgresServer) -> None:
        self.stream = Replication(server.url, "s", ["p"])
        self.batcher, self.decoder, self.merge = Batcher(), Decoder(), ChunkMerge()
        self.log: list[tuple[str, str | None]] = []
        self.streamed: list[Change] = []
        self.given: Settled | None = None

    def go_on(self) -> None:
        self.batcher.add_all(self.stream.next(0.05))
        passed = self.stream.passed
        self._take(self.decoder.decode(self.batcher.take()))
        settled = self.merge.settled(passed) if not self.batcher.held else None
        if settled:
            self.log += [(row["id"], row["v"]) for row in settled.rows.to_pylist()]
            self.given = settled

    def _take(self, batch: Batch) -> None:
        for table in batch.tables:
            self.merge.changed(*touched(table, [0]))
            for change in changes_in(table):
                self.streamed.append(change)
                self.log += [(change.before[0], None)] if change.before else []
                self.log += [change.after] if change.after else []  # type: ignore[list-item]

    def fold(self) -> dict[str, str | None]:
        rows = dict(self.log)
        return {key: value for key, value in rows.items() if value is not None}


def test_a_change_that_is_streamed_before_it_is_visible_keeps_its_row_out_of_the_chunk(server: PostgresServer) -> None:
    server.execute("insert into t values (1, 'stays'), (7, 'goes')")
    server.execute("alter system set synchronous_standby_names = 'ghost'")
    server.execute("select pg_reload_conf()")
    assert until(lambda: server.execute("show synchronous_standby_names") == [("ghost",)], PATIENCE)
    follower = Follower(server)
    waiting = threading.Thread(target=server.execute, args=("delete from t where id = 7",))
    waiting.start()
    assert until(lambda: follower.go_on() or any(each.op == "d" for each in follower.streamed), PATIENCE)
    xid = follower.streamed[-1].xid
    with connect(server.url) as connection:
        read = chunk(connection, 0, 10)
        assert read.rows["id"].to_pylist() == ["1", "7"]  # the deleted row is still to be seen
        assert not visible(xid, read.snapshot)
        follower.merge.open(read)
        assert until(lambda: follower.go_on() or follower.given is not None, PATIENCE)
        assert follower.given is not None
        assert (follower.given.rows["id"].to_pylist(), follower.given.left_out["id"].to_pylist()) == (["1"], ["7"])
        server.execute("alter system reset synchronous_standby_names")
        server.execute("select pg_reload_conf()")
        waiting.join(PATIENCE)
        assert visible(xid, chunk(connection, 0, 1).snapshot)
        assert follower.fold() == dict(connection.execute("select id::text, v from t"))
    follower.stream.close()


def statement(random: Random, key: int) -> str:
    value = f"w{random.random()}"
    return random.choice(
        [
            f"update t set v = '{value}' where id = {key}",
            f"delete from t where id = {key}",
            f"insert into t values ({key}, '{value}') on conflict (id) do update set v = excluded.v",
            f"update t set id = {random.randrange(1000)} where id = {key}",
        ]
    )


def write(url: str, seed: int, stop: threading.Event) -> None:
    """Inserts, updates, deletes, changes of keys, several of them in a transaction, some rolled back."""
    random = Random(seed)
    with psycopg.connect(url, autocommit=True) as c:
        while not stop.is_set():
            try:
                with c.transaction(force_rollback=random.random() < 0.2):
                    for key in random.sample(range(300), random.choice([1, 1, 5])):
                        c.execute(statement(random, key))
            except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
                pass


def test_chunks_read_while_three_sessions_write_are_together_with_the_stream_the_table(server: PostgresServer) -> None:
    server.execute("insert into t select i, 'first' from generate_series(0, 299) i")
    follower, stop, reached = Follower(server), threading.Event(), -1
    writers = [threading.Thread(target=write, args=(server.url, seed, stop)) for seed in range(3)]
    for writer in writers:
        writer.start()
    try:
        with connect(server.url) as connection:
            while reached < 1000:
                read = chunk(connection, reached, 20)
                follower.merge.open(read)
                follower.given = None
                assert until(lambda: follower.go_on() or follower.given is not None, PATIENCE)
                reached = max(map(int, read.rows["id"].to_pylist()), default=1000)
    finally:
        stop.set()
        for writer in writers:
            writer.join(PATIENCE)
    ((end,),) = server.execute("select pg_current_wal_lsn()::text")
    server.execute("select pg_logical_emit_message(false, 'end', 'x')")
    assert until(lambda: follower.go_on() or follower.stream.passed > lsn_of(end), PATIENCE)
    assert follower.fold() == dict(server.execute("select id::text, v from t"))
    positions = [(each.commit_lsn, each.index) for each in follower.streamed]
    assert np.all(np.diff(np.array(positions, object)[:, 0].astype(np.int64)) >= 0)
    assert len(set(positions)) == len(positions)
    follower.stream.close()

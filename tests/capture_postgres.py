"""PostgreSQL followed into a log in memory: tables that a test makes, their topics, and starts one behind the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Protocol, Self

import orjson

from penstock.capture.naming import TopicNames
from penstock.capture.port import Batch, Status, Table
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.engine import PostgresEngine, Settings, Source
from penstock.capture.postgres.lsn import lsn_of
from penstock.capture.postgres.position import WalPosition
from penstock.capture.postgres.slots import create_publication, create_slot, describe_slot
from penstock.capture.writing.envelopes import Envelope
from penstock.capture.writing.writer import Writer, nothing
from penstock.log.memory import MemoryLog
from penstock.log.port import Log
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage
from penstock.testing.contracts.capture.records import Record, records_of
from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.waiting import until

PATIENCE = 60.0
NUMBERS = count()
QUICK = Settings(looking=0.05, idle=0.05, heartbeat=0.05)


class Followed:
    """The tables of a schema of its own, followed as capture `shop`. ddl: what makes the tables; `search_path` is the schema."""

    def __init__(self, server: PostgresServer, ddl: str, tables: Sequence[str], flat: bool = False, partitions: int = 1) -> None:
        self.server, self.schema = server, f"s{next(NUMBERS)}"
        self.names = TopicNames("shop")
        self.flat, self.partitions = flat, partitions
        self.log: Log = MemoryLog()
        self.storage: Storage = MemoryStorage()
        self.settings = QUICK
        self.fail: Callable[[str], None] = nothing
        self.engine: PostgresEngine | None = None
        self.batches: list[Batch] = []
        server.execute(f"create schema {self.schema}")
        self.sql(ddl)
        with connect(server.url) as connection:
            create_publication(connection, self.schema, [self.table(name) for name in tables])
            create_slot(connection, self.schema)

    def table(self, name: str) -> Table:
        return self.schema, name

    def sql(self, statements: str) -> list[tuple[Any, ...]]:
        """Executes them, each a transaction of its own unless it says otherwise."""
        return self.server.execute(f"set search_path to {self.schema}, public; {statements}")

    def chunks_of(self, rows: int) -> None:
        """Tables are copied in chunks of so many rows."""
        self.settings = replace(self.settings, chunk_rows=rows)

    def start(self, url: str | None = None) -> Self:
        """A new start, as after a kill: nothing but the log and the storage is left of the one before."""
        if self.engine:
            self.engine.close()
        engine = self.engine = PostgresEngine(Source(url or self.server.url, self.schema, self.schema), self.storage, self.settings)
        self.writer = Writer(
            self.log, self.names, Envelope("shop", engine.connector, "postgres", self.flat), self.partitions, self.fail
        )
        found = self.writer.open()
        engine.start(found.state.position, found.unfinished)
        return self

    def go_on(self) -> Batch | None:
        """Writes the next batch, if there is one."""
        assert self.engine
        batch = self.engine.next(0.02)
        if batch:
            self.batches.append(batch)
            position = self.writer.write(batch).position
            assert position is not None
            self.engine.written(position)
        return batch

    def catch_up(self) -> Self:
        """Until the log has everything that is in the database now, and the server knows it. Starts, if nothing runs."""
        if self.engine is None:
            self.start()
        ((end,),) = self.server.execute("select pg_current_wal_insert_lsn()::text")
        self.server.execute("select pg_logical_emit_message(false, 'test', 'x')")
        done = lambda: self.go_on() is None and self.status.caught_up and self.confirmed >= lsn_of(end)  # noqa: E731
        assert until(done, PATIENCE), self.status
        return self

    @property
    def confirmed(self) -> int:
        ((lsn,),) = self.server.execute(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", self.schema
        )
        return lsn_of(lsn)

    @property
    def position(self) -> WalPosition:
        """What was written."""
        return WalPosition.of(self.writer.state.position or {})

    @property
    def status(self) -> Status:
        assert self.engine
        return self.engine.status()

    def records(self, table: str) -> list[Record]:
        return records_of(self.log, self.names.topic(self.table(table)))

    def changes(self, table: str) -> list[tuple[str, Any]]:
        """The op of each change with the row behind it, or, of a delete, its key."""
        told = [record for record in self.records(table) if record.value is not None]
        return [(each.value["op"], each.value["after"] if each.value["op"] != "d" else orjson.loads(each.key)) for each in told]

    def rows(self, table: str) -> list[Mapping[str, Any]]:
        """The topic folded: the last row of each key that is there."""
        found: dict[str, Mapping[str, Any]] = {}
        for record in self.records(table):
            row = record.value if self.flat or record.value is None else record.value["after"]
            if row is None:
                found.pop(record.key, None)
            else:
                found[record.key] = row
        return list(found.values())

    def facts(self, table: str) -> Mapping[str, Any]:
        return self.writer.state.tables[self.names.topic(self.table(table))]

    def close(self) -> None:
        """Ends it, and the slot, which would hold back the server's log."""
        if self.engine:
            self.engine.close()
        with connect(self.server.url) as connection:

            def dropped() -> bool:
                try:
                    if describe_slot(connection, self.schema):
                        connection.execute("select pg_drop_replication_slot(%s)", (self.schema,))
                except Exception:  # still read
                    return False
                return True

            assert until(dropped, PATIENCE)
            connection.execute(f"drop publication if exists {self.schema}".encode())
            connection.execute(f"drop schema {self.schema} cascade".encode())


class Follow(Protocol):
    """Makes tables and follows them."""

    def __call__(self, ddl: str, *tables: str, flat: bool = False, partitions: int = 1) -> Followed: ...

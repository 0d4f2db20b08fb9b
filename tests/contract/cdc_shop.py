"""A schema of a real PostgreSQL for `penstock cdc`: its tables, a home, and a capture of its own."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from penstock.capture.registry import Captures
from penstock.log.open import open_log
from penstock.testing.servers.fixtures import missing
from penstock.testing.servers.jars import NotToBeHad
from penstock.testing.servers.postgres import PostgresServer
from unit.cli.calling import Answer, Call, calls_of
from waiting import until

PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
NAMES = (uuid.uuid4().hex[:8] for _ in count())  # several files of tests share a server


class Shop:
    """A schema of the server with two tables, a home, and a capture named after the schema; all of it is its own."""

    def __init__(self, server: PostgresServer, home: Path) -> None:
        self.server, self.home, self.name = server, home, f"shop{next(NAMES)}"
        self.slot = f"penstock_{self.name}"
        self.call: Call = calls_of("cdc")
        server.execute(
            f"create schema {self.name};"
            f"create table {self.name}.users (id int primary key, name text);"
            f"create table {self.name}.orders (id int primary key, amount numeric);"
            f"insert into {self.name}.users select i, 'user ' || i from generate_series(1, 100) i"
        )

    def add(self, *words: str, tables: str = "users,orders") -> Answer:
        named = ",".join(f"{self.name}.{table}" for table in tables.split(","))
        return self.call("add", self.name, self.server.url, "--tables", named, *words)

    def catch_up(self) -> Answer:
        return self.call("run", self.name, "--catch-up")

    def status(self) -> Answer:
        return self.call("status", self.name, "--output", "jsonl")

    def rows(self, table: str) -> int:
        log, topic = open_log(), f"{self.name}.{self.name}.{table}"
        return sum(end.next for end in log.topic(topic).ends().values()) if topic in log.topics() else 0

    def left(self) -> list[str]:
        """Slots and publications in the database."""
        found = self.server.execute(
            "select 'slot ' || slot_name from pg_replication_slots where slot_name = %s "
            "union all select 'publication ' || pubname from pg_publication where pubname = %s",
            self.slot,
            self.slot,
        )
        return sorted(name for (name,) in found)

    def started(self, *words: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
        """`cdc run` in a process of its own, its output in pipes."""
        command = [*PENSTOCK, "cdc", "run", self.name, *words]
        made = {**os.environ, **(env or {})}
        return subprocess.Popen(command, env=made, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def remove(self) -> None:
        if self.name in Captures().names():
            self.call("remove", self.name, "--yes", "--force")
        assert until(lambda: not self._read())
        if f"slot {self.slot}" in self.left():
            self.server.execute("select pg_drop_replication_slot(%s)", self.slot)
        self.server.execute(f"drop publication if exists {self.slot}; drop schema {self.name} cascade")

    def _read(self) -> bool:
        return bool(
            self.server.execute("select 1 from pg_replication_slots where slot_name = %s and active_pid is not null", self.slot)
        )


def own_server(place: Path, **settings: str) -> Iterator[PostgresServer]:
    try:
        with PostgresServer(place, **settings) as server:
            yield server
    except NotToBeHad as error:
        missing(str(error))

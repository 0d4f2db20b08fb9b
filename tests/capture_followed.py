"""A PostgreSQL with the tables of the workload, followed by a capture, and a slot beside it that nobody reads until the end: what
the server itself says of what was done."""

from collections.abc import Callable
from typing import Any

import psycopg

from capture_oracle import Law, Oracle, Row, value_of
from capture_workload import CREATE, FILL, KEYS, TOUCH
from penstock.capture.definition import CaptureDefinition
from penstock.capture.postgres.connecting import connect
from penstock.capture.postgres.engine import PostgresEngine, Settings, Source
from penstock.capture.postgres.slots import create_publication, create_slot
from penstock.capture.writing.journal import journal_topic, read_journal
from penstock.core.arrow import values_in
from penstock.core.columns import KEY
from penstock.log.port import Log
from penstock.storage.port import Storage
from penstock.testing.servers.postgres import PostgresServer

NAME = "shop"
ORACLE, SLOT, PUBLICATION = "oracle", "followed", "followed"
TABLES = tuple(("public", table) for table in KEYS)
DEFINITION = CaptureDefinition(NAME, "postgres", "", TABLES)
# So that large transactions come in parts, and copies in many chunks.
SMALL = Settings(batch_bytes=60_000, chunk_rows=60, idle=0.5, heartbeat=1.0, looking=0.5)
LAST = -1  # the key of the row that is written when everything else was


class Followed:
    """The server. start: the capture has what was committed behind this position."""

    def __init__(self, server: PostgresServer, rows: int = 300, create: str = CREATE) -> None:
        self.server = server
        server.execute(create)
        with connect(server.url) as connection:
            create_publication(connection, PUBLICATION, TABLES)
            create_slot(connection, ORACLE)
            if rows:
                server.execute(FILL.format(rows=rows, few=rows // 3))
            self.start = create_slot(connection, SLOT)

    def engine(self, storage: Storage, kind: type[PostgresEngine] = PostgresEngine, settings: Settings = SMALL) -> PostgresEngine:
        return kind(Source(self.server.url, SLOT, PUBLICATION), storage, settings)

    def finish(self) -> None:
        """Sends every row once more, and one behind them all."""
        self.server.execute(f"{TOUCH}; insert into accounts (id) values ({LAST})")

    def oracle(self) -> Oracle:
        return Oracle(KEYS).read(self.server.url, ORACLE, PUBLICATION)

    def tables(self) -> dict[str, dict[Any, Row]]:
        """What is in the tables now."""
        found: dict[str, dict[Any, Row]] = {}
        with psycopg.connect(self.server.url) as connection:
            for table, key in KEYS.items():
                cursor = connection.cursor(binary=False)
                cursor.execute(f"select * from {table} limit 0")  # type: ignore[call-overload]
                columns = [(column.name, column.type_code) for column in cursor.description or ()]
                texts = ", ".join(f'"{name}"::text' for name, _ in columns)
                rows = [
                    {name: value_of(kind, "t" if text == "true" else text) for (name, kind), text in zip(columns, row, strict=True)}
                    for row in cursor.execute(f"select {texts} from {table}")  # type: ignore[call-overload]
                ]
                found[table] = {tuple((name, row[name]) for name in key): row for row in rows}
        return found


class LastRow:
    """Looks whether the transaction that was written behind all others is there as a whole; at each record once."""

    def __init__(self, log: Log) -> None:
        self._log, self._looked, self._found = log, 0, False

    def there(self) -> bool:
        name = DEFINITION.names.topic(("public", "accounts"))
        (end,) = read_journal(journal_topic(self._log, NAME)).state.offsets.get(name, [0])
        if not self._found and end > self._looked:
            for chunk in self._log.topic(name).read(0, self._looked, end):
                self._found |= b'{"id":%d}' % LAST in values_in(chunk.rows.column(KEY), bytes)
            self._looked = end
        return self._found


def check_law(followed: Followed, log: Log) -> Law:
    """The topics say what the server has done, and folded they are its tables."""
    oracle = followed.oracle()
    assert oracle.rows == followed.tables(), "the oracle does not know the tables: the test is wrong"
    law = Law(log, DEFINITION.names, oracle, followed.start)
    law.check()
    assert {table: topic.live for table, topic in law.topics.items()} == followed.tables()
    return law


def broken(check: Callable[[], object]) -> str | None:
    """What the law says against it; None if it holds."""
    try:
        check()
    except AssertionError as error:
        return str(error) or "an assertion without words"
    return None

"""A database that a test follows: prepared by the kind of its engine, run as often as the test likes, read back from its topics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

import orjson

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import kind_of
from penstock.capture.port import Batch, Engine, Json, Status, Table
from penstock.capture.reconcile import Followed
from penstock.capture.writing.journal import CaptureState
from penstock.capture.writing.writer import nothing
from penstock.log.memory import MemoryLog
from penstock.log.port import Log
from penstock.storage.memory import MemoryStorage
from penstock.storage.port import Storage
from penstock.testing.contracts.capture.records import JournalRecord, Record, envelopes_of, journal_of, records_of


class CapturedDatabase(Protocol):
    """Tables of one test, apart from those of all others."""

    @property
    def url(self) -> str: ...

    @property
    def schema(self) -> str:
        """Of its tables, as the kind of engine names them; empty where there is none."""
        ...

    def execute(self, *statements: str) -> None:
        """All of them in one transaction."""
        ...


class Around:
    """An engine as it is; what stands around it does something else somewhere."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def connector(self) -> str:
        return self._engine.connector

    @property
    def database(self) -> str:
        return self._engine.database

    def start(self, position: Json | None, unfinished: Json | None) -> None:
        self._engine.start(position, unfinished)

    def next(self, wait: float) -> Batch | None:
        return self._engine.next(wait)

    def written(self, position: Json) -> None:
        self._engine.written(position)

    def status(self) -> Status:
        return self._engine.status()

    def close(self) -> None:
        self._engine.close()


class Unconfirmed(Around):
    """An engine that is never told what is durable."""

    def written(self, position: Json) -> None:
        return None


def as_it_is(engine: Engine) -> Engine:
    return engine


@dataclass
class Following:
    """A capture of some tables. `of` makes its definition, `begin` prepares the database."""

    database: CapturedDatabase
    definition: CaptureDefinition
    log: Log = field(default_factory=MemoryLog)
    storage: Storage = field(default_factory=MemoryStorage)

    @staticmethod
    def of(engine: str, database: CapturedDatabase, *tables: str, **more: Any) -> "Following":
        followed = tuple((database.schema, table) for table in tables)
        name = f"c{uuid4().hex[:10]}"
        return Following(database, CaptureDefinition(name, engine, database.url, followed, id=uuid4().hex, **more))

    def begin(self) -> "Following":
        self.definition = kind_of(self.definition.engine).set_up(self.definition)
        return self

    def catch_up(self, fail: Callable[[str], None] = nothing, engine: Callable[[Engine], Engine] = as_it_is) -> CaptureState:
        """A run that ends once everything that is in the database now is in the log."""
        kind = kind_of(self.definition.engine)
        of = Followed(self.definition, self.log, self.storage, lambda: engine(kind.open(self.definition, self.storage)), fail)
        return of.run().run(catch_up=True)

    def end(self) -> None:
        kind_of(self.definition.engine).tear_down(self.definition)

    def topic(self, table: str) -> str:
        return self.definition.names.topic(self._table(table))

    def records(self, table: str) -> list[Record]:
        return records_of(self.log, self.topic(table))

    def envelopes(self, table: str) -> list[Record]:
        return envelopes_of(self.log, self.topic(table))

    def changes(self, table: str) -> list[tuple[str, Any, Any]]:
        """Op, key and row of each change, in order."""
        return [(record.value["op"], orjson.loads(record.key), record.value["after"]) for record in self.envelopes(table)]

    def fold(self, table: str) -> Mapping[str, Any]:
        """The rows that are left, by key."""
        rows = {record.key: record.value["after"] for record in self.envelopes(table)}
        return {key: row for key, row in rows.items() if row is not None}

    def journal(self) -> list[JournalRecord]:
        return journal_of(self.log, self.definition.name)

    def _table(self, table: str) -> Table:
        return self.database.schema, table

"""Triggers as a kind of engine: prepares PostgreSQL and SQLite with an outbox that triggers fill, and removes both."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import Finding, Kept
from penstock.capture.port import Engine, Table
from penstock.capture.postgres.connecting import LOOKING
from penstock.capture.postgres.patterns import tables_of
from penstock.capture.sqlite import tables as sqlite_tables
from penstock.capture.sqlite.connecting import is_sqlite
from penstock.capture.triggers.postgres import setting_up as postgres
from penstock.capture.triggers.sqlite import setting_up as sqlite
from penstock.errors import PenstockError, SlotLost
from penstock.storage.port import Storage


class TriggersKind:
    """Prepares databases for OutboxEngine and SqliteOutboxEngine, by their URLs."""

    def check(self, definition: CaptureDefinition) -> Sequence[Finding]:
        return _of(definition).check(definition)

    def tables(self, definition: CaptureDefinition, patterns: Sequence[str]) -> Sequence[Table]:
        return _of(definition).tables(definition, patterns)

    def statements(self, definition: CaptureDefinition) -> Sequence[str]:
        return _of(definition).statements(definition)

    def set_up(self, definition: CaptureDefinition) -> CaptureDefinition:
        return _of(definition).set_up(definition)

    def open(self, definition: CaptureDefinition, storage: Storage) -> Engine:
        return _of(definition).open(definition, storage)

    def tear_down(self, definition: CaptureDefinition) -> Sequence[str]:
        return _of(definition).tear_down(definition)

    def look(self, definition: CaptureDefinition) -> Kept:
        """What the outbox holds that was not written yet."""
        return _of(definition).look(definition)

    def leftovers(self, definition: CaptureDefinition) -> Sequence[str]:
        return _of(definition).leftovers(definition)


class PostgresTriggers:
    """An outbox in a schema of its own."""

    def check(self, definition: CaptureDefinition) -> Sequence[Finding]:
        try:
            return postgres.checked(definition)
        except PenstockError as error:
            return [Finding("error", " · ".join([error.what, *error.detail]), [error.hint] if error.hint else [])]

    def tables(self, definition: CaptureDefinition, patterns: Sequence[str]) -> Sequence[Table]:
        with postgres.connected_to(definition, LOOKING) as connection:
            return tables_of(connection, patterns)

    def statements(self, definition: CaptureDefinition) -> Sequence[str]:
        with postgres.connected_to(definition, LOOKING) as connection:
            return [statement for together in postgres.planned(connection, definition) for statement in together]

    def set_up(self, definition: CaptureDefinition) -> CaptureDefinition:
        with postgres.connected_to(definition) as connection:
            postgres.make(connection, definition)
        return replace(definition, options={**definition.options, "schema": postgres.outbox_of(definition).schema})

    def open(self, definition: CaptureDefinition, storage: Storage) -> Engine:
        from penstock.capture.triggers.postgres.engine import OutboxEngine, OutboxSource

        source = OutboxSource(definition.url, postgres.outbox_of(definition), definition.tables, definition.secret)
        return OutboxEngine(source, storage)

    def tear_down(self, definition: CaptureDefinition) -> Sequence[str]:
        with postgres.connected_to(definition) as connection:
            return postgres.remove(connection, definition)

    def look(self, definition: CaptureDefinition) -> Kept:
        from penstock.capture.triggers.postgres.outbox import Outbox

        sql = postgres.outbox_of(definition)
        with postgres.connected_to(definition, LOOKING) as connection:
            try:
                Outbox(connection, sql).about()
            except SlotLost as error:
                return Kept(trouble=error.what)
            there = postgres.installed(connection, sql)
            off = [".".join(table) for table in definition.tables if not there.get(table)]
            trouble = f"triggers are missing or switched off: {', '.join(off)}" if off else None
            return Kept(kept_bytes=Outbox(connection, sql).size(), trouble=trouble)

    def leftovers(self, definition: CaptureDefinition) -> Sequence[str]:
        return [postgres.outbox_of(definition).gone()]  # triggers go with their function


class SqliteTriggers:
    """An outbox in the same file."""

    def check(self, definition: CaptureDefinition) -> Sequence[Finding]:
        try:
            return sqlite.checked(definition)
        except PenstockError as error:
            return [Finding("error", " · ".join([error.what, *error.detail]), [error.hint] if error.hint else [])]

    def tables(self, definition: CaptureDefinition, patterns: Sequence[str]) -> Sequence[Table]:
        with sqlite.opened(sqlite.file_of(definition)) as file, file.reading() as connection:
            return sqlite_tables.tables_of(connection, patterns)

    def statements(self, definition: CaptureDefinition) -> Sequence[str]:
        with sqlite.opened(sqlite.file_of(definition)) as file, file.reading() as connection:
            return sqlite.planned(connection, definition)

    def set_up(self, definition: CaptureDefinition) -> CaptureDefinition:
        tables = sqlite_tables.in_main(definition.tables)
        sqlite.make(definition)
        return replace(definition, tables=tables, options={**definition.options, "path": str(sqlite.file_of(definition))})

    def open(self, definition: CaptureDefinition, storage: Storage) -> Engine:
        from penstock.capture.triggers.sqlite.engine import SqliteOutboxEngine, SqliteSource

        return SqliteOutboxEngine(
            SqliteSource(sqlite.file_of(definition), sqlite.outbox_of(definition), definition.tables), storage
        )

    def tear_down(self, definition: CaptureDefinition) -> Sequence[str]:
        return sqlite.remove(definition)

    def look(self, definition: CaptureDefinition) -> Kept:
        from penstock.capture.triggers.sqlite.outbox import SqliteOutbox

        sql = sqlite.outbox_of(definition)
        with sqlite.opened(sqlite.file_of(definition)) as file, file.reading() as connection:
            try:
                SqliteOutbox(sql).about(connection)
            except SlotLost as error:
                return Kept(trouble=error.what)
            there = sqlite.installed(connection, sql)
        off = [name for _, name in definition.tables if name not in there]
        return Kept(trouble=f"triggers are missing: {', '.join(off)}" if off else None)

    def leftovers(self, definition: CaptureDefinition) -> Sequence[str]:
        sql = sqlite.outbox_of(definition)
        return [*(statement for _, name in definition.tables for statement in sql.without(name)), *sql.gone()]


def _of(definition: CaptureDefinition) -> PostgresTriggers | SqliteTriggers:
    return SqliteTriggers() if is_sqlite(definition.url) else PostgresTriggers()

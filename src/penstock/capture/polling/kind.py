"""Polls as a kind of engine: nothing is prepared in the database, and nothing left there."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import Finding
from penstock.capture.polling.postgres_source import PostgresPollSource
from penstock.capture.polling.sqlite_source import SqlitePollSource
from penstock.capture.port import Engine, Table
from penstock.capture.postgres import patterns as postgres_patterns
from penstock.capture.postgres import tables as postgres_tables
from penstock.capture.postgres.connecting import LOOKING, connected, translated
from penstock.capture.sqlite import tables as sqlite_tables
from penstock.capture.sqlite.connecting import is_sqlite
from penstock.capture.triggers.sqlite.setting_up import file_of, opened
from penstock.core.time import duration
from penstock.errors import BadInput, NotFollowable, PenstockError
from penstock.storage.port import Storage

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

EVERY = "every"  # the option
USUAL = "1 hour"
_READABLE = "select has_table_privilege(format('%%I.%%I', %s::text, %s::text), 'select'), quote_ident(current_user)"


class PollKind:
    """Opens PollEngine, for PostgreSQL and SQLite."""

    def check(self, definition: CaptureDefinition) -> Sequence[Finding]:
        try:
            every_of(definition)
            if is_sqlite(definition.url):
                return [_checked_file(definition, table) for table in definition.tables]
            with _connected(definition) as connection:
                return [_checked_table(connection, table) for table in definition.tables] or [Finding("ok", "it can be reached")]
        except PenstockError as error:
            return [Finding("error", " · ".join([error.what, *error.detail]), [error.hint] if error.hint else [])]

    def tables(self, definition: CaptureDefinition, patterns: Sequence[str]) -> Sequence[Table]:
        if is_sqlite(definition.url):
            with opened(file_of(definition)) as file, file.reading() as reading:
                return sqlite_tables.tables_of(reading, patterns)
        with _connected(definition) as connection:
            return postgres_patterns.tables_of(connection, patterns)

    def statements(self, definition: CaptureDefinition) -> Sequence[str]:
        return []

    def set_up(self, definition: CaptureDefinition) -> CaptureDefinition:
        """NotFollowable if a table is not there, or has no key."""
        every_of(definition)
        if is_sqlite(definition.url):
            path, tables = file_of(definition), sqlite_tables.in_main(definition.tables)
            with opened(path) as file, file.reading() as reading:
                for _, name in tables:
                    sqlite_tables.described(reading, name)
            return replace(definition, tables=tables, options={**definition.options, "path": str(path)})
        with _connected(definition) as connection:
            for table in definition.tables:
                postgres_tables.described(connection, table)
        return definition

    def open(self, definition: CaptureDefinition, storage: Storage) -> Engine:
        from penstock.capture.polling.engine import PollEngine

        if is_sqlite(definition.url):
            tables = sqlite_tables.in_main(definition.tables)
            return PollEngine(SqlitePollSource(file_of(definition)), tables, every_of(definition), storage)
        source = PostgresPollSource(definition.url, definition.secret)
        return PollEngine(source, definition.tables, every_of(definition), storage)

    def tear_down(self, definition: CaptureDefinition) -> Sequence[str]:
        return []


def every_of(definition: CaptureDefinition) -> timedelta:
    """How often; BadTime if that cannot be read."""
    found = duration(definition.options.get(EVERY, USUAL), "the time between two polls")
    if not found:
        raise BadInput("the time between two polls must not be nothing", hint=f"such as {USUAL!r}")
    return found


def _checked_table(connection: "Connection", table: Table) -> Finding:
    name = ".".join(table)
    try:
        postgres_tables.described(connection, table)
    except NotFollowable as error:
        return Finding("error", error.what, [error.hint] if error.hint else [])
    with translated(f"look at the rights on {name}"):
        ((readable, user),) = connection.execute(_READABLE, table)
    if not readable:
        return Finding("error", f"user {user} may not read {name}", [f"grant select on {name} to {user};"])
    return Finding("ok", f"table {name} can be read")


def _checked_file(definition: CaptureDefinition, table: Table) -> Finding:
    try:
        with opened(file_of(definition)) as file, file.reading() as reading:
            sqlite_tables.described(reading, table[1])
    except NotFollowable as error:
        return Finding("error", error.what, [error.hint] if error.hint else [])
    return Finding("ok", f"table {table[1]} can be read")


def _connected(definition: CaptureDefinition) -> "AbstractContextManager[Connection]":
    return connected(definition.url, "penstock poll", definition.secret.read(), LOOKING)

"""Debezium as a kind of engine: PostgreSQL, MariaDB, and whatever else it has a connector for."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from penstock.capture.debezium.allowed import allowed
from penstock.capture.debezium.connectors import PROPERTIES, Address, connector_of, first_frame, question
from penstock.capture.debezium.process import asked
from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import Finding, Kept
from penstock.capture.port import Engine, Table
from penstock.errors import AlreadyThere, BadInput, NotFollowable, NotFound, PenstockError
from penstock.storage.port import Storage

if TYPE_CHECKING:
    from penstock.capture.debezium.source import PostgresSource
    from penstock.capture.postgres.kind import PostgresKind

FOLLOWED = "followed"  # the option that says with which tables it has begun
_SETTINGS = (("log_bin", "ON"), ("binlog_format", "ROW"), ("binlog_row_image", "FULL"))
# Of the constraints of a table a user who may only read it sees nothing.
_TABLES = """
select t.table_schema, t.table_name, sum(c.column_key = 'PRI')
from information_schema.tables t join information_schema.columns c using (table_schema, table_name)
where t.table_type = 'BASE TABLE' and t.table_schema not in ('mysql', 'sys', 'information_schema', 'performance_schema')
group by 1, 2 order by 1, 2"""


class DebeziumKind:
    """Prepares databases for DebeziumEngine. Debezium makes a publication and a slot in PostgreSQL itself, under our names."""

    def check(self, definition: CaptureDefinition) -> Sequence[Finding]:
        try:
            connector = connector_of(definition)
            allowed(definition.options.get(PROPERTIES, {}))
            told = first_frame(definition)
            findings = [Finding("ok", f"Debezium's engine is here, with {len(told['jars'])} jars")]
            if not connector.tested:
                findings.append(Finding("warning", f"Debezium's connector for {connector.name} was never tested with Penstock"))
            if connector.name == "postgresql":
                return [*findings, *_postgres().check(_named(definition)), *_java(definition)]
            return [*findings, *(_binlog(definition) if connector.binlog else _java(definition))]
        except PenstockError as error:
            return [_finding(error)]

    def tables(self, definition: CaptureDefinition, patterns: Sequence[str]) -> Sequence[Table]:
        connector = connector_of(definition)
        if connector.name == "postgresql":
            return _postgres().tables(definition, patterns)
        if connector.binlog:
            (rows,) = _asked(definition, [_TABLES])
            return _matching([(schema, table) for schema, table, _ in rows], patterns, Address.of(definition).database)
        return [_explicit(pattern) for pattern in patterns]

    def statements(self, definition: CaptureDefinition) -> Sequence[str]:
        return []

    def set_up(self, definition: CaptureDefinition) -> CaptureDefinition:
        tables = sorted(list(table) for table in definition.tables)
        if definition.options.get(FOLLOWED, tables) != tables:
            raise NotFollowable(
                "Debezium copies tables when it begins, and none that are added later",
                hint="add another capture for them: penstock cdc add OTHER_NAME URL --tables …",
            )
        found = _named(definition)
        found = replace(found, options={**found.options, FOLLOWED: tables})
        taken = None if "slot" in definition.options or "slot" not in found.options else _source(found).taken()
        if taken:
            hint = f"choose another name; or, if nobody needs it: {' '.join(self.leftovers(found))}"
            raise AlreadyThere(f"there is a {taken} already, and it is not this capture's", hint=hint)
        return found

    def open(self, definition: CaptureDefinition, storage: Storage) -> Engine:
        from penstock.capture.debezium.engine import DebeziumEngine

        return DebeziumEngine(_named(definition), storage)

    def tear_down(self, definition: CaptureDefinition) -> Sequence[str]:
        if connector_of(definition).name != "postgresql" or "slot" not in definition.options:
            return []
        return _source(definition).tear_down()

    def look(self, definition: CaptureDefinition) -> Kept:
        return _postgres().look(_named(definition)) if connector_of(definition).name == "postgresql" else Kept()

    def leftovers(self, definition: CaptureDefinition) -> Sequence[str]:
        return _postgres().leftovers(_named(definition)) if connector_of(definition).name == "postgresql" else []


def _postgres() -> "PostgresKind":
    from penstock.capture.postgres.kind import PostgresKind

    return PostgresKind()


def _source(definition: CaptureDefinition) -> "PostgresSource":
    from penstock.capture.debezium.source import PostgresSource

    return PostgresSource(definition)


def _named(definition: CaptureDefinition) -> CaptureDefinition:
    """With the names of its slot and its publication, where there are such."""
    if connector_of(definition).name != "postgresql":
        return definition
    from penstock.capture.postgres.kind import slot_of

    name = slot_of(definition)
    return replace(definition, options={"publication": name, **definition.options, "slot": name})


def _asked(definition: CaptureDefinition, statements: Sequence[str]) -> list[Any]:
    return asked({**first_frame(definition), "ask": question(definition, statements)})


def _java(definition: CaptureDefinition) -> list[Finding]:
    """Whether Java can be started, and the database be reached from there."""
    if question(definition, []) is None:
        return []
    _asked(definition, ["select 1"])
    return [Finding("ok", "Java is here, and its driver reaches the database")]


def _binlog(definition: CaptureDefinition) -> list[Finding]:
    names = ", ".join(f"'{name}'" for name, _ in _SETTINGS)
    settings, tables = _asked(definition, [f"show global variables where variable_name in ({names})", _TABLES])
    found = {str(name).lower(): str(value) for name, value in settings}
    findings = [Finding("ok", "Java is here, and its driver reaches the database")]
    findings += [_setting(name, wanted, found.get(name, "not there")) for name, wanted in _SETTINGS]
    keyed = {(schema, table): key != "0" for schema, table, key in tables}
    return [*findings, *(_table(table, keyed.get(table)) for table in definition.tables)]


def _setting(name: str, wanted: str, value: str) -> Finding:
    if value.upper() == wanted:
        return Finding("ok", f"{name} is {value!r}")
    how = "start the server with --log-bin" if name == "log_bin" else f"set global {name} = '{wanted}';"
    return Finding("error", f"{name} is {value!r}, and must be {wanted!r}", [how])


def _table(table: Table, keyed: bool | None) -> Finding:
    name = ".".join(table)
    if keyed is None:
        return Finding("error", f"there is no table {name}, or the user may not see it")
    if not keyed:
        return Finding("error", f"table {name} has no primary key", [f"alter table {name} add primary key (…);"])
    return Finding("ok", f"table {name} has a primary key")


def _matching(there: Sequence[Table], patterns: Sequence[str], database: str) -> list[Table]:
    found: dict[Table, None] = {}
    for pattern in patterns:
        schema, _, table = pattern.rpartition(".")
        mine = [each for each in there if fnmatchcase(each[0], schema or database or "*") and fnmatchcase(each[1], table)]
        if not mine:
            raise NotFound(f"no table is called {pattern!a}", hint="name them as database.table; * stands for anything")
        found |= dict.fromkeys(mine)
    return list(found)


def _explicit(pattern: str) -> Table:
    schema, _, table = pattern.rpartition(".")
    if not schema or "*" in pattern:
        raise BadInput(f"{pattern!a} names no table", hint="name each table as database.table or schema.table")
    return schema, table


def _finding(error: PenstockError) -> Finding:
    return Finding("error", " · ".join([error.what, *error.detail]), [error.hint] if error.hint else [])

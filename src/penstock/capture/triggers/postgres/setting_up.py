"""An outbox in a PostgreSQL, looked at, made and removed."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import Finding
from penstock.capture.port import Table
from penstock.capture.postgres.connecting import LOOKING, connected, translated
from penstock.capture.postgres.keys import Keys
from penstock.capture.postgres.kind import slot_of
from penstock.capture.triggers.postgres.outbox_sql import TRIGGERS, Followed, OutboxSql, identifier
from penstock.errors import AlreadyThere, NotFollowable

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

OLDEST = 130000  # the version that has transaction ids of 64 bits, and shows them
PATIENCE = "10s"  # that a lock on a table is waited for, as everybody who writes to it waits behind us
_SERVER = """
select current_setting('server_version_num')::int, current_setting('server_version'), quote_ident(current_database()),
       quote_ident(current_user), has_database_privilege(current_database(), 'create'), pg_is_in_recovery()"""
_TABLES = """
select w.s, w.t, c.oid is not null, c.relkind::text, pg_has_role(c.relowner, 'usage'), has_table_privilege(c.oid, 'select'),
       c.relkind = 'p' or c.relispartition or c.relhassubclass
         or exists (select from pg_inherits i where i.inhrelid = c.oid)
         or exists (select from pg_trigger t
                    where t.tgrelid = c.oid and not t.tgisinternal and not starts_with(t.tgname::text, '!penstock_'))
from unnest(%s::text[], %s::text[]) with ordinality as w(s, t, place)
left join pg_namespace n on n.nspname = w.s left join pg_class c on c.relnamespace = n.oid and c.relname = w.t
order by w.place"""
_OWNER = "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = %s"
_TRIGGERS = """
select n.nspname, c.relname, array_agg(t.tgname::text), bool_and(t.tgenabled in ('O', 'A'))
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
join pg_proc f on f.oid = t.tgfoid join pg_namespace m on m.oid = f.pronamespace
where m.nspname = %s and not t.tgisinternal and t.tgparentid = 0
group by 1, 2"""


def outbox_of(definition: CaptureDefinition) -> OutboxSql:
    return OutboxSql(slot_of(definition), f"penstock capture {definition.name} {definition.id}")


def checked(definition: CaptureDefinition) -> list[Finding]:
    """Looks, and changes nothing."""
    with connected_to(definition, LOOKING) as connection:
        with translated("look at the server"):
            ((number, version, database, user, creates, standby),) = connection.execute(_SERVER)
        if number < OLDEST:
            return [Finding("error", f"PostgreSQL {version} does not show the ids of transactions; 13 is the oldest that does")]
        if standby:
            return [Finding("error", "the server is a standby, which takes no triggers; follow the primary")]
        found = [Finding("ok", f"PostgreSQL {version}")]
        if not creates and _owner(connection, outbox_of(definition)) is None:
            mend = [f"grant create on database {database} to {user};"]
            found.append(Finding("error", f"user {user} may not make a schema, which the outbox needs", mend))
        for table in described_tables(connection, definition.tables):
            found += _findings(connection, table, user)
        return found


@dataclass(frozen=True)
class DescribedTable:
    """A table as far as triggers are concerned."""

    schema: str
    name: str
    there: bool
    kind: str
    owned: bool
    readable: bool
    by_row: bool

    @property
    def quoted(self) -> str:
        return identifier(self.schema, self.name)


def described_tables(connection: "Connection", tables: Sequence[Table]) -> list[DescribedTable]:
    names = [table[0] for table in tables], [table[1] for table in tables]
    with translated("look at the tables"):
        return [DescribedTable(*row) for row in connection.execute(_TABLES, names)]


def installed(connection: "Connection", outbox: OutboxSql) -> dict[Table, bool]:
    """The tables that have all triggers, and whether they are switched on."""
    with translated("look at the triggers"):
        rows = connection.execute(_TRIGGERS, (outbox.schema,)).fetchall()
    wanted = {outbox.trigger(event) for event in TRIGGERS}
    return {(schema, table): on for schema, table, names, on in rows if wanted <= set(names)}


def planned(connection: "Connection", definition: CaptureDefinition) -> list[list[str]]:
    """What is missing, in transactions: the outbox, then each table by itself, so that no two of them are locked at a time."""
    outbox = outbox_of(definition)
    owner = _owner(connection, outbox)
    if owner is not None and owner != outbox.owner:
        raise AlreadyThere(
            f"there is a schema {outbox.schema!a} already, and it is not this capture's",
            hint=f"choose another name; or, if nobody needs it: {outbox.gone()}",
        )
    there = {} if owner is None else installed(connection, outbox)
    missing = [table for table in described_tables(connection, definition.tables) if (table.schema, table.name) not in there]
    gone = [table.quoted for table in missing if not table.there]
    if gone:
        raise NotFollowable(f"there is no table {', '.join(gone)}")
    made = [[] if owner is not None else outbox.tables()]
    for table in missing:
        Keys(connection).of_table((table.schema, table.name))
        of = (table.schema, table.name)
        made.append([*(outbox.without(of) if owner is not None else ()), *outbox.triggers(Followed(of, table.by_row))])
    return [each for each in made if each]


def make(connection: "Connection", definition: CaptureDefinition) -> None:
    for statements in planned(connection, definition):
        with translated(f"set up the outbox {outbox_of(definition).schema!a}"), connection.transaction():
            connection.execute(f"set local lock_timeout = '{PATIENCE}'".encode())
            for statement in statements:
                connection.execute(statement.encode())


def remove(connection: "Connection", definition: CaptureDefinition) -> list[str]:
    """Removes triggers, functions and the outbox; says what it has removed. An outbox of somebody else stays."""
    outbox = outbox_of(definition)
    owner = _owner(connection, outbox)
    if owner is None:
        return []
    if owner != outbox.owner:
        return [f"schema {outbox.schema} was made by somebody else and stays"]
    with translated("look at the triggers"):
        tables = [(schema, table) for schema, table, *_ in connection.execute(_TRIGGERS, (outbox.schema,))]
    removed = []
    for table in sorted(tables):
        with translated(f"remove the triggers of {'.'.join(table)}"), connection.transaction():
            connection.execute(f"set local lock_timeout = '{PATIENCE}'".encode())
            for statement in outbox.without(table):
                connection.execute(statement.encode())
        removed.append(f"triggers on {identifier(*table)} are dropped")
    with translated(f"drop schema {outbox.schema!a}"):
        connection.execute(outbox.gone().encode())
    return [*removed, f"schema {outbox.schema} with the outbox is dropped"]


def connected_to(definition: CaptureDefinition, within: float | None = None) -> "AbstractContextManager[Connection]":
    return connected(definition.url, f"penstock {slot_of(definition)}", definition.secret.read(), within)


def _owner(connection: "Connection", outbox: OutboxSql) -> str | None:
    """Whose the schema is; None if there is none."""
    with translated(f"look at schema {outbox.schema!a}"):
        found = connection.execute(_OWNER, (outbox.schema,)).fetchone()
    return None if found is None else found[0] or ""


def _findings(connection: "Connection", table: DescribedTable, user: str) -> Iterator[Finding]:
    if not table.there:
        yield Finding("error", f"there is no table {table.quoted}")
        return
    wrong = []
    if table.kind not in ("r", "p"):
        wrong.append(Finding("error", f"{table.quoted} is no table: only tables have triggers for changes"))
    if not table.owned:
        what = f"user {user} does not own {table.quoted}: only its owner can remove triggers again"
        wrong.append(Finding("error", what, [f"alter table {table.quoted} owner to {user};"]))
    if not table.readable:
        wrong.append(Finding("error", f"user {user} may not read {table.quoted}", [f"grant select on {table.quoted} to {user};"]))
    try:
        Keys(connection).of_table((table.schema, table.name))
    except NotFollowable as error:
        wrong.append(Finding("error", error.what, [error.hint] if error.hint else []))
    yield from wrong or [Finding("ok", f"table {table.quoted} can be followed")]
    if table.by_row:
        what = f"table {table.quoted} is partitioned, or has triggers: each row that is changed calls a trigger, which takes longer"
        yield Finding("warning", what)

"""The SQL of an outbox in PostgreSQL: its tables, and the triggers that fill it.

A row is stored as the text of the whole record, in settings that make it look as it does in the server's log, whatever the
settings of the session that writes. Beside it stands the number of its shape, the columns that the table had at that moment: a
trigger that names no column goes on when columns come and go."""

from dataclasses import dataclass

from penstock.capture.port import Table
from penstock.capture.postgres.connecting import SESSION

TRIGGERS = ("insert", "update", "delete", "truncate")
# A session that has changed single rows keeps the plan of those: with nested loops an update of many rows would take their square.
_SETTINGS = "\n".join(
    [
        "set search_path = pg_catalog, pg_temp",
        "set enable_nestloop = off",
        *(f"set \"{name}\" = '{value}'" for name, value in SESSION.items()),
    ]
)
# A shape is added by whoever sees none of its kind. Two that do so at the same time have one each, and neither waits for the other.
_SHAPE = """
    penstock_columns := (
        select json_agg(json_build_array(attname, atttypid::bigint, atttypmod, attgenerated) order by attnum)::text
        from pg_attribute where attrelid = tg_relid and attnum > 0 and not attisdropped);
    select id into penstock_shape from {schema}.shapes where relation = tg_relid and columns = penstock_columns limit 1;
    if penstock_shape is null then
        insert into {schema}.shapes (relation, root_schema, root_table, columns)
        values (tg_relid, tg_argv[0], tg_argv[1], penstock_columns) returning id into penstock_shape;
    end if;"""
_FUNCTION = """create or replace function {schema}.{name}() returns trigger language plpgsql security definer
{settings}
as $penstock$
#variable_conflict use_variable
declare
    penstock_columns text;
    penstock_shape bigint;
    penstock_now timestamptz := clock_timestamp();
begin{shape}
{body}
    return null;
end
$penstock$;"""
# Old and new rows are kept in the order in which they were changed, so that their numbers tell which belong together.
_BY_STATEMENT = """
    if tg_op = 'INSERT' then
        insert into {schema}.outbox (txid, shape, op, at, after)
        select pg_current_xact_id(), penstock_shape, 'c', penstock_now, (penstock_row.*)::text from penstock_new penstock_row;
    elsif tg_op = 'UPDATE' then
        insert into {schema}.outbox (txid, shape, op, at, before, after)
        select pg_current_xact_id(), penstock_shape, 'u', penstock_now, o.penstock_text, n.penstock_text
        from (select row_number() over () as penstock_n, (r.*)::text as penstock_text from penstock_old r) o
        join (select row_number() over () as penstock_n, (r.*)::text as penstock_text from penstock_new r) n using (penstock_n)
        order by penstock_n;
    elsif tg_op = 'DELETE' then
        insert into {schema}.outbox (txid, shape, op, at, before)
        select pg_current_xact_id(), penstock_shape, 'd', penstock_now, (penstock_row.*)::text from penstock_old penstock_row;
    else
        insert into {schema}.outbox (txid, shape, op, at) values (pg_current_xact_id(), penstock_shape, 't', penstock_now);
    end if;"""
_BY_ROW = """
    if tg_op = 'INSERT' then
        insert into {schema}.outbox (txid, shape, op, at, after)
        values (pg_current_xact_id(), penstock_shape, 'c', penstock_now, new::text);
    elsif tg_op = 'UPDATE' then
        insert into {schema}.outbox (txid, shape, op, at, before, after)
        values (pg_current_xact_id(), penstock_shape, 'u', penstock_now, old::text, new::text);
    else
        insert into {schema}.outbox (txid, shape, op, at, before)
        values (pg_current_xact_id(), penstock_shape, 'd', penstock_now, old::text);
    end if;"""


@dataclass(frozen=True)
class Followed:
    """A table that triggers are to be made for. by_row: a trigger for each row, where one for each statement would not do."""

    table: Table
    by_row: bool


@dataclass(frozen=True)
class OutboxSql:
    """The statements that make an outbox, in a schema of its own. owner: what tells whose it is."""

    schema: str
    owner: str

    @property
    def quoted(self) -> str:
        return identifier(self.schema)

    def tables(self) -> list[str]:
        """Made once."""
        s = self.quoted
        return [
            f"create schema {s};",
            f"comment on schema {s} is {literal(self.owner)};",
            f"create table {s}.outbox (\n"
            "    seq bigint generated always as identity, txid xid8 not null, shape bigint not null,\n"
            '    op "char" not null, at timestamptz not null, before text, after text\n'
            ") with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);",
            f"create index outbox_by_transaction on {s}.outbox (txid, seq);",
            f"create table {s}.shapes (\n"
            "    id bigint generated always as identity primary key, relation oid not null,\n"
            "    root_schema text not null, root_table text not null, columns text not null\n);",
            f"create table {s}.about (id uuid not null default gen_random_uuid(), windows bigint not null default 0);",
            f"insert into {s}.about default values;",
            self._function("changed", _BY_STATEMENT),
            self._function("changed_row", _BY_ROW),
        ]

    def triggers(self, followed: Followed) -> list[str]:
        """For one table; they fire whatever a session says about triggers."""
        made = [self._trigger(followed, event) for event in TRIGGERS]
        table = identifier(*followed.table)
        return made + [f"alter table {table} enable always trigger {identifier(self.trigger(event))};" for event in TRIGGERS]

    def without(self, table: Table) -> list[str]:
        """Removes the triggers of one table."""
        return [f"drop trigger if exists {identifier(self.trigger(event))} on {identifier(*table)};" for event in TRIGGERS]

    def gone(self) -> str:
        return f"drop schema if exists {self.quoted} cascade;"

    def trigger(self, event: str) -> str:
        """Triggers fire in the order of their names: what others do because of a change comes behind it."""
        return f"!{self.schema}_{event}"

    def _trigger(self, followed: Followed, event: str) -> str:
        table, by_row = identifier(*followed.table), followed.by_row and event != "truncate"
        seen = {"insert": ("new",), "update": ("old", "new"), "delete": ("old",), "truncate": ()}[event]
        rows = " ".join(f"{which} table as penstock_{which}" for which in seen)
        how = "for each row" if by_row else f"referencing {rows} for each statement" if rows else "for each statement"
        function, (schema, name) = "changed_row" if by_row else "changed", followed.table
        return (
            f"create trigger {identifier(self.trigger(event))} after {event} on {table} {how}\n"
            f"    execute function {self.quoted}.{function}({literal(schema)}, {literal(name)});"
        )

    def _function(self, name: str, body: str) -> str:
        shape, filled = _SHAPE.format(schema=self.quoted), body.format(schema=self.quoted)
        return _FUNCTION.format(schema=self.quoted, name=name, settings=_SETTINGS, shape=shape, body=filled)


def identifier(*parts: str) -> str:
    return ".".join('"{}"'.format(part.replace('"', '""')) for part in parts)


def literal(text: str) -> str:
    quoted = "'{}'".format(text.replace("'", "''"))
    return f" E{quoted}".replace("\\", "\\\\") if "\\" in text else quoted

"""The tables of a publication as the server's catalog has them now: which they are, their columns, about how many rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.capture.port import Table
from penstock.capture.postgres.connecting import translated
from penstock.errors import NotFollowable

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

# A table that was dropped and made again has another object id; one that was taken out and added again another row here.
_TABLES = """
select p.schemaname, p.tablename, c.oid::bigint::text || '.' || coalesce(r.oid::bigint, 0)::text
from pg_publication_tables p
join pg_publication b on b.pubname = p.pubname
join pg_namespace n on n.nspname = p.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
left join pg_publication_rel r on r.prpubid = b.oid and r.prrelid = c.oid
where p.pubname = %s order by 1, 2"""
_COLUMNS = """
select a.attname, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod)
from pg_publication_tables p
join pg_namespace n on n.nspname = p.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
join pg_attribute a on a.attrelid = c.oid and a.attname = any(p.attnames)
where p.pubname = %s and p.schemaname = %s and p.tablename = %s order by a.attnum"""
_NOW = """
select n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
where c.oid = %s and a.attnum > 0 and not a.attisdropped"""
_ROWS = """
select coalesce(sum(greatest(p.reltuples, 0)), 0)::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
cross join lateral (select c.oid as relid union select relid from pg_partition_tree(c.oid)) t join pg_class p on p.oid = t.relid
where n.nspname = %s and c.relname = %s"""


@dataclass(frozen=True)
class PublishedColumn:
    """A column that is published."""

    name: str
    type: int
    modifier: int
    cast: str  # its type as SQL writes it


def published_tables(connection: "Connection", publication: str) -> Mapping[Table, str]:
    """The tables, each with what tells it from another one of its name. NotFollowable if there is no such publication."""
    with translated(f"describe publication {publication!a}"):
        found = {(schema, table): identity for schema, table, identity in connection.execute(_TABLES, (publication,))}
        if not found and not connection.execute("select 1 from pg_publication where pubname = %s", (publication,)).fetchone():
            raise NotFollowable(
                f"there is no publication {publication!a} in the database",
                hint="was it dropped? `penstock cdc remove` and `cdc add` begin anew",
            )
    return found


def published_columns(connection: "Connection", publication: str, table: Table) -> tuple[PublishedColumn, ...]:
    """In the order of the table, as the stream has them; none if the table is not there any more."""
    with translated(f"look at the columns of {'.'.join(table)}"):
        return tuple(PublishedColumn(*row) for row in connection.execute(_COLUMNS, (publication, *table)))


@dataclass(frozen=True)
class Columns:
    """The columns of a table, published or not."""

    table: Table
    casts: Mapping[str, str]  # by name: the type as SQL writes it


def columns_of(connection: "Connection", relation: int) -> Columns:
    """Of a table by its object id, whatever it is called now; none if it is not there."""
    with translated("look at the columns of a table"):
        found = connection.execute(_NOW, (relation,)).fetchall()
    return Columns((found[0][0], found[0][1]) if found else ("", ""), {name: cast for _, _, name, cast in found})


def about_rows(connection: "Connection", table: Table) -> int:
    """As the server estimates it; 0 where it has not looked yet."""
    with translated("look at the size of a table"):
        found = connection.execute(_ROWS, table).fetchone()
    return int(found[0]) if found else 0

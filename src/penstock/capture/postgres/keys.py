"""What identifies the rows of a table: its replica identity, else its primary key."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.capture.port import Table
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.decode.messages import Relation
from penstock.capture.postgres.position import Copied, table_of
from penstock.errors import NotFollowable

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

# The index that is the replica identity, else the primary key, else any that tells all rows apart.
_KEY = """
select a.attname, a.attnum
from pg_class c
join lateral (
    select i.indkey::int2[] as columns, i.indnkeyatts as count from pg_index i
    where i.indrelid = c.oid and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null
      and (i.indisreplident or i.indisprimary or c.relreplident = 'f')
      and not exists (select from pg_attribute n where n.attrelid = c.oid and n.attnum = any(i.indkey::int2[]) and not n.attnotnull)
    order by not i.indisreplident, not i.indisprimary, i.indexrelid limit 1
) k on true
join lateral unnest(k.columns) with ordinality as u(attnum, place) on u.place <= k.count
join pg_attribute a on a.attrelid = c.oid and a.attnum = u.attnum
where {} order by u.place"""


@dataclass(frozen=True)
class Key:
    """The columns of a key in the order of the table, and in that of its index, by which rows are read quickest."""

    columns: tuple[str, ...]
    by_index: tuple[str, ...]


class Keys:
    """The keys of tables, as the server's catalog has them now."""

    def __init__(self, connection: "Connection", copied: Mapping[str, Copied] = MappingProxyType({})) -> None:
        self._connection = connection
        self._known = {table_of(name): each.key for name, each in copied.items()}

    def of_relation(self, relation: Relation) -> tuple[str, ...]:
        """The key as the stream has it. With REPLICA IDENTITY FULL all columns identify a row: then the catalog says which are a
        key, or, where those were renamed since, what it said before."""
        table = relation.schema or "pg_catalog", relation.table
        if relation.identity in "di":
            found = tuple(column.name for column in relation.columns if column.key)
        else:
            names = {column.name for column in relation.columns}
            now, before = self._found("c.oid = %s", (relation.oid,)).columns, self._known.get(table, ())
            found = next((key for key in (now, before) if key and names.issuperset(key)), ())
        if not found:
            raise no_key(table)
        self._known[table] = found
        return found

    def of_table(self, table: Table) -> Key:
        found = self._found("c.relname = %s and c.relnamespace = to_regnamespace(quote_ident(%s))", (table[1], table[0]))
        if not found.columns:
            raise no_key(table)
        self._known[table] = found.columns
        return found

    def _found(self, which: str, values: tuple[object, ...]) -> Key:
        from psycopg import sql

        with translated("look up the key of a table"):
            rows = self._connection.execute(sql.SQL(_KEY).format(sql.SQL(which)), values).fetchall()
        return Key(tuple(name for name, _ in sorted(rows, key=lambda row: row[1])), tuple(name for name, _ in rows))


def no_key(table: Table) -> NotFollowable:
    name = ".".join(f'"{part}"' if not part.isidentifier() or part != part.lower() else part for part in table)
    return NotFollowable(
        f"table {name} has no primary key: nothing tells which row a change is about",
        hint=f"alter table {name} add primary key (…); or with a unique index on columns that are not null: "
        f"alter table {name} replica identity using index …; or replica identity full",
    )

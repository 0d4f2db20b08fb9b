"""Tables that patterns mean: `public.orders`, `orders` where the search path finds it, `public.*`, `"My Schema"."My.Table"`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import TYPE_CHECKING

from penstock.capture.port import Table
from penstock.capture.postgres.connecting import translated
from penstock.errors import BadInput, NotFound

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

TABLES = ("r", "p")  # ordinary and partitioned ones
_WORDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_PART = r'"(?:[^"]|"")+"|[^".\s]+'
_PATTERN = re.compile(rf"(?:({_PART})\.)?({_PART})")
_ALL = """
select n.nspname, c.relname, c.relkind::text, pg_table_is_visible(c.oid), c.oid::bigint,
       case when c.relispartition then array(select a::oid::bigint from pg_partition_ancestors(c.oid) a where a <> c.oid) end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
order by 1, 2"""


@dataclass(frozen=True)
class _Found:
    schema: str
    name: str
    kind: str
    visible: bool
    oid: int
    ancestors: Sequence[int] | None

    @property
    def table(self) -> Table:
        return self.schema, self.name


def tables_of(connection: "Connection", patterns: Sequence[str]) -> list[Table]:
    """The tables, in order. A partition is left out where the table that it is part of is there. NotFound names a pattern that
    means none."""
    with translated("look which tables there are"):
        there = [_Found(*row) for row in connection.execute(_ALL)]
    chosen = [each for pattern in patterns for each in _meant(there, pattern)]
    oids = {each.oid for each in chosen}
    return sorted({each.table for each in chosen if not oids.intersection(each.ancestors or ())})


def _meant(there: Sequence[_Found], pattern: str) -> list[_Found]:
    parts = _PATTERN.fullmatch(pattern.strip())
    if not parts:
        raise BadInput(f"{pattern!a} names no table", hint="write schema.table, table, or schema.*")
    schema, name = parts[1], parts[2]
    for fold in (False, True):  # PostgreSQL takes a name without quotes in lower case
        fits = [each for each in there if _matches(each.name, name, fold) and _of_schema(each, schema, fold)]
        tables = [each for each in fits if each.kind in TABLES]
        if tables:
            return tables
        if fits:
            what = f"{'.'.join(fits[0].table)} is {_WORDS[fits[0].kind]}"
            raise NotFound(f"{pattern!a} means no table: {what}", hint="tables are followed; name the tables that it is made of")
    near = [f"{each.schema}.{each.name}" for each in there if each.kind in TABLES]
    shown = ", ".join(near[:10]) + (f" and {len(near) - 10} more" if len(near) > 10 else "")
    raise NotFound(f"{pattern!a} means no table of the database", hint=f"there are: {shown}" if near else "it has no tables")


def _of_schema(found: _Found, schema: str | None, fold: bool) -> bool:
    return found.visible if schema is None else _matches(found.schema, schema, fold)


def _matches(name: str, pattern: str, fold: bool) -> bool:
    if pattern.startswith('"'):
        return name == pattern[1:-1].replace('""', '"')
    return re.match(translate(pattern.lower() if fold else pattern), name) is not None

"""Looks whether tables can be followed: rights, what identifies their rows, and what of them is not in the server's log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.capture.kind import Finding
from penstock.capture.port import Table
from penstock.capture.postgres.connecting import translated
from penstock.capture.postgres.keys import Keys
from penstock.errors import NotFollowable

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

GENERATED = 180000  # the version from which stored generated columns can be published
# Whether an UPDATE of it is let through once it is published: the server refuses it where nothing identifies the rows.
_IDENTIFIED = """
(c.relreplident = 'f' or exists (
    select from pg_index i where i.indrelid = c.oid and i.indisvalid and i.indimmediate
      and (i.indisreplident and c.relreplident = 'i' or i.indisprimary and c.relreplident = 'd')))"""
_TABLES = f"""
select w.s, w.t, c.oid::bigint, format('%%I.%%I', w.s, w.t), quote_ident(w.s), c.relkind::text, c.relpersistence::text,
       has_table_privilege(c.oid, 'select'), has_schema_privilege(c.relnamespace, 'usage'), pg_has_role(c.relowner, 'usage'),
       row_security_active(c.oid), exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indimmediate),
       {_IDENTIFIED},
       array(select x.relname::text from pg_index i join pg_class x on x.oid = i.indexrelid
             where i.indrelid = c.oid and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null
               and i.indexprs is null and not exists (select from pg_attribute n where n.attrelid = c.oid
                   and n.attnum = any(i.indkey::int2[]) and not n.attnotnull)),
       array(select quote_ident(a.attname) || case a.attgenerated when 'v' then ' (virtual)' else '' end from pg_attribute a
             where a.attrelid = c.oid and a.attgenerated <> '' and not a.attisdropped order by a.attnum)
from unnest(%s::text[], %s::text[]) with ordinality as w(s, t, place)
left join pg_namespace n on n.nspname = w.s left join pg_class c on c.relnamespace = n.oid and c.relname = w.t
order by w.place"""
_LEAVES = f"""
select format('%%I.%%I', n.nspname, c.relname)
from pg_partition_tree(%s::oid) p join pg_class c on c.oid = p.relid join pg_namespace n on n.oid = c.relnamespace
where p.isleaf and p.level > 0 and not {_IDENTIFIED} order by 1"""


@dataclass(frozen=True)
class _Table:
    schema: str
    name: str
    oid: int
    quoted: str
    quoted_schema: str
    kind: str | None  # None: it is not there
    persistence: str
    readable: bool
    schema_usable: bool
    owned: bool
    filtered: bool  # by row security, for this user
    has_key: bool
    identified: bool
    unique: Sequence[str]
    generated: Sequence[str]


def check_tables(
    connection: "Connection", tables: Sequence[Table], published: Sequence[Table], publication: str, user: str
) -> Iterator[Finding]:
    with translated("look at the tables"):
        names = [table[0] for table in tables], [table[1] for table in tables]
        found = [_Table(*row) for row in connection.execute(_TABLES, names)]
    for each in found:
        if each.kind is None:
            yield Finding("error", f"there is no table {each.quoted}")
            continue
        wrong = [*_rights(each, user), *_logged(each), *_identified(connection, each)]
        yield from wrong or [Finding("ok", f"table {each.quoted} can be followed")]
        yield from _generated(connection, each)
    yield from _owned([each for each in found if each.kind and (each.schema, each.name) not in published], publication, user)


def _rights(table: _Table, user: str) -> Iterator[Finding]:
    mend = [] if table.schema_usable else [f"grant usage on schema {table.quoted_schema} to {user};"]
    mend += [] if table.readable else [f"grant select on {table.quoted} to {user};"]
    if mend:
        yield Finding("error", f"user {user} may not read table {table.quoted}", mend)
    if table.filtered:
        what = f"row security hides rows of table {table.quoted} from user {user}: its copy would not be whole"
        yield Finding("error", what, [f"alter role {user} bypassrls;"])


def _owned(tables: Sequence[_Table], publication: str, user: str) -> Iterator[Finding]:
    """Only owners put tables into publications. Somebody else may make the publication instead."""
    foreign = [table for table in tables if not table.owned]
    if not foreign:
        return
    names = ", ".join(table.quoted for table in tables)
    what = f"user {user} does not own {', '.join(table.quoted for table in foreign)}, and only owners publish tables"
    as_owner = f"create publication {publication} for table {names} with (publish_via_partition_root = true);"
    owners = [f"alter table {table.quoted} owner to {user};" for table in foreign]
    yield Finding("error", what, ["-- as their owner, make the publication for it:", as_owner, "-- or:", *owners])


def _logged(table: _Table) -> Iterator[Finding]:
    if table.persistence == "u":
        mend = [f"alter table {table.quoted} set logged;"]
        yield Finding("error", f"table {table.quoted} is unlogged: its changes are not in the server's log", mend)
    if table.persistence == "t":
        yield Finding("error", f"table {table.quoted} is temporary: its changes are not in the server's log")


def _identified(connection: "Connection", table: _Table) -> Iterator[Finding]:
    """Without a replica identity a published table takes no UPDATE and no DELETE any more: the user's program would fail."""
    leaves = _not_identified(connection, table)
    if leaves or not (table.identified or table.kind == "p"):
        what = f"nothing identifies the rows of table {table.quoted}: once it is published, every UPDATE and DELETE of it fails"
        yield Finding("error", what, _ways_out(table, leaves))
        return
    try:
        Keys(connection).of_table((table.schema, table.name))
    except NotFollowable:
        what = f"table {table.quoted} has no key: nothing tells which row a change is about"
        yield Finding("error", what, _ways_out(table))


def _not_identified(connection: "Connection", table: _Table) -> list[str]:
    """Partitions of it without a replica identity: each has one of its own."""
    if table.kind != "p":
        return []
    with translated("look at partitions"):
        return [name for (name,) in connection.execute(_LEAVES, (table.oid,))]


def _ways_out(table: _Table, leaves: Sequence[str] = ()) -> list[str]:
    if table.has_key:
        return [f"alter table {each} replica identity default;" for each in leaves or [table.quoted]]
    if table.kind == "p":
        return [f"alter table {table.quoted} add primary key (…);"]
    index = _quoted(next(iter(table.unique), f"{table.name}_key"))
    by_index = f"alter table {table.quoted} replica identity using index {index};"
    if table.unique:
        return [by_index, "-- or, which makes the server's log larger:", f"alter table {table.quoted} replica identity full;"]
    made = f"create unique index {index} on {table.quoted} (…);"
    return [f"alter table {table.quoted} add primary key (…);", "-- or, with columns that are never null:", made, by_index]


def _generated(connection: "Connection", table: _Table) -> Iterator[Finding]:
    newer = connection.info.server_version >= GENERATED
    missing = [name for name in table.generated if not newer or name.endswith(" (virtual)")]
    if missing:
        yield Finding("warning", f"table {table.quoted}: generated columns are not in the stream: {', '.join(missing)}")


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() and name == name.lower() else '"{}"'.format(name.replace('"', '""'))

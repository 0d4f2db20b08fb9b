"""PostgreSQL's log as a kind of engine: prepares a database with a publication and a replication slot, and removes both.

A publication has a comment that says which capture it belongs to, so that a capture of the same name in another home is told apart.
The slot is made behind it: where the publication is ours, the slot is too."""

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.capture.definition import CaptureDefinition
from penstock.capture.kind import MAX_KEPT, Finding, Kept
from penstock.capture.port import Engine, Table
from penstock.capture.postgres.check import check_database
from penstock.capture.postgres.connecting import LOOKING, connect, connected, translated
from penstock.capture.postgres.patterns import tables_of
from penstock.capture.postgres.slots import PLUGIN, describe_publication, describe_slot, drop_publication, drop_slot
from penstock.errors import AlreadyThere, CaptureError, NotFollowable, PenstockError, SlotInUse
from penstock.storage.port import Storage

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

LONGEST = 63  # characters of a name
PATIENCE = 10.0  # seconds in which a reader of the slot that is ending may end
AGAIN = 0.2
GENERATED = 180000  # the version from which generated columns can be published
_MARK = "select obj_description(oid, 'pg_publication') from pg_publication where pubname = %s"
_NAMES = "select format('%%I.%%I', s, t) from unnest(%s::text[], %s::text[]) with ordinality as u(s, t, place) order by place"
_READER = """
select format('process %%s of the server: %%s, %%s, from %%s', a.pid, a.usename, nullif(a.application_name, ''),
              coalesce(host(a.client_addr), 'a local socket'))
from pg_replication_slots s join pg_stat_activity a on a.pid = s.active_pid where s.slot_name = %s"""
_KEPT = """
select pg_wal_lsn_diff(l.now, s.confirmed_flush_lsn)::bigint, pg_wal_lsn_diff(l.now, s.restart_lsn)::bigint,
       case when l.now <= s.confirmed_flush_lsn then 0
            when s.active_pid is not null then coalesce(extract(epoch from r.flush_lag), 0)
            else extract(epoch from now() - (to_jsonb(s) ->> 'inactive_since')::timestamptz) end::float8,
       (select nullif(setting::bigint, -1) << 20 from pg_settings where name = 'max_slot_wal_keep_size')
from (select case when pg_is_in_recovery() then null else pg_current_wal_lsn() end as now) l, pg_replication_slots s
left join pg_stat_replication r on r.pid = s.active_pid where s.slot_name = %s"""


@dataclass(frozen=True)
class Plan:
    """What is missing in a database: what is executed as one transaction, and the statement that makes the slot."""

    publication: tuple[str, ...]
    slot: str | None

    @property
    def statements(self) -> list[str]:
        return [*self.publication, *([self.slot] if self.slot else [])]


class PostgresKind:
    """Prepares databases for PostgresEngine."""

    def check(self, definition: CaptureDefinition) -> Sequence[Finding]:
        try:
            with _connected(definition, LOOKING) as connection:
                name = slot_of(definition)
                mine = _was_set_up(definition) or _marked(connection, definition)
                found = check_database(connection, definition.tables, name, mine)
                return [*found, *self._replicates(definition)] if all(each.level != "error" for each in found) else found
        except PenstockError as error:
            return [Finding("error", " · ".join([error.what, *error.detail]), [error.hint] if error.hint else [])]

    def tables(self, definition: CaptureDefinition, patterns: Sequence[str]) -> Sequence[Table]:
        with _connected(definition, LOOKING) as connection:
            return tables_of(connection, patterns)

    def statements(self, definition: CaptureDefinition) -> Sequence[str]:
        with _connected(definition, LOOKING) as connection:
            return _plan(connection, definition).statements

    def set_up(self, definition: CaptureDefinition) -> CaptureDefinition:
        name = slot_of(definition)
        with _connected(definition) as connection:
            plan = _plan(connection, definition)
            with translated(f"set up publication {name!a}"), connection.transaction():
                for statement in plan.publication:
                    connection.execute(statement.encode())
            if plan.slot:
                with translated(f"create replication slot {name!a}"):
                    connection.execute(plan.slot.encode())
        return replace(definition, options={**definition.options, "slot": name, "publication": name})

    def open(self, definition: CaptureDefinition, storage: Storage) -> Engine:
        from penstock.capture.postgres.engine import PostgresEngine, Settings, Source

        name, limit = slot_of(definition), definition.options.get(MAX_KEPT)
        settings = Settings(max_kept_bytes=int(limit)) if limit else Settings()
        return PostgresEngine(Source(definition.url, name, name, definition.secret), storage, settings)

    def tear_down(self, definition: CaptureDefinition) -> Sequence[str]:
        name, removed = slot_of(definition), []
        with _connected(definition) as connection:
            marked = _marked(connection, definition)
            if (marked or _was_set_up(definition)) and describe_slot(connection, name):
                _drop_when_free(connection, name)
                removed.append(f"replication slot {name} is dropped")
            if marked:
                drop_publication(connection, name)
                removed.append(f"publication {name} is dropped")
            elif _was_set_up(definition) and describe_publication(connection, name) is not None:
                removed.append(f"publication {name} was made by somebody else and stays")
        return removed

    def look(self, definition: CaptureDefinition) -> Kept:
        name = slot_of(definition)
        with _connected(definition, LOOKING) as connection:
            slot = describe_slot(connection, name)
            if slot is None:
                return Kept(trouble=f"there is no replication slot {name}")
            with translated(f"describe replication slot {name!a}"):
                found = connection.execute(_KEPT, (name,)).fetchone()
                reader = connection.execute(_READER, (name,)).fetchone()
            published = describe_publication(connection, name) is not None
        why = slot.invalidated or slot.wal_status
        trouble = f"replication slot {name} was invalidated ({why})" if slot.lost else None
        trouble = trouble or (None if published else f"there is no publication {name}")
        lag, kept, seconds, limit = found or (None, None, None, None)
        return Kept(lag, seconds, kept, limit, reader[0] if reader else None, trouble)

    def leftovers(self, definition: CaptureDefinition) -> Sequence[str]:
        name = slot_of(definition)
        return [f"select pg_drop_replication_slot('{name}');", f"drop publication {name};"]

    def _replicates(self, definition: CaptureDefinition) -> Iterator[Finding]:
        """Whether a connection for replication is let in, which rights alone do not say."""
        try:
            connect(definition.url, "penstock check", True, definition.secret.read()).close()
        except PenstockError as error:
            yield Finding("error", f"no connection for replication: {' · '.join([error.what, *error.detail])}")


def _connected(definition: CaptureDefinition, within: float | None = None) -> "AbstractContextManager[Connection]":
    return connected(definition.url, f"penstock {slot_of(definition)}", definition.secret.read(), within)


def slot_of(definition: CaptureDefinition) -> str:
    """The slot and the publication of a capture: penstock_NAME, where the name fits into that of a slot; just that for one that
    has no name yet."""
    given = definition.options.get("slot") or ("" if definition.name else "penstock_NAME")
    if given:
        return str(given)
    plain = re.sub("[^a-z0-9_]", "_", definition.name.lower())
    if plain != definition.name or len(plain) > LONGEST - len("penstock_"):
        plain = f"{plain[:40]}_{hashlib.sha256(definition.name.encode()).hexdigest()[:8]}"
    return f"penstock_{plain}"


def _plan(connection: "Connection", definition: CaptureDefinition) -> Plan:
    name = slot_of(definition)
    published, slot = describe_publication(connection, name), describe_slot(connection, name)
    if slot and not _was_set_up(definition) and not _marked(connection, definition):
        raise AlreadyThere(
            f"there is a replication slot {name!a} already, and it is not this capture's",
            hint=f"choose another name; or, if nobody needs it: select pg_drop_replication_slot('{name}');",
        )
    missing = [table for table in definition.tables if table not in (published or ())]
    if published is None and not missing:
        raise NotFollowable(f"capture {definition.name!a} has no tables")
    made = _publication(connection, definition, missing, published is None) if missing else []
    return Plan(tuple(made), None if slot else f"select pg_create_logical_replication_slot('{name}', '{PLUGIN}');")


def _publication(connection: "Connection", definition: CaptureDefinition, missing: Sequence[Table], new: bool) -> list[str]:
    name = slot_of(definition)
    with translated("quote the names of tables"):
        schemas, tables = [table[0] for table in missing], [table[1] for table in missing]
        listed = ", ".join(quoted for (quoted,) in connection.execute(_NAMES, (schemas, tables)))
    if not new:
        return [f"alter publication {name} add table {listed};"]
    generated = ", publish_generated_columns = stored" if connection.info.server_version >= GENERATED else ""
    return [
        f"create publication {name} for table {listed} with (publish_via_partition_root = true{generated});",
        f"comment on publication {name} is '{_mark(definition)}';",
    ]


def _was_set_up(definition: CaptureDefinition) -> bool:
    """Whether `set_up` has come to its end once, so that the slot is this capture's, whoever made the publication."""
    return "slot" in definition.options


def _mark(definition: CaptureDefinition) -> str:
    return f"penstock capture {definition.name} {definition.id}"


def _marked(connection: "Connection", definition: CaptureDefinition) -> bool:
    """Whether the publication is this capture's."""
    with translated("look whose publication it is"):
        found = connection.execute(_MARK, (slot_of(definition),)).fetchone()
    return found is not None and found[0] == _mark(definition)


def _drop_when_free(connection: "Connection", name: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return drop_slot(connection, name)
        except SlotInUse as error:
            if time.monotonic() > deadline:
                raise _still_read(connection, name) from error
        time.sleep(AGAIN)


def _still_read(connection: "Connection", name: str) -> CaptureError:
    with translated(f"look who reads replication slot {name!a}"):
        readers = [who for (who,) in connection.execute(_READER, (name,))]
    return SlotInUse(
        f"replication slot {name!a} cannot be dropped: somebody reads it",
        *readers,
        hint="stop the reader first; or, for the user who may: select pg_terminate_backend(…)",
    )

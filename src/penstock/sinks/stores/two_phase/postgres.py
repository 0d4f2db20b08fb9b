"""A table of a PostgreSQL that takes part in two-phase commits: PREPARE TRANSACTION, then COMMIT PREPARED."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkError, SinkUnavailable
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.sql.postgres import PATIENCE, PostgresDefinition, PostgresStore, PostgresTransaction
from penstock.sinks.stores.sql.postgres_tables import make_markers, make_tables
from penstock.sinks.stores.sql.tables import MARKERS
from penstock.sinks.stores.two_phase.definition import marker_name
from penstock.sinks.stores.two_phase.gid import PREFIX, Attempt, Gid, digest, short

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_MANY = 10_000  # rows from which on a table is emptied by TRUNCATE, which costs the same for any number
_PREPARED = "SELECT gid, database::text, now() - prepared FROM pg_prepared_xacts WHERE starts_with(gid, %s) ORDER BY gid"


@dataclass(frozen=True)
class Left:
    """A prepared transaction, as the server lists it."""

    gid: Gid
    database: str
    age: timedelta


class PostgresParticipant(PostgresStore):
    """One table. Rows are staged in unlogged tables beside it, since a transaction that has touched temporary ones cannot be
    prepared; they are empty whenever nothing is under way."""

    def __init__(self, definition: PostgresDefinition, spec: SinkSpec) -> None:
        name = marker_name(spec.name, definition)
        super().__init__(definition, replace(spec, name=name), lasting=digest(f"{spec.flow}/{name}", 12))
        self._sink, self._dbname = spec.name, ""

    def open(self) -> None:
        """Connects, and checks that the server lets transactions be prepared."""
        connection = self.connect()
        with self._translated("be opened"):
            most = connection.execute("SHOW max_prepared_transactions").fetchone()
            if most == ("0",):
                raise SinkError(
                    f"{self.called} cannot take part in two-phase commits: the server prepares no transactions",
                    "its setting max_prepared_transactions is 0",
                    hint="set it to 2 for each such sink, or more, and restart: ALTER SYSTEM SET max_prepared_transactions = 8",
                )
            make_markers(connection, self._target)
            connection.commit()

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """Connects alone: enough to see what is prepared, and to finish it."""
        connection = self._connected(PATIENCE)
        self._dbname = connection.info.dbname
        return connection

    @property
    def server(self) -> str:
        """Where it is connected to."""
        info = self._open().info
        return f"{info.host}:{info.port}"

    @contextmanager
    def transaction(self) -> Iterator["PreparedTransaction"]:
        with self._committed() as connection:
            yield PreparedTransaction(connection, self)

    def gid(self, attempt: Attempt) -> Gid:
        return Gid.of(self._spec.flow, self._sink, attempt, self._where)

    @property
    def _where(self) -> str:
        return digest(f"{self._dbname}/{self._target.table}", 8)

    def prepared(self) -> Sequence[Gid]:
        found = self.left(f"{PREFIX}{short(self._spec.flow)}:{short(self._sink)}:")
        return [each.gid for each in found if each.gid.where == self._where]

    def left(self, prefix: str = PREFIX) -> list[Left]:
        """All of Penstock's that are prepared on the server, in any database."""
        with self._committed() as connection:
            found = [(Gid.parsed(text), *rest) for text, *rest in connection.execute(_PREPARED, [prefix]).fetchall()]
        return [Left(gid, database, age) for gid, database, age in found if gid]

    def kept(self) -> Note | None:
        with self._committed() as connection:
            there = connection.execute("SELECT to_regclass(%s)", [self._target.name(MARKERS).as_string(connection)]).fetchone()
            return PreparedTransaction(connection, self).seen() if there and there[0] else None

    def commit(self, gid: Gid) -> bool:
        return self._finished(self._open().tpc_commit, gid)

    def roll_back(self, gid: Gid) -> bool:
        return self._finished(self._open().tpc_rollback, gid)

    def _finished(self, finish: Callable[[str], None], gid: Gid) -> bool:
        from psycopg import errors

        with self._translated(f"finish transaction {gid}"):
            try:
                finish(str(gid))
            except errors.UndefinedObject:
                return False
            except errors.ObjectNotInPrerequisiteState as busy:
                raise SinkUnavailable(f"{self.called} is finishing transaction {gid} for somebody else") from busy
        return True


class PreparedTransaction(PostgresTransaction):
    """Rows and marker, in a transaction that can be prepared."""

    def make(self) -> None:
        make_tables(self._connection, self._target, self._store.called)

    def undone(self) -> AbstractContextManager[object]:
        return self._connection.transaction()

    def write(self, changes: Changes) -> Sequence[Refusal]:
        refusals = super().write(changes)
        self._emptied(self._target.staged, changes.put.num_rows)
        self._emptied(self._target.gone, changes.gone.num_rows)
        self._staged = False
        return refusals

    def _emptied(self, table: "sql.Identifier", rows: int) -> None:
        from psycopg import sql

        if rows:
            self._connection.execute(sql.SQL("TRUNCATE {}" if rows > _MANY else "DELETE FROM {}").format(table))

    def prepare(self, gid: Gid) -> None:
        from psycopg import sql

        self._connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(str(gid))))

"""PostgreSQL as polls read it: all tables in one transaction that sees one state of them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.capture.definition import Secret
from penstock.capture.polling.source import Piece
from penstock.capture.port import Table
from penstock.capture.postgres.connecting import connect, translated
from penstock.capture.postgres.tables import described, estimated_rows, facts_of, json_rows, last_key, read_rows
from penstock.capture.postgres.values.types import Types

if TYPE_CHECKING:
    from penstock.capture.postgres.connecting import Connection

BYTES = 8 << 20  # that a piece should have
FIRST, MOST = 2_000, 50_000  # rows of the first one, and of any


class PostgresPollSource:
    """Needs the right to read and no other."""

    connector = "postgresql"

    def __init__(self, url: str, secret: Secret) -> None:
        self._url, self._secret = url, secret
        self._connection: Connection | None = None

    @property
    def database(self) -> str:
        return self._connected.info.dbname

    def open(self) -> None:
        self.close()
        self._connection = connect(self._url, "penstock poll", password=self._secret.read())

    def pieces(self, tables: Sequence[Table]) -> Iterator[Piece]:
        connection, types = self._connected, Types(self._connected)
        with translated("read the tables"), connection.transaction():
            connection.execute("set transaction isolation level repeatable read read only")
            for table in tables:
                yield from self._table(connection, types, table)

    def estimate(self, table: Table) -> int:
        return estimated_rows(self._connected, table)

    def close(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None

    @property
    def _connected(self) -> "Connection":
        assert self._connection, "it is not open"
        return self._connection

    def _table(self, connection: "Connection", types: Types, table: Table) -> Iterator[Piece]:
        of, after, limit = described(connection, table), None, FIRST
        facts = facts_of(of, types)
        while True:
            rows = read_rows(connection, of, after, limit)
            yield Piece(table, facts, *json_rows(of, types, rows))
            if rows.num_rows < limit:
                return
            after = last_key(of, rows)
            limit = max(100, min(MOST, 4 * limit, limit * BYTES // max(1, rows.nbytes)))

"""SQLite as polls read it: all tables in one transaction that sees one state of the file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.capture.polling.source import Piece
from penstock.capture.port import Table
from penstock.capture.sqlite.connecting import SqliteFile
from penstock.capture.sqlite.tables import described, key_behind, quoted, read_rows
from penstock.capture.sqlite.values import json_keys, json_rows

ROWS = 10_000  # of a piece


class SqlitePollSource:
    """Needs the right to read and no other."""

    connector = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: SqliteFile | None = None

    @property
    def database(self) -> str:
        return self._path.stem

    def open(self) -> None:
        self.close()
        self._file = SqliteFile(self._path)

    def pieces(self, tables: Sequence[Table]) -> Iterator[Piece]:
        self.open()  # whatever file has this name now
        with self._opened.reading() as connection:
            for _, name in tables:
                of, after = described(connection, name), None
                places = [of.columns.index(column) for column in of.key]
                while True:
                    rows = read_rows(connection, of, after, ROWS)
                    keys = json_keys(name, of.key, [tuple(row[i] for i in places) for row in rows])
                    yield Piece(of.table, of.facts, keys, json_rows(of.columns, rows))
                    if len(rows) < ROWS:
                        break
                    after = key_behind(of, rows)

    def estimate(self, table: Table) -> int:
        with self._opened.reading() as connection:
            found: tuple[Any, ...] = connection.execute(f"select coalesce(max(rowid), 0) from {quoted(table[1])}").fetchone()
        return int(found[0])

    def close(self) -> None:
        if self._file:
            self._file.close()
        self._file = None

    @property
    def _opened(self) -> SqliteFile:
        assert self._file, "it is not open"
        return self._file

"""A search index in a file, kept in step: rows, SQLite's FTS5 over their texts, and the marker in one transaction."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.core.arrow import one_array
from penstock.errors import SinkError
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.sqlite_values import from_sqlite, to_sqlite
from penstock.sinks.stores.arguments import OnError, names, one_of
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.refusing import RowRefused, accepted
from penstock.sinks.stores.search.fts5_tables import SUFFIX, connect, listed, prepare, translated
from penstock.sinks.stores.search.index import IndexMeta, IndexPlace, Words

if TYPE_CHECKING:
    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

Connect = Callable[[Path], sqlite3.Connection]
_FETCHED = 20_000  # rows that are read at one time


@dataclass(frozen=True)
class SearchDefinition(StoreDefinition):
    """`stream.sink(search(…))`"""

    place: IndexPlace
    key: tuple[str, ...] | None = None
    text: tuple[str, ...] | None = None
    words: Words = "words"
    on_error: OnError = "dead"

    kind: ClassVar[str] = "search"
    apart: ClassVar[bool] = False  # it is on this machine

    @property
    def target(self) -> str:
        return self.place.target

    def emptied(self, flow: str, name: str) -> str:
        return f"remove {self.place.shown(SUFFIX)}"

    def recorded(self, flow: str, name: str) -> dict[str, Any]:
        """One of the home is not outside: it goes with its flow."""
        return super().recorded(flow, name) if self.place.is_path else {}

    def store(self, context: "SinkContext") -> "Store":
        path = self.place.path(context.views.parent, SUFFIX)
        return SearchStore(self, context.spec, path)


def search(
    path_or_name: str | Path,
    *,
    key: str | Iterable[str] | None = None,
    text: str | Iterable[str] | None = None,
    words: Words = "words",
    on_error: OnError = "dead",
) -> SearchDefinition:
    """A full-text index in a file: `products.sink(search("products", text=["title", "body"]))`; then
    `penstock search products "red shoes"`, or `SearchIndex("products").find("red shoes")`.

    A name is kept in the home, in `search/NAME.db`; whatever has a / in it is the path of the file. `key` names the columns that
    tell rows apart; left out, they are those of the step, or the row's position. `text`: the columns that are searched; left out,
    all that are text. `words`: what texts are cut into: words of any language, whatever their case and accents; english words by
    their stem; or trigrams, which find parts of words, and texts without spaces. `on_error`: a row that the index refuses becomes
    a dead letter, or stops the flow."""
    one_of("words", words, Words)
    one_of("on_error", on_error, OnError)
    return SearchDefinition(IndexPlace.of(path_or_name), names(key), names(text), words, on_error)


class SearchStore:
    """One index in one file. connect: how it is opened."""

    def __init__(self, definition: SearchDefinition, spec: SinkSpec, path: Path, connect: Connect = connect) -> None:
        self._definition, self._spec, self._path, self._connect = definition, spec, path, connect
        self._connection: sqlite3.Connection | None = None

    @property
    def called(self) -> str:
        return f"search index {self._path}"

    def open(self) -> None:
        self.close()
        meta = IndexMeta.of(self._spec, self._definition.text, self._definition.words, self.called)
        with translated(self.called):
            self._connection = self._connect(self._path)
            prepare(self._connection, meta, self.called)

    @contextmanager
    def transaction(self) -> "Iterator[SearchTransaction]":
        connection = self._connection
        if connection is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with translated(self.called):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield SearchTransaction(connection, self._spec)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SearchTransaction:
    one_moment = True

    def __init__(self, connection: sqlite3.Connection, spec: SinkSpec) -> None:
        self._connection, self._spec = connection, spec
        self._meta = IndexMeta(spec.flow, spec.name, spec.schema, spec.key, (), "words")

    def note(self) -> Note | None:
        statement = "SELECT incarnation, generation, epoch FROM marker WHERE flow = ? AND sink = ?"
        found = self._connection.execute(statement, (self._spec.flow, self._spec.name)).fetchone()
        parts = self._connection.execute("SELECT part FROM refused ORDER BY n")
        return Note(Marker(*found), b"".join(part for (part,) in parts)) if found else None

    def keep(self, note: Note) -> None:
        marker = note.marker
        line = (self._spec.flow, self._spec.name, marker.incarnation, marker.generation, marker.epoch)
        self._connection.execute("INSERT OR REPLACE INTO marker VALUES (?, ?, ?, ?, ?)", line)
        self._connection.execute("DELETE FROM refused")
        longest = self._connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) // 2  # a row may be there for being longer
        parts = (note.refused[start : start + longest] for start in range(0, len(note.refused), longest))
        self._connection.executemany("INSERT INTO refused (part) VALUES (?)", ((part,) for part in parts))

    def write(self, changes: Changes) -> Sequence[Refusal]:
        same = " AND ".join(f'"{name}" = ?' for name in self._meta.identity)
        self._connection.executemany(f"DELETE FROM rows WHERE {same}", self._values(changes.gone, self._meta.identity))
        return accepted(self._put, changes.put) if changes.put.num_rows else ()

    def rows(self) -> Iterator[pa.Table]:
        fields, identity = self._meta.fields, self._meta.identity
        cursor = self._connection.execute(f"SELECT {listed(f.name for f in fields)} FROM rows")
        while lines := cursor.fetchmany(_FETCHED):
            columns = zip(fields, zip(*lines, strict=True), strict=True)
            yield pa.table({f.name: from_sqlite(values, f.type, f.name in identity) for f, values in columns})

    def _put(self, rows: pa.Table) -> None:
        """All of the rows or none; RowRefused if one of them does not fit."""
        columns, identity = [f.name for f in self._meta.fields], self._meta.identity
        sets = [f'"{name}" = excluded."{name}"' for name in columns if name not in identity]
        conflict = f"DO UPDATE SET {', '.join(sets)}" if sets else "DO NOTHING"
        values = ", ".join("?" for _ in columns)
        statement = f"INSERT INTO rows ({listed(columns)}) VALUES ({values}) ON CONFLICT ({listed(identity)}) {conflict}"
        self._connection.execute("SAVEPOINT rows_put")
        try:
            self._connection.executemany(statement, self._values(rows, columns))
        except sqlite3.DataError as error:
            self._connection.execute("ROLLBACK TO rows_put")
            raise RowRefused(str(error)) from error
        finally:
            if self._connection.in_transaction:  # of some errors, such as a full disk, SQLite rolls everything back itself
                self._connection.execute("RELEASE rows_put")

    def _values(self, rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
        identity = self._meta.identity
        return zip(*(to_sqlite(one_array(rows[name]), name in identity) for name in columns), strict=True)

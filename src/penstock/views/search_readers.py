"""Search indexes opened for reading, by what they are made of."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.errors import NotFound
from penstock.sinks.sqlite_values import from_sqlite
from penstock.sinks.stores.search import fts5_tables, tantivy_index
from penstock.sinks.stores.search.index import IndexMeta

if TYPE_CHECKING:
    import tantivy

SCORE = "__score"  # float64: how well a row fits; greater is better, and comparable within one answer only


@dataclass(frozen=True)
class Term:
    """A word or phrase that a row must have; prefix: its last word may go on."""

    text: str
    prefix: bool = False


class Reader(Protocol):
    """An index that is open."""

    @property
    def meta(self) -> IndexMeta: ...

    def find(self, terms: Sequence[Term], limit: int) -> pa.Table:
        """The rows that have all of them, the best first, with SCORE."""
        ...

    def close(self) -> None: ...


class FileReader:
    """SQLite's FTS5."""

    def __init__(self, path: Path) -> None:
        self._called = f"search index {path}"
        with fts5_tables.translated(self._called):
            self._connection = fts5_tables.connect(path, read_only=True)
            try:
                self.meta = fts5_tables.read_meta(self._connection, self._called)
            except BaseException:
                self._connection.close()
                raise

    def find(self, terms: Sequence[Term], limit: int) -> pa.Table:
        asked = " ".join('"' + term.text.replace('"', '""') + '"' + ("*" if term.prefix else "") for term in terms)
        number, words = fts5_tables.ID, fts5_tables.WORDS
        hits = f"SELECT rowid AS __hit, rank AS __score FROM {words} WHERE {words} MATCH ? ORDER BY rank LIMIT ?"
        columns = fts5_tables.listed(self.meta.schema.names, "rows.")
        statement = f"SELECT {columns}, -__score FROM ({hits}) JOIN rows ON rows.{number} = __hit ORDER BY __score, {number}"
        with fts5_tables.translated(self._called), closing(self._answer(statement, asked, limit)) as cursor:
            found = cursor.fetchall()
        values = [from_sqlite([row[i] for row in found], f.type, f.name in self.meta.key) for i, f in enumerate(self.meta.schema)]
        return _answer(self.meta, values, [row[-1] for row in found])

    def close(self) -> None:
        self._connection.close()

    def _answer(self, statement: str, asked: str, limit: int) -> sqlite3.Cursor:
        return self._connection.execute(statement, (asked, limit))


class TantivyReader:
    def __init__(self, path: Path) -> None:
        self._called = f"search index {path}"
        with tantivy_index.translated(self._called):
            index = tantivy_index.library().Index.open(str(path))
            found = tantivy_index.read_note(index)
        if found is None:
            raise NotFound(f"{self._called} has no epoch yet", hint="run its flow: `penstock run flow.py`")
        self.meta = found[1]
        self._index = tantivy_index.prepared(index, self.meta)
        self._analyzer = tantivy_index.analyzer_of(self.meta)

    def find(self, terms: Sequence[Term], limit: int) -> pa.Table:
        of = tantivy_index.library()
        with tantivy_index.translated(self._called):
            self._index.reload()
            searcher = self._index.searcher()
            wanted = [(of.Occur.Must, query) for term in terms if (query := self._query(term)) is not None]
            hits = searcher.search(of.Query.boolean_query(wanted), limit).hits if wanted and limit else []
            texts = [bytes(searcher.doc(address)[tantivy_index.ROW][0]).decode() for _, address in hits]
        return _answer(self.meta, tantivy_index.rows_from_text(texts, self.meta), [score for score, _ in hits])

    def close(self) -> None:
        """Nothing is held open."""

    def _query(self, term: Term) -> "tantivy.Query | None":
        """The term, in any of the searched columns; None where nothing of it is a word."""
        of, schema, words = tantivy_index.library().Query, self._index.schema, self._analyzer.analyze(term.text)
        if not words:
            return None
        fields = tantivy_index.text_fields(self.meta)
        if term.prefix:
            *before, last = words
            found = [of.phrase_prefix_query(schema, f, words) if before else of.regex_query(schema, f, f"{last}.*") for f in fields]
        elif len(words) > 1:
            found = [of.phrase_query(schema, field, words) for field in fields]
        else:
            found = [of.term_query(schema, field, words[0]) for field in fields]
        query: tantivy.Query = of.boolean_query([(tantivy_index.library().Occur.Should, each) for each in found])
        return query


def _answer(meta: IndexMeta, columns: Sequence[pa.Array], scores: Sequence[float]) -> pa.Table:
    fields = [*meta.schema, pa.field(SCORE, pa.float64())]
    return pa.table([*columns, pa.array(scores, pa.float64())], schema=pa.schema(fields))

"""Search indexes, as those who look for something see them: rows that have the words, the best first."""

import difflib
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.errors import BadInput, NotFound
from penstock.sinks.sqlite_values import from_sqlite
from penstock.sinks.stores.search_index import DIRECTORY, IndexMeta, IndexPlace
from penstock.sinks.stores.search_tables import SUFFIX, connect, listed, read_meta, translated
from penstock.storage.home import find_home

SCORE = "__score"  # float64: how well a row fits; greater is better, and comparable within one answer only
_TERM = re.compile(r'"(?P<phrase>[^"]*)"(?P<prefixed>\*?)|(?P<word>\S+)')


@dataclass(frozen=True)
class Term:
    """A word or phrase that a row must have; prefix: its last word may go on."""

    text: str
    prefix: bool = False


def terms_of(text: str) -> list[Term]:
    """What a user looks for: words, "phrases of several words", and the beginnings of words, as in shoe*. All else is text, so
    there is no syntax to get wrong. BadInput if nothing is left to look for."""
    found = []
    for match in _TERM.finditer(text.replace("\x00", " ")):
        word = match["phrase"] if match["word"] is None else match["word"]
        prefix = bool(match["prefixed"]) if match["word"] is None else word.endswith("*")
        if any(letter.isalnum() for letter in word):
            found.append(Term(word.rstrip("*") if prefix else word, prefix))
    if not found:
        raise BadInput(
            f"there is no word to look for in {text[:60]!r}",
            hint='write words, a "phrase in quotes", or the beginning of one: shoe*',
        )
    return found


class Reader(Protocol):
    """An index that is open."""

    meta: IndexMeta

    def find(self, terms: Sequence[Term], limit: int) -> pa.Table:
        """The rows that have all of them, the best first, with SCORE."""
        ...

    def close(self) -> None: ...


class SearchIndex:
    """A search index opened for reading. It may be read while its flow writes it; every answer is of one epoch.

    >>> with SearchIndex("products") as index:  # doctest: +SKIP
    ...     index.find('red shoe*', limit=3).to_pylist()

    Use it in a `with`, or close it."""

    def __init__(self, path_or_name: str | Path, home: str | Path | None = None) -> None:
        """A name is looked for in the home; whatever has a / in it is a path."""
        self._reader = _opened(path_or_name, Path(home) if home else find_home())

    def __enter__(self) -> "SearchIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def meta(self) -> IndexMeta:
        return self._reader.meta

    def find(self, text: str, limit: int = 20) -> pa.Table:
        """Rows that have all words of the text in their searched columns, the best first; SCORE says how well they fit. "Several
        words" in quotes stand next to each other, shoe* is the beginning of a word."""
        if limit < 0:
            raise BadInput(f"limit={limit} is negative")
        return self._reader.find(terms_of(text), limit)

    def close(self) -> None:
        self._reader.close()


def list_indexes(home: Path) -> list[str]:
    """Names of all indexes of a home, sorted."""
    directory = home / DIRECTORY
    return sorted(path.stem for path in directory.glob(f"*{SUFFIX}")) if directory.is_dir() else []


def _opened(given: str | Path, home: Path) -> Reader:
    place = IndexPlace.of(given)
    path = place.path(home, SUFFIX)
    if path.is_file():
        return FileIndex(path)
    there = list_indexes(home)
    close = difflib.get_close_matches(place.given, there, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(there[:10])}" if there else None
    raise NotFound(
        f"there is no search index {place.given!r}",
        str(path),
        hint=hint or "an index is made when its flow runs: `penstock run flow.py`",
    )


class FileIndex:
    """SQLite's FTS5."""

    def __init__(self, path: Path) -> None:
        self._called = f"search index {path}"
        with translated(self._called):
            self._connection = connect(path, read_only=True)
            try:
                self.meta = read_meta(self._connection, self._called)
            except BaseException:
                self._connection.close()
                raise

    def find(self, terms: Sequence[Term], limit: int) -> pa.Table:
        asked = " ".join('"' + term.text.replace('"', '""') + '"' + ("*" if term.prefix else "") for term in terms)
        hits = "SELECT rowid AS __hit, rank AS __rank FROM __words WHERE __words MATCH ? ORDER BY rank LIMIT ?"
        columns = listed(self.meta.schema.names, "rows.")
        statement = f"SELECT {columns}, -__rank FROM ({hits}) JOIN rows ON rows.__id = __hit ORDER BY __rank, __id"
        with translated(self._called), closing(self._connection.execute(statement, (asked, limit))) as cursor:
            found = cursor.fetchall()
        values = [from_sqlite([row[i] for row in found], f.type, f.name in self.meta.key) for i, f in enumerate(self.meta.schema)]
        scores = pa.array([row[-1] for row in found], pa.float64())
        return pa.table([*values, scores], schema=pa.schema([*self.meta.schema, pa.field(SCORE, pa.float64())]))

    def close(self) -> None:
        self._connection.close()

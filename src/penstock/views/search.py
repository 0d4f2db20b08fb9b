"""Search indexes, as those who look for something see them: rows that have the words, the best first."""

import difflib
import re
from pathlib import Path

import pyarrow as pa

from penstock.errors import BadInput, NotFound
from penstock.sinks.stores.search.fts5_tables import SUFFIX
from penstock.sinks.stores.search.index import IndexMeta, IndexPlace
from penstock.storage.home import find_home
from penstock.views.indexes import list_indexes
from penstock.views.search_readers import SCORE as SCORE
from penstock.views.search_readers import FileReader, Reader, TantivyReader, Term

_TERM = re.compile(r'"(?P<phrase>[^"]*)"(?P<prefixed>\*?)|(?P<word>\S+)')


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


def _opened(given: str | Path, home: Path) -> Reader:
    place = IndexPlace.of(given)
    file, directory = place.path(home, SUFFIX), place.path(home, "")
    if file.is_file():
        return FileReader(file)
    if directory.is_dir():
        return TantivyReader(directory)
    there = list_indexes(home)
    close = difflib.get_close_matches(place.given, there, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(there[:10])}" if there else None
    raise NotFound(
        f"there is no search index {place.given!r}",
        str(file),
        hint=hint or "an index is made when its flow runs: `penstock run flow.py`",
    )

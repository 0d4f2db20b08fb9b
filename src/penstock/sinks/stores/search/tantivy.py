"""A search index of tantivy's in a directory, kept in step: documents and the marker, itself a document, in one commit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from penstock.core.arrow import filled, one_array
from penstock.core.columns import POSITION
from penstock.errors import SinkError
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.arguments import names, one_of
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.keys import digests_of
from penstock.sinks.stores.port import Changes, Note, Refusal
from penstock.sinks.stores.search.index import IndexMeta, IndexPlace
from penstock.sinks.stores.search.tantivy_index import (
    KEY,
    MARKER,
    NOTE,
    PLACE,
    ROW,
    library,
    made,
    note_bytes,
    read_note,
    rows_as_text,
    rows_from_text,
    text_fields,
    translated,
)
from penstock.sinks.view_file import sync_directory
from penstock.storage.home import make_private

if TYPE_CHECKING:
    from tantivy import Index, IndexWriter

    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

WholeWords = Literal["words", "english"]
_FETCHED = 20_000  # rows that are read at one time
_HEAP = 64 << 20  # bytes of documents that are in memory before they become a segment
Begin = Callable[["Index", "IndexWriter", IndexMeta], "TantivyTransaction"]


@dataclass(frozen=True)
class TantivyDefinition(StoreDefinition):
    """`stream.sink(tantivy(…))`"""

    place: IndexPlace
    key: tuple[str, ...] | None = None
    text: tuple[str, ...] | None = None
    words: WholeWords = "words"

    kind: ClassVar[str] = "tantivy"
    apart: ClassVar[bool] = False  # it is on this machine

    @property
    def target(self) -> str:
        return self.place.target

    def emptied(self, flow: str, name: str) -> str:
        return f"remove {self.place.shown('')}"

    def recorded(self, flow: str, name: str) -> dict[str, Any]:
        """One of the home is not outside: it goes with its flow."""
        return super().recorded(flow, name) if self.place.is_path else {}

    def store(self, context: "SinkContext") -> "Store":
        return TantivyStore(self, context.spec, self.place.path(context.views.parent, ""))


def tantivy(
    path_or_name: str | Path,
    *,
    key: str | Iterable[str] | None = None,
    text: str | Iterable[str] | None = None,
    words: WholeWords = "words",
) -> TantivyDefinition:
    """A full-text index of tantivy's, for more rows than `search` is good for: `products.sink(tantivy("products"))`.

    Arguments and questions are those of `search`, without trigrams; what is made is a directory: `search/NAME` of the home, or the
    path. It refuses no row. Needs the extra `search`."""
    one_of("words", words, WholeWords)
    return TantivyDefinition(IndexPlace.of(path_or_name), names(key), names(text), words)


class TantivyStore:
    """One index in one directory. It is locked while an epoch is written, and not in between."""

    def __init__(self, definition: TantivyDefinition, spec: SinkSpec, path: Path, begin: Begin | None = None) -> None:
        self._definition, self._spec, self._path = definition, spec, path
        self._begin = begin or TantivyTransaction
        self._index: Index | None = None

    @property
    def called(self) -> str:
        return f"search index {self._path}"

    @property
    def _meta(self) -> IndexMeta:
        return IndexMeta.of(self._spec, self._definition.text, self._definition.words, self.called)

    def open(self) -> None:
        self.close()
        library()
        meta = self._meta
        with translated(self.called):
            if self._path.exists() and not library().Index.exists(str(self._path)) and any(self._path.iterdir()):
                raise SinkError(f"{self.called} is none", hint="name a directory that is empty, or not there yet")
            make_private(self._path)
            found = read_note(library().Index.open(str(self._path))) if library().Index.exists(str(self._path)) else None
            if found:
                found[1].check_becomes(meta, self.called)
            self._index = made(self._path, meta)

    @contextmanager
    def transaction(self) -> "Iterator[TantivyTransaction]":
        if self._index is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with translated(self.called):
            writer = self._index.writer(_HEAP, 1)  # has the lock
            try:
                # A commit that was cut short leaves files, and is repeated under the same names: they have to go first.
                writer.garbage_collect_files()
                transaction = self._begin(self._index, writer, self._meta)
                yield transaction
                transaction.commit()
                sync_directory(self._path)  # the name of what was committed
            except BaseException:
                with suppress(ValueError):  # whose threads have ended
                    writer.rollback()
                raise
            finally:
                writer.wait_merging_threads()  # and gives the lock back

    def close(self) -> None:
        self._index = None


class TantivyTransaction:
    one_moment = True

    def __init__(self, index: "Index", writer: "IndexWriter", meta: IndexMeta) -> None:
        self._index, self._writer, self._meta, self._changed = index, writer, meta, False

    def note(self) -> Note | None:
        found = read_note(self._index)
        return found[0] if found else None

    def write(self, changes: Changes) -> Sequence[Refusal]:
        self._changed = True
        for digest in (*digests_of(changes.gone, self._meta.key), *digests_of(changes.put, self._meta.key)):
            self._writer.delete_documents_by_term(KEY, digest)
        self._add(changes.put)
        return ()

    def keep(self, note: Note) -> None:
        self._changed = True
        self._writer.delete_documents_by_term(KEY, MARKER)
        self._writer.add_document(library().Document(**{KEY: MARKER, NOTE: note_bytes(note, self._meta)}))

    def rows(self) -> Iterator[pa.Table]:
        self._index.reload()
        searcher = self._index.searcher()
        hits = searcher.search(library().Query.all_query(), max(1, searcher.num_docs)).hits
        for start in range(0, len(hits), _FETCHED):
            documents = [searcher.doc(address) for _, address in hits[start : start + _FETCHED]]
            found = [document for document in documents if document[ROW]]  # one is the marker
            columns = rows_from_text([bytes(document[ROW][0]).decode() for document in found], self._meta)
            rows = pa.table(dict(zip(self._meta.schema.names, columns, strict=True)))
            places = [] if self._meta.key else [pa.array([bytes(document[PLACE][0]) for document in found], pa.binary())]
            yield rows.append_column(POSITION, places[0]) if places else rows

    def commit(self) -> None:
        """Called when the block ends well."""
        if self._changed:
            self._writer.commit()

    def _add(self, rows: pa.Table) -> None:
        document, fields = library().Document, text_fields(self._meta)
        texts = [filled(one_array(rows[name]), "").to_pylist() for name in self._meta.text]
        keys, stored = digests_of(rows, self._meta.key), rows_as_text(rows, self._meta)
        places = [{}] * rows.num_rows if self._meta.key else [{PLACE: place} for place in rows[POSITION].to_pylist()]
        for key, row, place, *words in zip(keys, stored, places, *texts, strict=True):
            self._writer.add_document(document(**{KEY: key, ROW: row.encode()}, **place, **dict(zip(fields, words, strict=True))))

"""The directory of a search index of tantivy's: its fields, its tokenizers, and the document that is the marker."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import one_array
from penstock.errors import SinkError, SinkUnavailable, install
from penstock.sinks.port import Marker
from penstock.sinks.sqlite_values import from_sqlite, to_sqlite
from penstock.sinks.stores.port import AFRESH, Note
from penstock.sinks.stores.search.index import IndexMeta

if TYPE_CHECKING:
    import tantivy

KEY, ROW, NOTE = "__digest", "__stored", "__note"  # the key's digest; the row, stored; the marker, stored
PLACE = "__place"  # the position of a row that has no key, stored
MARKER = "marker"  # the key of the document with the marker; no digest looks like that
_BUSY = "LockBusy"
_DISK = ("No space left", "index writer was killed")  # the latter where a thread of tantivy's met it


def library() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise SinkError("tantivy is not installed", hint=install("tantivy")) from error
    return tantivy


def made(path: Path, meta: IndexMeta) -> "tantivy.Index":
    """The index of this directory, new where there is none."""
    builder = library().SchemaBuilder()
    builder.add_text_field(KEY, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(ROW, stored=True)
    builder.add_bytes_field(NOTE, stored=True)
    builder.add_bytes_field(PLACE, stored=True)
    for field in text_fields(meta):
        builder.add_text_field(field, tokenizer_name=meta.words)
    return prepared(library().Index(builder.build(), path=str(path)), meta)


def prepared(index: "tantivy.Index", meta: IndexMeta) -> "tantivy.Index":
    """Tokenizers are not kept with an index: whoever opens it says what they are."""
    index.register_tokenizer(meta.words, analyzer_of(meta))
    return index


def analyzer_of(meta: IndexMeta) -> "tantivy.TextAnalyzer":
    """What cuts texts into words, as it does for questions."""
    of = library()
    filters = [of.Filter.remove_long(1000), of.Filter.lowercase(), of.Filter.ascii_fold()]
    filters += [of.Filter.stemmer("english")] if meta.words == "english" else []
    builder = of.TextAnalyzerBuilder(of.Tokenizer.simple())
    for each in filters:
        builder = builder.filter(each)
    analyzer: tantivy.TextAnalyzer = builder.build()
    return analyzer


def text_fields(meta: IndexMeta) -> list[str]:
    """One for each column that is searched, under a name of its own."""
    return [f"t{i}" for i in range(len(meta.text))]


def read_note(index: "tantivy.Index") -> tuple[Note, IndexMeta] | None:
    """What the last commit says of itself; None before the first one. ValueError where it cannot be read."""
    index.reload()
    searcher = index.searcher()
    hits = searcher.search(library().Query.term_query(index.schema, KEY, MARKER), 1).hits
    if not hits:
        return None
    try:
        facts = json.loads(bytes(searcher.doc(hits[0][1])[NOTE][0]))
        marker = Marker(facts["incarnation"], facts["generation"], facts["epoch"])
        return Note(marker, base64.b64decode(facts["refused"])), IndexMeta.parsed(facts["index"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"its marker cannot be read: {error}") from error


def note_bytes(note: Note, meta: IndexMeta) -> bytes:
    marker = note.marker
    facts = {"incarnation": marker.incarnation, "generation": marker.generation, "epoch": marker.epoch}
    return json.dumps(facts | {"refused": base64.b64encode(note.refused).decode(), "index": meta.described()}).encode()


def rows_as_text(rows: pa.Table, meta: IndexMeta) -> list[str]:
    """Each row as JSON from which `rows_from_text` makes it again, exactly."""
    columns = [one_array(rows[f.name]) for f in meta.schema]
    return list(to_sqlite(pa.StructArray.from_arrays(columns, fields=list(meta.schema))))


def rows_from_text(texts: list[str], meta: IndexMeta) -> list[pa.Array]:
    """The columns of the rows. One that was added later is null."""
    rows = from_sqlite(texts, pa.struct([f.with_nullable(True) for f in meta.schema]))
    return [pc.struct_field(rows, f.name) for f in meta.schema]


@contextmanager
def translated(called: str) -> Iterator[None]:
    """What tantivy says, as one paragraph about the index."""
    try:
        yield
    except (ValueError, OSError) as error:
        if _BUSY in str(error):
            hint = "another process is writing it; is the flow running twice?"
            raise SinkUnavailable(f"{called} cannot be used: {error}", hint=hint) from error
        if any(word in str(error) for word in _DISK):
            raise SinkUnavailable(
                f"{called} cannot be used: {error}", hint="look at the disk, and at who may write there"
            ) from error
        raise SinkError(f"{called} cannot be used: {error}", hint=AFRESH) from error

"""Static tables: a file, or rows written in the flow, read as a topic that never changes.

Its one partition holds the rows in their order, all of them valid since ever. Its id is a digest of the content, so that a flow
notices when the file has changed.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.core.time import FIRST, NEVER
from penstock.engine.source.static_files import Numbered, read_file, refuse_keys, rows_given
from penstock.errors import BadInput, NotFound, StorageError
from penstock.log.intake.checked import CheckedRows
from penstock.log.port import Appended, Chunk, End, Frame, Sender, TopicSpec
from penstock.plan import Static

FRAME = 100_000  # rows that are read at once


@dataclass(frozen=True)
class _Content:
    digest: str
    batch: pa.RecordBatch


class StaticTopic:
    """The rows of a static table as a topic that can only be read. What is behind the path is read when it is asked for."""

    headers = True

    def __init__(self, name: str, static: Static, schema: Schema, key: tuple[str, ...]) -> None:
        self._static, self._key = static, key
        self.spec = TopicSpec(name, schema=schema)

    @property
    def id(self) -> str:
        return f"static-{self._content().digest}"

    def append(
        self, partition: int, rows: pa.RecordBatch | CheckedRows | None, *, mark: int = NEVER, sender: Sender | None = None
    ) -> Appended:
        raise BadInput(f"static table {self.spec.name} takes no rows: it never changes")

    def frames(self, partition: int, start: int = 0, stop: int | None = None) -> Sequence[Frame]:
        count = self._content().batch.num_rows
        bases = range(0, count, FRAME)
        frames = (Frame(base, min(FRAME, count - base), FIRST, FIRST, FIRST, FIRST, NEVER, NEVER, NEVER) for base in bases)
        return [frame for frame in frames if frame.touches(start, stop)]

    def read(
        self, partition: int, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        batch = self._content().batch
        batch = batch if columns is None else batch.select([name for name in batch.schema.names if name in columns])
        for frame in self.frames(partition, start, stop):
            yield Chunk(frame, batch.slice(frame.base, frame.count))

    def ends(self) -> dict[int, End]:
        return {0: End(0, self._content().batch.num_rows, FIRST, FIRST, NEVER)}

    def senders(self, partition: int) -> Mapping[str, Sender]:
        return {}

    def _content(self) -> _Content:
        path, schema = self._static.path, self.spec.schema
        assert schema
        if path is None:
            return _given(self.spec.name, self._static.columns, self._static.rows, schema.ddl(), self._key)
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise NotFound(
                f"static table {self.spec.name}: there is no file {path}",
                hint="put it back; a relative path counts from the flow's file, else from the working directory",
            ) from None
        except OSError as error:
            raise StorageError(f"static table {self.spec.name}: {path} cannot be read", str(error)) from error
        return _loaded(self.spec.name, path, (found.st_mtime_ns, found.st_size, found.st_ino), schema.ddl(), self._key)


def located(static: Static) -> Static:
    """The same with the path where its file is: beside the flow's file, if it is there, else from the working directory."""
    if static.path is None or os.path.isabs(static.path):
        return static
    beside = os.path.join(static.beside, static.path)
    path = beside if static.beside and os.path.exists(beside) else os.path.abspath(static.path)
    return Static(path, static.rows, static.columns, static.beside)


@lru_cache(maxsize=16)
def _loaded(name: str, path: str, stamp: tuple[int, ...], ddl: str, key: tuple[str, ...]) -> _Content:
    """The content of a file, read once for each of its states."""
    schema = Schema.of(ddl)
    numbered = read_file(name, path, schema)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
    return _content_of(digest, numbered, key)


def _given(name: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]], ddl: str, key: tuple[str, ...]) -> _Content:
    digest = hashlib.sha256(repr((columns, rows)).encode()).hexdigest()[:32]
    return _content_of(digest, rows_given(name, columns, rows, Schema.of(ddl)), key)


def _content_of(digest: str, numbered: Numbered, key: tuple[str, ...]) -> _Content:
    refuse_keys(numbered, key)
    batches = numbered.table.combine_chunks().to_batches()
    return _Content(digest, batches[0] if batches else pa.RecordBatch.from_pylist([], numbered.table.schema))

"""A directory of Parquet files as a store: data files first, synced, then the manifest that makes them count."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa

from penstock.core.schema import Schema, type_text
from penstock.errors import Damaged, DamagedStore, DiskFull, NotFound, PenstockError, SinkError, SinkUnavailable, StorageError
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.files.parquet.compaction import compact, forget, planned, sweep_orphans
from penstock.sinks.stores.files.parquet.definition import ParquetDefinition
from penstock.sinks.stores.files.parquet.files import write_data, write_deletes
from penstock.sinks.stores.files.parquet.manifest import KEPT, File, Manifest, Manifests
from penstock.sinks.stores.files.parquet.reading import rows_of
from penstock.sinks.stores.port import AFRESH, Changes, Note, Refusal
from penstock.storage.port import Storage


class ParquetStore:
    """One directory. Files are compacted in a thread, behind epochs that leave enough small ones."""

    def __init__(
        self, definition: ParquetDefinition, spec: SinkSpec, storage: Storage, clock: Callable[[], float] = time.time
    ) -> None:
        self._definition, self._spec, self._storage, self._clock = definition, spec, storage, clock
        self._manifests = Manifests(storage)
        self._schema: Schema | None = None  # of the directory and the flow together; None: not open
        self._swept = False  # whether what failed attempts left was removed since the start
        self._compacting: threading.Thread | None = None

    @property
    def called(self) -> str:
        return f"Parquet directory {self._definition.directory}"

    def open(self) -> None:
        self.close()
        with self._translated("be opened"):
            found = self._manifests.newest() or self._made()
            self._check(found)
            self._manifests.sync(found)
            self._schema, self._swept = self._together(found.schema), False

    @contextmanager
    def transaction(self) -> Iterator["ParquetTransaction"]:
        if self._schema is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with self._translated("take an epoch"):
            base = self._manifests.newest()
            if base is None:
                raise SinkUnavailable(
                    f"the manifest of {self.called} is gone", "what it held is delivered again, as far as it is kept"
                )
            transaction = ParquetTransaction(self._storage, self._spec, replace(base, schema=self._schema), self.called)
            try:
                yield transaction
                committed = transaction.commit()
            except BaseException:
                transaction.abandon()
                raise
        if committed:
            self._tidy(committed)

    def close(self) -> None:
        if self._compacting:
            self._compacting.join()
        self._schema = self._compacting = None

    def _made(self) -> Manifest:
        spec, by = self._spec, self._definition.partition_by
        first = Manifest(spec.flow, spec.name, spec.schema, spec.key, by, version=-1)
        made = self._manifests.change(first, lambda base: base if base.version < 0 else None) or self._manifests.newest()
        assert made
        return made

    def _check(self, found: Manifest) -> None:
        mine, spec = f"sink {self._spec.name} of flow {self._spec.flow}", self._spec
        if (found.flow, found.sink) != (spec.flow, spec.name):
            raise SinkError(
                f"{self.called} belongs to sink {found.sink} of flow {found.flow}, not to {mine}", hint="name another directory"
            )
        for what, there, wanted in (
            ("key", found.key, spec.key),
            ("partition_by", found.partition_by, self._definition.partition_by),
        ):
            if there != wanted:
                raise SinkError(
                    f"{self.called} has {what} {', '.join(there) or 'none'}, not {', '.join(wanted) or 'none'}",
                    hint="a directory keeps what it was made with; name another one",
                )

    def _together(self, there: Schema) -> Schema:
        """The columns that are there and those that are new, which older rows do not have."""
        mine, fields = self._spec.schema, []
        for f in there:
            if f.name in mine and mine.type(f.name) != f.type:
                raise SinkError(
                    f"column {f.name!r} of {self.called} is {type_text(f.type)}, not {type_text(mine.type(f.name))}",
                    hint="cast the column in the flow, or name another directory",
                )
            fields.append(f if f.name in mine else f.with_nullable(True))
        return Schema(pa.schema([*fields, *(f.with_nullable(True) for f in mine if f.name not in there)]))

    def _tidy(self, manifest: Manifest) -> None:
        if not self._swept:
            with suppress(PenstockError):  # what is left takes space and nothing else; the next start tries again
                sweep_orphans(self._storage)
            self._swept = True
        due = planned(manifest) or manifest.replaced or manifest.version % KEPT == 0
        if due and not (self._compacting and self._compacting.is_alive()):
            self._compacting = threading.Thread(target=self._compact, name=f"compact-{self._spec.name}", daemon=True)
            self._compacting.start()

    def _compact(self) -> None:
        with suppress(PenstockError):  # the files stay as they are, and are looked at again behind the next epoch
            compact(self._storage, planned, self._clock())
            forget(self._storage, self._definition.keep.total_seconds(), self._clock())

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (StorageError, DiskFull) as error:
            raise SinkUnavailable(f"{self.called} cannot {doing}: {error.what}", *error.detail, hint=error.hint) from error


class ParquetTransaction:
    one_moment = True

    def __init__(self, storage: Storage, spec: SinkSpec, base: Manifest, called: str) -> None:
        self._storage, self._spec, self._base, self._called = storage, spec, base, called
        self._data: list[File] = []
        self._deletes: list[File] = []
        self._note: Note | None = None

    def note(self) -> Note | None:
        return Note(self._base.marker) if self._base.marker else None

    def keep(self, note: Note) -> None:
        self._note = note

    def write(self, changes: Changes) -> Sequence[Refusal]:
        sequence, key = self._base.sequence + 1, list(self._spec.key)
        if key and self._base.data:
            replaced = [] if self._spec.unique else [changes.put.select(key)]
            keys = pa.concat_tables([changes.gone.select(key), *replaced])
            self._deletes = write_deletes(self._storage, keys, sequence)
        rows = changes.put.select(self._spec.schema.names)
        self._data += write_data(self._storage, rows, self._base.partition_by, sequence)
        return ()

    def rows(self) -> Iterator[pa.Table]:
        try:
            found = rows_of(self._storage, self._base)
        except (Damaged, NotFound) as error:
            raise DamagedStore(f"{self._called} cannot be read: {error.what}", hint=AFRESH) from error
        yield found.select(self._spec.schema.names)

    def commit(self) -> Manifest | None:
        """Publishes the next manifest, behind whatever compaction has published meanwhile."""
        if self._note is None and not self._data and not self._deletes:
            return None
        base, manifests = self._base, Manifests(self._storage)
        data, deletes = tuple(self._data), tuple(self._deletes)
        self._data, self._deletes = [], []  # from here on they may count, whatever happens

        def changed(newest: Manifest) -> Manifest | None:
            if newest.sequence != base.sequence:
                return None
            return replace(
                newest,
                schema=base.schema,
                sequence=base.sequence + 1,
                marker=self._note.marker if self._note else base.marker,
                data=(*newest.data, *data),
                deletes=(*newest.deletes, *deletes),
            )

        committed = manifests.change(base, changed)
        # Whoever stood still for so long that the version it wrote had come and gone finds a newer one of another driver.
        newest = manifests.newest()
        if committed is None or newest is None or newest.marker != committed.marker:
            raise SinkUnavailable(f"{self._called} was written by another driver meanwhile")
        return committed

    def abandon(self) -> None:
        for file in (*self._data, *self._deletes):
            with suppress(PenstockError):
                self._storage.remove(file.path, durable=False)

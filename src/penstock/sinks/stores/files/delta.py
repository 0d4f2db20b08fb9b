"""A Delta table, kept in step: each epoch is one commit of its log, with the marker as application transactions (`txn`) inside."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import orjson
import pyarrow as pa

from penstock.errors import BadInput, SinkError, SinkUnavailable, install
from penstock.sinks.port import Marker, SinkSpec
from penstock.sinks.stores.arguments import names
from penstock.sinks.stores.definition import StoreDefinition
from penstock.sinks.stores.port import Changes, Note, Refusal

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from penstock.sinks.port import SinkContext
    from penstock.sinks.stores.port import Store

_GONE = "__leaves"  # bool, in what is merged: the row of this key goes
_LASTING = ("Invalid data found", "Error during planning", "Invariant")  # in errors that do not pass: constraints, types


@dataclass(frozen=True)
class DeltaDefinition(StoreDefinition):
    """`stream.sink(delta(…))`"""

    path: str
    key: tuple[str, ...] | None = None
    partition_by: tuple[str, ...] = ()

    kind: ClassVar[str] = "delta"

    @property
    def target(self) -> str:
        return PurePath(self.path).name

    def emptied(self, flow: str, name: str) -> str:
        return f"remove the Delta table {self.path if '://' in self.path else os.path.abspath(self.path)}"

    def store(self, context: "SinkContext") -> "Store":
        return DeltaStore(self, context.spec)


def delta(
    path: str | os.PathLike[str], *, key: str | Iterable[str] | None = None, partition_by: str | Iterable[str] = ()
) -> DeltaDefinition:
    """A Delta table: `sales.sink(delta("lake/sales"))`, or `delta("s3://bucket/sales")`.

    The table is made where it is missing, and gains columns that the flow gains. `key` names the columns that tell rows apart; left
    out, they are those of the step, and rows that have none are appended. `partition_by` holds for a table that is made. Needs the
    extra `delta`."""
    given = os.fspath(path)
    if not PurePath(given).name:
        raise BadInput(f"{given!r} is no place for a Delta table", hint='name a directory: delta("lake/sales")')
    return DeltaDefinition(given, names(key), names(partition_by) or ())


class DeltaStore:
    """One table. Commits are never rebased: each follows the version whose marker was read, or fails."""

    def __init__(self, definition: DeltaDefinition, spec: SinkSpec) -> None:
        self._definition, self._spec = definition, spec
        self._table: DeltaTable | None = None

    @property
    def called(self) -> str:
        return f"Delta table {self._definition.path}"

    def open(self) -> None:
        self.close()
        with self._translated("be opened"):
            library = _library()
            if not library.DeltaTable.is_deltatable(self._definition.path):
                library.DeltaTable.create(
                    self._definition.path,
                    self._spec.schema.arrow,
                    mode="ignore",
                    partition_by=list(self._definition.partition_by) or None,
                )
            table = library.DeltaTable(self._definition.path)
            self._fit(table)
            self._table = table

    @contextmanager
    def transaction(self) -> Iterator["DeltaTransaction"]:
        if self._table is None:
            raise SinkError(f"{self.called} is not open", hint="call open() first")
        with self._translated("take an epoch"):
            self._table.update_incremental()
            transaction = DeltaTransaction(self._table, self._spec)
            yield transaction
            if transaction.commit() and "://" not in self._definition.path:
                self._table.update_incremental()
                _sync(self._definition.path, self._table.version())

    def close(self) -> None:
        self._table = None

    def _fit(self, table: "DeltaTable") -> None:
        """Adds columns that are new; SinkError if those that are there have other types."""
        library = _library()
        wanted = library.Schema.from_arrow(self._spec.schema.arrow).fields
        there = {field.name.lower(): field for field in table.schema().fields}
        for field in wanted:
            found = there.get(field.name.lower())
            if found is not None and found.type != field.type:
                raise SinkError(
                    f"column {field.name!r} of {self.called} is {_word(found.type)}, not {_word(field.type)}",
                    hint="cast the column in the flow, or name another table",
                )
        new = [library.Field(f.name, f.type, nullable=True) for f in wanted if f.name.lower() not in there]
        if new:
            table.alter.add_columns(new)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        errors = _library().exceptions
        try:
            yield
        except errors.CommitFailedError as error:
            raise SinkUnavailable(f"{self.called} was written by somebody else meanwhile", str(error)) from error
        except (errors.DeltaError, OSError) as error:
            lasting = isinstance(error, errors.SchemaMismatchError | errors.DeltaProtocolError | errors.TableNotFoundError)
            kind = SinkError if lasting or any(text in str(error) for text in _LASTING) else SinkUnavailable
            raise kind(f"{self.called} cannot {doing}", *str(error).splitlines()[:5]) from error


class DeltaTransaction:
    """Notes what is to be done; `commit` does it, as one commit.

    The generation stands under an application id of flow and sink, the epoch under one that has the incarnation besides; which
    incarnation that is says a property of the table, set before its first epoch."""

    one_moment = True

    def __init__(self, table: "DeltaTable", spec: SinkSpec) -> None:
        self._table, self._spec = table, spec
        self._id = f"penstock/{spec.flow}/{spec.name}"
        self._changes: Changes | None = None
        self._note: Note | None = None

    def note(self) -> Note | None:
        generation = self._table.transaction_version(self._id)
        incarnation = self._table.metadata().configuration.get(self._id)
        if generation is None or incarnation is None:
            return None
        epoch = self._table.transaction_version(f"{self._id}/{incarnation}")
        return Note(Marker(incarnation, generation, -1 if epoch is None else epoch))

    def write(self, changes: Changes) -> Sequence[Refusal]:
        self._changes = changes
        return ()

    def keep(self, note: Note) -> None:
        self._note = note

    def rows(self) -> Iterator[pa.Table]:
        columns = ", ".join(map(_quoted, self._spec.schema.names))
        found = _library().QueryBuilder().register("t", self._table).execute(f"SELECT {columns} FROM t")
        rows = pa.table(found.read_all())
        plain = [f for f in self._spec.schema if not pa.types.is_nested(f.type)]  # texts come as views of texts
        for f in plain:
            rows = rows.set_column(rows.column_names.index(f.name), f.name, rows[f.name].cast(f.type))
        yield rows

    def commit(self) -> bool:
        """False if there is nothing to do."""
        if self._changes is None and self._note is None:
            return False
        once = self._commit_properties()
        if self._changes is None:
            schema, by = self._table.schema(), self._table.metadata().partition_columns
            self._table.create_write_transaction([], "append", schema, by or None, commit_properties=once)
        elif not self._spec.key or (not self._changes.gone.num_rows and (self._spec.unique or not self._table.file_uris())):
            rows = self._changes.put.select(self._spec.schema.names)
            _library().write_deltalake(self._table, rows, mode="append", schema_mode="merge", commit_properties=once)
        else:
            self._merge(self._changes, once)
        return True

    def _commit_properties(self) -> Any:
        """With no retries a commit follows the version that was read, whatever else is compatible with it."""
        library, markers = _library(), []
        if self._note:
            marker = self._note.marker
            if self._table.metadata().configuration.get(self._id) != marker.incarnation:
                self._table.alter.set_table_properties(
                    {self._id: marker.incarnation},
                    raise_if_not_exists=False,
                    commit_properties=library.CommitProperties(max_commit_retries=0),
                )
            markers = [
                library.Transaction(self._id, marker.generation),
                library.Transaction(f"{self._id}/{marker.incarnation}", marker.epoch),
            ]
        return library.CommitProperties(app_transactions=markers, max_commit_retries=0)

    def _merge(self, changes: Changes, once: Any) -> None:
        """Rows that are put in and those that go, in one commit."""
        columns, key = self._spec.schema.names, self._spec.key
        rows = pa.concat_tables([changes.put.select(columns), changes.gone.select(columns)])
        gone = pa.repeat(pa.scalar(False), changes.put.num_rows), pa.repeat(pa.scalar(True), changes.gone.num_rows)
        values = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
        same = " AND ".join(
            f"(t.{_quoted(name)} {'IS NOT DISTINCT FROM' if rows[name].null_count else '='} s.{_quoted(name)})" for name in key
        )
        self._table.merge(
            rows.append_column(_GONE, pa.chunked_array(gone)),
            same,
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            commit_properties=once,
        ).when_matched_delete(f"s.{_GONE}").when_matched_update(values).when_not_matched_insert(
            values, predicate=f"NOT s.{_GONE}"
        ).execute()


def _sync(path: str, version: int) -> None:
    """Brings a commit of a local table to disk, with its files: deltalake leaves that to the operating system."""
    from penstock.storage.local import LocalStorage

    storage, log = LocalStorage(path), f"_delta_log/{version:020d}.json"
    actions = [orjson.loads(line) for line in storage.read(log).to_pybytes().splitlines()]
    for name in [*(unquote(action["add"]["path"]) for action in actions if "add" in action), log]:
        appender = storage.append(name)
        try:
            appender.sync()
        finally:
            appender.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _word(t: Any) -> str:
    return str(getattr(t, "type", t))


def _library() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise SinkError("the library of Delta tables is not installed", hint=install("deltalake")) from error
    return deltalake

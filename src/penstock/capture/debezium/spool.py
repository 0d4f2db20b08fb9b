"""Batches on disk until they are written, as Debezium need not send them again as they were; snapshots until they are complete; and
how far Debezium has come while nothing was changed."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.port import Batch, Changes, Json, Table, TableFacts, Transactions, Truncate, Unchanged
from penstock.core.arrow import array_of, one_array, table_of, values_in
from penstock.errors import AlreadyThere, Damaged, NotFound
from penstock.storage.port import Storage

_BATCHES, _SNAPSHOTS, _IDLE, _HISTORY = "batches", "snapshots", "idle", "history"
_COMPLETE = "complete"
_ABOUT = b"penstock"
_TEXTS = ("key", "before", "after", "source")


class Spool:
    """Holds the batch that is being written, a snapshot, and an offset."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def put(self, batch: Batch) -> Json:
        """Makes the batch durable; the intent by which it is found again."""
        name = f"{_BATCHES}/{uuid.uuid4().hex}"
        self._storage.publish(name, encoded(batch))
        return {"file": name}

    def take(self, intent: Json) -> Batch:
        """The batch that was put; Damaged if it is not there any more."""
        try:
            return decoded(self._storage.read(intent["file"]), intent)
        except (NotFound, pa.ArrowInvalid, KeyError, ValueError) as error:
            raise Damaged(
                "a batch of a capture that was being written is gone",
                str(intent.get("file")),
                hint="restore the capture's directory, or begin with another name",
            ) from error

    def put_part(self, snapshot: str, number: int, batch: Batch) -> None:
        """Keeps a part of a snapshot, which counts once the snapshot is complete."""
        self._storage.publish(f"{_SNAPSHOTS}/{snapshot}/{number:08d}", encoded(batch))

    def complete(self, snapshot: str, parts: int, offset: Mapping[str, Any]) -> None:
        """The snapshot has so many parts; Debezium goes on behind it."""
        self._storage.publish(f"{_SNAPSHOTS}/{snapshot}/{_COMPLETE}", orjson.dumps({"parts": parts, "offset": offset}))

    def completed(self, snapshot: str) -> tuple[int, Mapping[str, Any]]:
        """How many parts it has, and the offset behind it."""
        told = orjson.loads(self._storage.read(f"{_SNAPSHOTS}/{snapshot}/{_COMPLETE}").to_pybytes())
        return told["parts"], told["offset"]

    @staticmethod
    def part(snapshot: str, number: int) -> Json:
        """The intent of a part."""
        return {"file": f"{_SNAPSHOTS}/{snapshot}/{number:08d}"}

    def clear(self) -> None:
        """What was put is written."""
        for name in self._storage.list(_BATCHES):
            self._storage.remove(f"{_BATCHES}/{name}", durable=False)

    def forget(self, snapshot: str) -> None:
        """This snapshot is written."""
        self._storage.remove(f"{_SNAPSHOTS}/{snapshot}", durable=False)

    def reset(self) -> None:
        """Nothing that is here counts."""
        for name in (_BATCHES, _SNAPSHOTS, _IDLE, _HISTORY):
            self._storage.remove(name)

    def remember(self, history: str) -> None:
        """Adds to Debezium's history of schemas, before a batch that may depend on it is given out."""
        file = self._storage.append(_HISTORY)
        try:
            file.write(history.encode())
            file.sync()
        finally:
            file.close()

    def history(self) -> str:
        """The whole history: one record a line, the last of which counts only if it is whole."""
        try:
            text = self._storage.read(_HISTORY).to_pybytes().decode(errors="replace")
        except NotFound:
            return ""
        return text[: text.rfind("\n") + 1]

    def idle(self, last: str, offset: Mapping[str, Any]) -> None:
        """Notes down, before the database is told, that nothing was changed between a transaction and this offset."""
        older = self._storage.list(_IDLE)
        number = max((int(name) for name in older), default=0) + 1
        try:
            self._storage.publish(f"{_IDLE}/{number:012d}", orjson.dumps({"last": last, "offset": offset}))
        except AlreadyThere:
            return
        for name in older:
            self._storage.remove(f"{_IDLE}/{name}", durable=False)

    def idled(self, last: str) -> Mapping[str, Any] | None:
        """The offset that was noted down behind this transaction."""
        for name in reversed(self._storage.list(_IDLE)):
            told = orjson.loads(self._storage.read(f"{_IDLE}/{name}").to_pybytes())
            if told["last"] == last:
                found: Mapping[str, Any] = told["offset"]
                return found
        return None


def encoded(batch: Batch) -> bytes:
    """The batch as bytes; its intent is left out."""
    transactions, tables = batch.transactions, [each.table for each in batch.changes]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "table": pa.array(np.repeat(np.arange(len(tables)), [len(each) for each in batch.changes]), pa.int32()),
        "op": pa.array(_joined([each.op for each in batch.changes], np.uint8), pa.uint8()),
        "transaction": array_of(_joined([each.transaction for each in batch.changes], np.int64)),
        "index": array_of(_joined([each.index for each in batch.changes], np.int64)),
    }
    texts = {name: pa.chunked_array([getattr(each, name) for each in batch.changes], pa.utf8()) for name in _TEXTS}
    about = {
        "position": batch.position,
        "tables": tables,
        "facts": [[*table, of.schema, of.key] for table, of in batch.tables.items()],
        "truncates": [[*each.table, each.transaction, each.index, each.source] for each in batch.truncates],
        "unchanged": [_places(each.unchanged) for each in batch.changes],
        "ids": values_in(transactions.id, str),
        **{name: getattr(transactions, name).tolist() for name in ("xid", "lsn", "time", "begins", "ends")},
    }
    rows = table_of({**columns, **texts}).replace_schema_metadata({_ABOUT: orjson.dumps(about)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue().to_pybytes()


def decoded(data: pa.Buffer, intent: Json) -> Batch:
    """What `encoded` made."""
    rows = pa.ipc.open_stream(data).read_all().combine_chunks()
    about = orjson.loads((rows.schema.metadata or {})[_ABOUT])
    tables: list[Table] = [(schema, table) for schema, table in about["tables"]]
    xid, lsn, time = (np.array(about[name], np.int64) for name in ("xid", "lsn", "time"))
    begins, ends = (np.array(about[name], np.bool_) for name in ("begins", "ends"))
    return Batch(
        intent,
        about["position"],
        Transactions(pa.array(about["ids"], pa.utf8()), xid, lsn, time, begins, ends),
        [_changes(rows, number, table, about["unchanged"][number]) for number, table in enumerate(tables)],
        [Truncate((schema, table), *more) for schema, table, *more in about["truncates"]],
        {(schema, table): TableFacts(ddl, tuple(key)) for schema, table, ddl, key in about["facts"]},
    )


def unchanged(places: Mapping[str, Sequence[int]], count: int) -> Unchanged | None:
    """Which values of so many changes the database did not send. Every row was in the snapshot or has come since, so that the log
    knows them, and the database need not be asked."""
    if not places:
        return None
    flags = {name: np.zeros(count, np.bool_) for name in places}
    for name, of in places.items():
        flags[name][list(of)] = True
    return Unchanged(flags, lambda rows: {})


def _places(of: Unchanged | None) -> dict[str, list[int]]:
    return {name: np.flatnonzero(flags).tolist() for name, flags in of.columns.items()} if of else {}


def _changes(rows: pa.Table, number: int, table: Table, places: Mapping[str, Sequence[int]]) -> Changes:
    mine = rows.filter(pc.equal(rows["table"], pa.scalar(number, pa.int32()))).combine_chunks()
    op, transaction, index = (one_array(mine[name]).to_numpy(zero_copy_only=False) for name in ("op", "transaction", "index"))
    key, before, after, source = (one_array(mine[name]) for name in _TEXTS)
    return Changes(table, op.astype(np.uint8), key, before, after, transaction, index, source, unchanged(places, len(key)))


def _joined(parts: Sequence[Any], type: Any) -> Any:
    return np.concatenate([np.zeros(0, type), *parts])

"""A part of a copy on disk, until it is written: read again it would be another one. And how far a slot was confirmed."""

import uuid
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.capture import port
from penstock.capture.port import Changes, Json, Table, TableFacts, Transactions
from penstock.core.arrow import values_in
from penstock.errors import Damaged, NotFound
from penstock.storage.port import Storage

_CHUNKS, _CONFIRMED = "chunks", "confirmed"


class Spool:
    """Holds one batch of a copy: the rows of a chunk, or that a table is emptied."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def put(self, batch: port.Batch) -> Json:
        """Makes the batch durable; the intent by which it is found again."""
        transactions = batch.transactions
        table = batch.changes[0].table if batch.changes else batch.truncates[0].table
        return {
            "kind": "chunk",
            "file": self._stored(batch.changes[0]) if batch.changes else None,
            "table": list(table),
            "id": values_in(transactions.id, str)[0],
            "lsn": int(transactions.lsn[0]),
            "time": int(transactions.time[0]),
            "position": dict(batch.position),
            "facts": [[facts.schema, list(facts.key)] for facts in batch.tables.values()],
        }

    def take(self, intent: Json) -> port.Batch:
        """The batch that was put; Damaged if it is not there any more."""
        schema, table = intent["table"]
        place = intent["id"], intent["lsn"], intent["time"]
        if intent["file"] is None:
            return replace(emptied_batch((schema, table), *place), intent=intent, position=intent["position"])
        rows = self._rows(intent)
        keys, after = (rows[name].combine_chunks() for name in ("key", "after"))
        ((of, key),) = intent["facts"]
        made = chunk_batch((schema, table), keys, after, *place)
        facts = {(schema, table): TableFacts(of, tuple(key))}
        return replace(made, intent=intent, position=intent["position"], tables=facts)

    def clear(self) -> None:
        """What was put is written."""
        for name in self._storage.list(_CHUNKS):
            self._storage.remove(f"{_CHUNKS}/{name}", durable=False)

    def confirm(self, lsn: int) -> None:
        """Notes down, before the server is told, that nothing before this position is missing."""
        older = self._storage.list(_CONFIRMED)
        if f"{lsn:016x}" not in older:
            self._storage.publish(f"{_CONFIRMED}/{lsn:016x}", b"")
        for name in older:
            if name < f"{lsn:016x}":
                self._storage.remove(f"{_CONFIRMED}/{name}", durable=False)

    def confirmed(self) -> int:
        return max((int(name, 16) for name in self._storage.list(_CONFIRMED)), default=0)

    def _stored(self, changes: Changes) -> str:
        name = f"{_CHUNKS}/{uuid.uuid4().hex}"
        rows = pa.table({"key": changes.key, "after": changes.after})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        self._storage.publish(name, sink.getvalue().to_pybytes())
        return name

    def _rows(self, intent: Json) -> pa.Table:
        try:
            return pa.ipc.open_stream(self._storage.read(intent["file"])).read_all().combine_chunks()
        except (NotFound, pa.ArrowInvalid) as error:
            raise Damaged(
                f"a chunk of table {'.'.join(intent['table'])} that was being written is gone",
                intent["file"],
                hint="restore the capture's directory, or begin with another name",
            ) from error


def chunk_batch(table: Table, keys: pa.Array, after: pa.Array, id: str, lsn: int, time: int) -> port.Batch:
    """Rows of a copy as a transaction of their own."""
    count = len(keys)
    ops, nowhere = np.full(count, port.READ, np.uint8), np.zeros(count, np.int64)
    changes = Changes(table, ops, keys, pa.nulls(count, pa.utf8()), after, nowhere, np.arange(count))
    return port.Batch({}, {}, _alone(id, lsn, time), [changes], copy=True)


def emptied_batch(table: Table, id: str, lsn: int, time: int) -> port.Batch:
    """All rows of a table go, in a transaction of its own."""
    return port.Batch({}, {}, _alone(id, lsn, time), truncates=[port.Truncate(table, 0, 0)])


def _alone(id: str, lsn: int, time: int) -> Transactions:
    one = np.ones(1, np.bool_)
    return Transactions(pa.array([id], pa.utf8()), np.array([-1]), np.array([lsn]), np.array([time]), one, one)

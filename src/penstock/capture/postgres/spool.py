"""A chunk of a copy on disk, until it is written: read again it would be another one. And how far a slot was confirmed."""

import uuid
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.capture import port
from penstock.capture.port import Changes, Json, TableFacts, Transactions
from penstock.core.arrow import values_in
from penstock.errors import Damaged, NotFound
from penstock.storage.port import Storage

_CHUNKS, _CONFIRMED = "chunks", "confirmed"


class Spool:
    """Holds one chunk."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def put(self, batch: port.Batch) -> Json:
        """Makes the batch durable; the intent by which it is found again."""
        (changes,) = batch.changes
        name = f"{_CHUNKS}/{uuid.uuid4().hex}"
        rows = pa.table({"key": changes.key, "after": changes.after})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        self._storage.publish(name, sink.getvalue().to_pybytes())
        transactions = batch.transactions
        told = {str(key): value for key, value in batch.position.items()}
        facts = {table: (of.schema, list(of.key)) for table, of in batch.tables.items()}
        return {
            "kind": "chunk",
            "file": name,
            "table": list(changes.table),
            "id": values_in(transactions.id, str)[0],
            "lsn": int(transactions.lsn[0]),
            "time": int(transactions.time[0]),
            "position": told,
            "facts": list(facts.values()),
        }

    def take(self, intent: Json) -> port.Batch:
        """The batch that was put; Damaged if it is not there any more."""
        try:
            rows = pa.ipc.open_stream(self._storage.read(intent["file"])).read_all().combine_chunks()
        except (NotFound, pa.ArrowInvalid) as error:
            raise Damaged(
                f"a chunk of table {'.'.join(intent['table'])} that was being written is gone",
                intent["file"],
                hint="restore the capture's directory, or begin with another name",
            ) from error
        schema, table = intent["table"]
        ((of, key),) = intent["facts"]
        keys, after = (rows[name].combine_chunks() for name in ("key", "after"))
        return replace(
            chunk_batch((schema, table), keys, after, intent["id"], intent["lsn"], intent["time"]),
            intent=intent,
            position=intent["position"],
            tables={(schema, table): TableFacts(of, tuple(key))},
        )

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


def chunk_batch(table: port.Table, keys: pa.Array, after: pa.Array, id: str, lsn: int, time: int) -> port.Batch:
    """Rows of a copy as a transaction of their own."""
    count = len(keys)
    one = np.ones(1, np.bool_)
    transactions = Transactions(pa.array([id], pa.utf8()), np.array([-1]), np.array([lsn]), np.array([time]), one, one)
    ops, nowhere = np.full(count, port.READ, np.uint8), np.zeros(count, np.int64)
    changes = Changes(table, ops, keys, pa.nulls(count, pa.utf8()), after, nowhere, np.arange(count))
    return port.Batch({}, {}, transactions, [changes])

"""Records of changes: Debezium's envelope around each, whichever engine has made it, and a tombstone behind each delete; or, flat,
the row alone."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.port import CREATE, DELETE, READ, UPDATE, Bytes, Changes, Flags, Places, Transactions
from penstock.capture.writing.orders import Orders
from penstock.core.arrow import array_of, filled, joined, values_in
from penstock.core.columns import EVENT_TIME, KEY, VALUE
from penstock.core.schema import TIMESTAMP

OPS = (CREATE, UPDATE, DELETE, READ)
_NAMED = np.zeros(256, object)
_NAMED[list(OPS)] = [chr(op) for op in OPS]


@dataclass(frozen=True)
class Envelope:
    """How the records of a capture look."""

    capture: str
    connector: str
    database: str
    flat: bool = False

    def records(self, changes: Changes, orders: Orders, transactions: Transactions) -> pa.RecordBatch:
        """The changes of a table as its topic stores them, in their order."""
        times = pa.array(transactions.time[changes.transaction], pa.int64()).cast(TIMESTAMP)
        if self.flat:
            return _batch(flat_key(changes.key), changes.after, times)
        return _with_tombstones(_batch(changes.key, self._values(changes, orders, transactions), times), changes.op == DELETE)

    def _values(self, changes: Changes, orders: Orders, transactions: Transactions) -> pa.Array:
        ids = transactions.id.take(changes.transaction)
        now = str(time.time_ns() // 1_000_000)
        parts = (
            *('{"before":', _or_null(changes.before), ',"after":', _or_null(changes.after)),
            *(',"source":', self._sources(changes, transactions), ',"op":"', _ops(changes.op), f'","ts_ms":{now}'),
            *(',"transaction":{"id":"', ids, '","total_order":', _numbers(orders.total)),
            *(',"data_collection_order":', _numbers(orders.of_table), "}}"),
        )
        return joined(*parts, "")

    def _sources(self, changes: Changes, transactions: Transactions) -> pa.Array:
        """What is said of the place of each change: the same for all changes of a transaction."""
        if changes.source is not None:
            return changes.source
        schema, table = changes.table
        about = {"version": _version(), "connector": self.connector, "name": self.capture, "db": self.database}
        head = orjson.dumps(about | {"schema": schema, "table": table}).decode()[:-1]
        snapshot = "true" if len(changes) and changes.op[0] == READ else "false"
        used, which = np.unique(changes.transaction, return_inverse=True)
        micros, xids = transactions.time[used], transactions.xid[used]
        txids = _or_null(array_of(xids, xids < 0).cast(pa.utf8()))
        told = joined(
            *(head + f',"snapshot":"{snapshot}","ts_ms":', _numbers(micros // 1000), ',"ts_us":', _numbers(micros)),
            *(',"txId":', txids, ',"lsn":', _numbers(transactions.lsn[used]), "}", ""),
        )
        return told.take(which)


@cache
def _version() -> str:
    return version("penstock")


def _batch(keys: pa.Array, values: pa.Array, times: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([values.cast(pa.binary()), keys.cast(pa.binary()), times], [VALUE, KEY, EVENT_TIME])


def _with_tombstones(rows: pa.RecordBatch, deletes: Flags) -> pa.RecordBatch:
    """Behind each delete a record of its key without a value."""
    if not deletes.any():
        return rows
    places = np.repeat(np.arange(len(deletes)), 1 + deletes)
    again = np.r_[False, places[1:] == places[:-1]]
    taken = rows.take(places)
    values = pc.if_else(array_of(again), pa.scalar(None, pa.binary()), taken.column(VALUE))
    return pa.record_batch([values, taken.column(KEY), taken.column(EVENT_TIME)], [VALUE, KEY, EVENT_TIME])


def flat_key(keys: pa.Array) -> pa.Array:
    """A key of one column is its value alone, a text without quotes; several columns stay an object."""
    found = [orjson.loads(key) for key in values_in(keys, str)]
    return pa.array([_plain(next(iter(key.values()))) if len(key) == 1 else orjson.dumps(key).decode() for key in found], pa.utf8())


def wrapped(keys: Iterable[str]) -> pa.Array:
    """Flat keys as objects, of which `flat_key` makes the same again."""
    return pa.array([orjson.dumps({"": key}).decode() for key in keys], pa.utf8())


def _plain(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _ops(op: Bytes) -> pa.Array:
    return pa.array(_NAMED[op], pa.utf8())


def _or_null(texts: pa.Array) -> pa.Array:
    return filled(texts, "null")


def _numbers(numbers: Places) -> pa.Array:
    return array_of(numbers).cast(pa.utf8())

"""Repairs of a capture's topics: rows that the source has and the topic has not, and keys that are gone, as batches beside those of
the engine. Each lies on disk until it is written, so that one that was killed is finished by the next start."""

import uuid
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import orjson
import pyarrow as pa

from penstock.capture.port import DELETE, READ, Batch, Bytes, Changes, Json, Table, TableFacts, Transactions
from penstock.capture.writing.journal import CaptureState, Found
from penstock.capture.writing.writer import RESNAPSHOT, Writer
from penstock.core.arrow import chosen
from penstock.errors import Damaged, NotFollowable, NotFound
from penstock.storage.port import Storage

KIND = "repair"  # of an intent, and what `source.snapshot` says of these records
_FILES = "repairs"


@dataclass(frozen=True)
class Repair:
    """What a topic should say: of each key its row, or that it is gone."""

    table: Table
    facts: TableFacts
    keys: pa.Array  # of utf8, JSON
    rows: pa.Array  # of utf8, JSON; null: the key is gone

    @property
    def op(self) -> Bytes:
        gone = np.asarray(self.rows.is_null().to_numpy(zero_copy_only=False))
        return np.where(gone, np.uint8(DELETE), np.uint8(READ))


@dataclass(frozen=True)
class Marked:
    """What records of a repair say of where they come from."""

    capture: str
    connector: str
    database: str

    def source(self, table: Table, time: int, lsn: int) -> str:
        about = {"version": version("penstock"), "connector": self.connector, "name": self.capture, "db": self.database}
        place = {"schema": table[0], "table": table[1], "snapshot": KIND, "ts_ms": time // 1000, "ts_us": time}
        return orjson.dumps(about | place | {"txId": None, "lsn": lsn}).decode()


class Repairs:
    """Keeps repairs in the directory of a capture while they are written."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def batch(self, repair: Repair, state: CaptureState, marked: Marked, time: int) -> Batch:
        """The batch of a repair, behind which the engine goes on where it would have without it."""
        position = dict(state.position or {})
        told = max(time, int(position.get("time", 0)))
        if "time" in position:
            position["time"] = told  # a newer row never has an older time
        intent = {
            "kind": KIND,
            "file": self._stored(repair),
            "table": list(repair.table),
            "facts": [repair.facts.schema, list(repair.facts.key)],
            "id": f"{KIND}:{state.batch + 1}",
            "time": told,
            "source": marked.source(repair.table, told, int(position.get("lsn", -1))),
            "position": position,
        }
        return _made(intent, repair)

    def again(self, intent: Json) -> Batch:
        """The batch of a repair that was begun; Damaged if it is not there any more."""
        try:
            found = pa.ipc.open_stream(self._storage.read(intent["file"])).read_all().combine_chunks()
        except (NotFound, pa.ArrowInvalid) as error:
            what = f"a repair of table {'.'.join(intent['table'])} that was being written is gone"
            raise Damaged(what, intent["file"], hint="restore the capture's directory, or begin with another name") from error
        (schema, table), (columns, key) = intent["table"], intent["facts"]
        keys, rows = (found[name].combine_chunks() for name in ("key", "row"))
        return _made(intent, Repair((schema, table), TableFacts(columns, tuple(key)), keys, rows))

    def clear(self) -> None:
        """What was kept is written."""
        for name in self._storage.list(_FILES):
            self._storage.remove(f"{_FILES}/{name}", durable=False)

    def _stored(self, repair: Repair) -> str:
        name, rows = f"{_FILES}/{uuid.uuid4().hex}", pa.table({"key": repair.keys, "row": repair.rows})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        self._storage.publish(name, sink.getvalue().to_pybytes())
        return name


def finished(writer: Writer, storage: Storage, found: Found, resnapshot: bool = False) -> Found:
    """What the journal says once a repair that was begun is finished. NotFollowable if a resnapshot was begun and not finished, as
    topics lack what was missed until it is; resnapshot: it is about to be."""
    intent, repairs = found.unfinished or {}, Repairs(storage)
    if intent.get("kind") == KIND:
        found = Found(writer.write(repairs.again(intent)))
    repairs.clear()
    pending = found.state.resnapshot is not None and not found.state.resnapshot["done"]
    if not resnapshot and (pending or intent.get("kind") == RESNAPSHOT):
        raise NotFollowable(
            "a resnapshot of this capture was begun and not finished: its topics lack changes",
            hint=f"`penstock cdc run {writer.envelope.capture} --resnapshot` finishes it",
        )
    return found


def _made(intent: Json, repair: Repair) -> Batch:
    count, one = len(repair.keys), np.ones(1, np.bool_)
    time = np.array([intent["time"]])
    transactions = Transactions(pa.array([intent["id"]], pa.utf8()), np.array([-1]), np.array([-1]), time, one, one)
    before = _before(repair.keys, repair.rows)
    nowhere, index = np.zeros(count, np.int64), np.arange(count)
    source = pa.array([intent["source"]], pa.utf8()).take(nowhere)
    changes = Changes(repair.table, repair.op, repair.keys, before, repair.rows, nowhere, index, source)
    return Batch(intent, intent["position"], transactions, [changes], tables={repair.table: repair.facts})


def _before(keys: pa.Array, rows: pa.Array) -> pa.Array:
    """Of what is gone all that is known is the key."""
    return chosen(rows.is_null(), keys, pa.nulls(len(keys), pa.utf8()))

"""Batches of Debezium's engine that lie on disk are found again as they were."""

import pytest

from penstock.capture.debezium.position import DebeziumPosition
from penstock.capture.debezium.spool import Spool, decoded, encoded
from penstock.capture.port import Batch
from penstock.errors import Damaged
from penstock.storage.memory import MemoryStorage
from unit.capture.test_debezium_assembly import PLACEHOLDER, Sent, begin, change, end


def batch() -> Batch:
    rows = [begin("1:2"), change(1), change(2, "u", PLACEHOLDER), change(3, table="other"), change(0, "t"), end("1:2")]
    made = Sent().add(*rows, begin("2:3"), change(1, "d"), end("2:3"), lsn=9)
    assert made is not None
    return made


def same(one: Batch, other: Batch) -> bool:
    return encoded(one) == encoded(other)


def test_a_batch_is_found_again_as_it_was() -> None:
    spool, made = Spool(MemoryStorage()), batch()
    intent = spool.put(made)
    again = spool.take(intent)
    assert same(again, made)
    assert (again.intent, again.position, again.tables, again.truncates) == (intent, made.position, made.tables, made.truncates)
    for mine, theirs in zip(again.changes, made.changes, strict=True):
        assert mine.table == theirs.table
        assert (mine.key, mine.before, mine.after, mine.source) == (theirs.key, theirs.before, theirs.after, theirs.source)
        assert (mine.op.tolist(), mine.transaction.tolist(), mine.index.tolist()) == (
            theirs.op.tolist(),
            theirs.transaction.tolist(),
            theirs.index.tolist(),
        )
        assert (mine.unchanged is None) == (theirs.unchanged is None)
    spool.clear()
    with pytest.raises(Damaged, match="is gone"):
        spool.take(intent)


def test_bytes_that_are_none_of_a_batch_are_said_to_be_damaged() -> None:
    storage = MemoryStorage()
    storage.publish("batches/x", b"nothing of the kind")
    with pytest.raises(Damaged):
        Spool(storage).take({"file": "batches/x"})


def test_a_snapshot_counts_once_it_is_complete() -> None:
    spool, made = Spool(MemoryStorage()), batch()
    spool.put_part("s", 0, made)
    spool.put_part("s", 1, made)
    spool.complete("s", 2, {"at": {"lsn": 4}})
    assert spool.completed("s") == (2, {"at": {"lsn": 4}})
    assert same(spool.take(Spool.part("s", 1)), made)
    spool.forget("s")
    with pytest.raises(Damaged):
        spool.take(Spool.part("s", 0))


def test_an_offset_that_was_noted_down_while_nothing_changed_counts_behind_its_transaction_alone() -> None:
    spool = Spool(MemoryStorage())
    assert spool.idled("1:2") is None
    spool.idle("1:2", {"at": {"lsn": 4}})
    spool.idle("1:2", {"at": {"lsn": 5}})
    assert spool.idled("1:2") == {"at": {"lsn": 5}}
    assert spool.idled("2:3") is None
    spool.reset()
    assert spool.idled("1:2") is None


def test_a_position_is_read_back_and_one_of_a_later_version_refused() -> None:
    position = DebeziumPosition({"partition": {}, "at": {"lsn": 1}}, "s", 2, "1:2", "2:3", 4, 5, "system")
    assert DebeziumPosition.of(position.json()) == position
    with pytest.raises(Damaged, match="later version"):
        DebeziumPosition.of({"offset": None, "new": 1})


def test_encoding_an_empty_batch() -> None:
    made = Sent(DebeziumPosition({"partition": {}, "at": {}}, open="2:3", open_changes=1)).add(
        begin("2:3"), change(1), end("2:3"), lsn=3
    )
    assert made is not None
    assert made.changes == []
    import pyarrow as pa

    assert same(decoded(pa.py_buffer(encoded(made)), {}), made)

"""Debezium's records put together: whole transactions only, none of them twice, and snapshots as they are."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.capture.debezium.assembly import PLACEHOLDER, Assembly
from penstock.capture.debezium.position import DebeziumPosition
from penstock.capture.port import UNKNOWN, Batch, Truncate
from penstock.core.arrow import values_in
from penstock.errors import BadMessage, NotFollowable

COLUMNS = [["id", {"type": "INT32", "name": None}], ["note", {"type": "STRING", "name": None}]]
SCHEMAS = {"1": {"columns": COLUMNS, "key": ["id"]}}
AT = DebeziumPosition({"partition": {}, "at": {"lsn": 1}}, snapshot="s", last="0:1")


def begin(id: str) -> list[Any]:
    return ["shop.transaction", 0, {"id": id}, {"status": "BEGIN", "id": id}]


def end(id: str) -> list[Any]:
    return ["shop.transaction", 0, {"id": id}, {"status": "END", "id": id}]


def change(key: int, op: str = "c", note: str = "n", time: int = 5, table: str = "t", transaction: bool = True) -> list[Any]:
    row = {"id": key, "note": note}
    source = {"connector": "postgresql", "schema": "public", "table": table, "ts_us": time, "txId": 7, "lsn": 70}
    value = {"before": row if op == "d" else None, "after": None if op in "dt" else row, "source": source, "op": op}
    return [f"shop.public.{table}", 1, None if op == "t" else {"id": key}, value | {"transaction": {} if transaction else None}]


def heartbeat() -> list[Any]:
    return ["__debezium-heartbeat.shop", 0, {}, {"ts_ms": 1}]


class Sent:
    """What the process says, batch by batch."""

    def __init__(self, position: DebeziumPosition = AT, binlog: bool = False, bound: int = 10_000) -> None:
        self.assembly = Assembly(position, "shop", binlog, bound)
        self.number = 0

    def add(self, *rows: list[Any], lsn: int | None = None, quiet: bool = False, bytes: int = 100) -> Batch | None:
        self.number += 1
        inside = {"transaction_id": "x", "event": 3, "row": 1}
        offset = None if lsn is None else {"partition": {"server": "shop"}, "at": {"lsn": lsn, **inside}}
        said: Mapping[str, Any] = {"schemas": SCHEMAS, "rows": [*rows], "offset": offset, "number": self.number}
        self.assembly.add({**said, "quiet": quiet, "bytes": bytes})
        return self.assembly.take()


def keys(batch: Batch | None) -> list[str]:
    assert batch is not None
    return [key for changes in batch.changes for key in values_in(changes.key, str)]


def test_a_transaction_is_given_out_when_it_has_ended_and_not_before() -> None:
    sent = Sent()
    assert sent.add(begin("1:2"), change(1)) is None
    assert sent.add(change(2)) is None
    batch = sent.add(change(3), end("1:2"), begin("2:3"), change(4), lsn=9)
    assert keys(batch) == ['{"id":1}', '{"id":2}', '{"id":3}']
    assert batch is not None
    assert batch.transactions.id.to_pylist() == ["1:2"]
    assert (batch.transactions.begins.tolist(), batch.transactions.ends.tolist()) == ([True], [True])
    assert batch.position["offset"] == {"partition": {"server": "shop"}, "at": {"lsn": 9}}  # outside of any transaction
    assert batch.position["last"] == "1:2"
    assert sent.assembly.number == 3
    assert keys(sent.add(end("2:3"), lsn=10)) == ['{"id":4}']


def test_what_was_written_is_left_out_when_it_comes_again() -> None:
    sent = Sent(DebeziumPosition(AT.offset, last="1:2"))
    batch = sent.add(begin("1:2"), change(1), end("1:2"), begin("2:3"), change(2), end("2:3"), lsn=9)
    assert keys(batch) == ['{"id":2}']


def test_a_transaction_that_was_written_in_part_goes_on_where_it_was() -> None:
    sent = Sent(DebeziumPosition(AT.offset, last="1:2", open="2:3", open_changes=2))
    batch = sent.add(begin("2:3"), *(change(key) for key in range(5)), end("2:3"), lsn=9)
    assert keys(batch) == ['{"id":2}', '{"id":3}', '{"id":4}']
    assert batch is not None
    assert (batch.transactions.begins.tolist(), batch.transactions.ends.tolist()) == ([False], [True])
    assert batch.changes[0].index.tolist() == [2, 3, 4]


def test_a_transaction_that_was_written_up_to_its_end_is_ended() -> None:
    sent = Sent(DebeziumPosition(AT.offset, open="2:3", open_changes=2))
    batch = sent.add(begin("2:3"), change(1), change(2), end("2:3"), lsn=9)
    assert batch is not None
    assert (batch.changes, batch.transactions.ends.tolist()) == ([], [True])


def test_a_transaction_that_is_too_large_is_given_out_in_parts() -> None:
    sent = Sent(bound=250)
    assert sent.add(begin("2:3"), change(1)) is None
    assert sent.add(change(2)) is None
    part = sent.add(change(3))
    assert part is not None
    assert keys(part) == ['{"id":1}', '{"id":2}', '{"id":3}']
    assert (part.transactions.begins.tolist(), part.transactions.ends.tolist()) == ([True], [False])
    assert (part.position["offset"], part.position["open"], part.position["open_changes"]) == (AT.offset, "2:3", 3)
    rest = sent.add(change(4), end("2:3"), lsn=9)
    assert keys(rest) == ['{"id":4}']
    assert rest is not None
    assert (rest.transactions.begins.tolist(), rest.position["open"], rest.position["last"]) == ([False], "", "2:3")


def test_a_heartbeat_inside_of_a_transaction_ends_nothing() -> None:
    sent = Sent()
    assert sent.add(begin("1:2"), change(1), heartbeat()) is None
    assert sent.assembly.idle() is None
    assert keys(sent.add(end("1:2"), lsn=4)) == ['{"id":1}']


def test_an_offset_behind_which_nothing_was_changed_is_told_once() -> None:
    sent = Sent()
    assert sent.add(heartbeat(), begin("1:2"), end("1:2"), lsn=4) is None
    assert sent.assembly.idle() == {"partition": {"server": "shop"}, "at": {"lsn": 4}}
    assert sent.assembly.idle() is None
    assert sent.add(heartbeat()) is None
    assert sent.assembly.idle() is None


def test_times_never_go_back() -> None:
    sent = Sent()
    first = sent.add(begin("1:2"), change(1, time=9), end("1:2"), begin("2:3"), change(2, time=4), end("2:3"), lsn=9)
    second = sent.add(begin("3:4"), change(3, time=2), end("3:4"), lsn=10)
    assert first is not None
    assert second is not None
    assert (first.transactions.time.tolist(), second.transactions.time.tolist()) == ([9, 9], [9])


def test_a_truncate_of_a_binlog_is_a_transaction_that_has_ended() -> None:
    sent = Sent(binlog=True)
    batch = sent.add(begin("0-1-2"), change(0, "t"), lsn=9)
    assert batch is not None
    ((truncate),) = batch.truncates
    assert isinstance(truncate, Truncate)
    assert (truncate.table, truncate.index, batch.position["last"]) == (("public", "t"), 0, "0-1-2")
    assert truncate.source is not None
    assert '"lsn":70' in truncate.source


def test_ddl_of_a_binlog_ends_where_the_next_transaction_begins_or_the_server_is_quiet() -> None:
    sent = Sent(binlog=True)
    assert keys(sent.add(begin("0-1-2"), begin("0-1-3"), change(1), end("0-1-3"), begin("0-1-4"), lsn=9)) == ['{"id":1}']
    assert sent.assembly.idle() is None
    assert sent.add(heartbeat(), quiet=True, lsn=10) is None
    assert sent.assembly.idle() is not None


def test_values_that_were_not_sent_are_marked() -> None:
    batch = Sent().add(begin("1:2"), change(1), change(2, "u", PLACEHOLDER), end("1:2"), lsn=9)
    assert batch is not None
    (changes,) = batch.changes
    assert changes.unchanged is not None
    assert {name: flags.tolist() for name, flags in changes.unchanged.columns.items()} == {"note": [False, True]}
    assert changes.after.to_pylist() == ['{"id":1,"note":"n"}', f'{{"id":2,"note":{UNKNOWN}}}']


def test_rows_of_a_snapshot_are_a_transaction_of_their_own() -> None:
    sent = Sent(DebeziumPosition(None, snapshot="s"))
    assert sent.add(change(1, "r", transaction=False), change(2, "r", transaction=False), heartbeat(), lsn=3) is None
    assert (sent.assembly.part(2500, False), sent.assembly.part(1, False), sent.assembly.part(2500, True)) == (0, 1, 2)
    batch = sent.assembly.take_snapshot("snapshot:s:0", 2)
    assert keys(batch) == ['{"id":1}', '{"id":2}']
    assert batch.transactions.id.to_pylist() == ["snapshot:s:0"]
    assert batch.position["offset"] is None
    assert batch.tables[("public", "t")].schema == "id int, note string"


def test_a_table_without_a_key_and_a_change_without_a_transaction_are_refused() -> None:
    keyless = change(1)
    keyless[2] = None
    with pytest.raises(NotFollowable, match=r"table public\.t has no primary key"):
        Sent().add(begin("1:2"), keyless)
    with pytest.raises(BadMessage, match="outside of a transaction"):
        Sent().add(change(1))


def test_the_place_of_each_change_is_the_one_that_debezium_gives() -> None:
    batch = Sent().add(begin("1:2"), change(1), end("1:2"), lsn=9)
    assert batch is not None
    (source,) = values_in(batch.changes[0].source, str)  # type: ignore[arg-type]
    assert '"lsn":70' in source
    assert batch.transactions.xid.tolist() == [7]

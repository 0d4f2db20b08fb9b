"""Records of topics read by columns: the parts of envelopes, whatever the columns of a table are called and hold."""

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captured import Captured, Write
from penstock.capture.reconcile.hashing import hashes_of
from penstock.capture.reconcile.records import Records, blocks_of, enveloped_records, flat_records
from penstock.core.columns import KEY, VALUE
from penstock.errors import Damaged
from penstock.log.memory import MemoryLog
from penstock.log.port import TopicSpec

NASTY = ["source", "after", "before", "op", "txId", "lsn", 'q"u\\o', "ä ", "}"]
TEXTS = ['},"after":', ',"source":{', '},"op":"d"', '"txId":5', "\\", '"', "", "\n", "ä", '{"before":null,"after":', '\\"},"op":"']


def one(value: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([value]), pa.array([b"1"])], [VALUE, KEY])


def read(log: MemoryLog, topic: str = "shop.public.users") -> list[Records]:
    found = log.topic(topic)
    ends = [end.next for _, end in sorted(found.ends().items())]
    return [enveloped_records(block) for block in blocks_of(found, ends)]


def said(records: list[Records]) -> list[tuple[bytes, object, int]]:
    return [
        (key, None if row is None else orjson.loads(row), xid)
        for each in records
        for key, row, xid in zip(each.keys.to_list(), each.rows.to_list(), each.xid.tolist(), strict=True)
    ]


@given(st.lists(st.lists(st.one_of(st.none(), st.sampled_from(TEXTS), st.integers(0, 9)), min_size=9, max_size=9), max_size=8))
def test_rows_come_out_as_they_were_whatever_columns_are_called_and_hold(values: list[list[object]]) -> None:
    log = MemoryLog()
    captured = Captured(log, {"users": "id long"})
    rows = [{"id": i, **dict(zip(NASTY, each, strict=True))} for i, each in enumerate(values)]
    for row in rows:
        captured.write([Write("users", "c", row)], [Write("users", "u", row)])
    captured.write([Write("users", "d", row) for row in rows])
    expected: list[tuple[bytes, object, int]] = []
    for i, row in enumerate(rows):
        key = b'{"id":%d}' % i
        expected += [(key, row, 700 + 2 * i), (key, row, 701 + 2 * i)]
    last = 700 + 2 * len(rows)
    expected += [(b'{"id":%d}' % i, None, last) for i in range(len(rows)) for _ in "dt"]  # a tombstone has the delete's transaction
    assert said(read(log)) == expected


def test_the_row_before_is_not_taken_for_the_row() -> None:
    log = MemoryLog()
    topic = log.create(TopicSpec("shop.public.users"))
    value = '{"before":{"id":1,"after":null},"after":{"id":1,"source":2},"source":{"version":"1","lsn":77,"txId":"12"}'
    value += ',"op":"u","ts_ms":1,"transaction":null}'
    topic.append(0, one(value.encode()))
    (records,) = read(log)
    assert records.rows.to_list() == [b'{"id":1,"source":2}']
    assert (records.xid.tolist(), records.lsn.tolist()) == ([12], [77])


def test_a_record_that_is_no_change_is_not_passed_over() -> None:
    log = MemoryLog()
    topic = log.create(TopicSpec("shop.public.users"))
    topic.append(0, one(b'{"id":1}'))
    with pytest.raises(Damaged, match="is no change"):
        read(log)


def test_a_tombstone_whose_delete_was_compacted_away_belongs_to_no_transaction() -> None:
    log = MemoryLog()
    captured = Captured(log, {"users": "id long"})
    captured.write([Write("users", "c", {"id": 1}), Write("users", "c", {"id": 2})])
    (block,) = blocks_of(log.topic("shop.public.users"), [2])
    values = pl.Series([block.values[0], None], dtype=pl.Binary)
    records = enveloped_records(type(block)(0, np.arange(2), block.keys, values))
    assert said([records]) == [(b'{"id":1}', {"id": 1}, 700), (b'{"id":2}', None, -1)]


def test_flat_records_are_rows_without_transactions() -> None:
    log = MemoryLog()
    captured = Captured(log, {"users": "id long"}, flat=True)
    captured.write([Write("users", "c", {"id": 1}), Write("users", "d", {"id": 1})])
    (block,) = blocks_of(log.topic("shop.public.users"), [2])
    records = flat_records(block)
    assert said([records]) == [(b"1", {"id": 1}, -1), (b"1", None, -1)]


def test_a_frame_that_goes_on_behind_the_end_is_cut() -> None:
    log = MemoryLog()
    Captured(log, {"users": "id long"}).write([Write("users", "c", {"id": i}) for i in range(10)])
    (block,) = blocks_of(log.topic("shop.public.users"), [4])
    assert block.offsets.tolist() == [0, 1, 2, 3]
    assert len(block.keys) == len(block.values) == 4


def test_hashes_do_not_depend_on_where_a_text_stands() -> None:
    whole = pl.Series([b"xxabcdefghijklmnopqrs", b"xxabc"], dtype=pl.Binary)
    part = pl.DataFrame({"v": whole}).select(pl.col("v").bin.slice(2)).to_series()
    assert hashes_of(part).tolist() == hashes_of(pl.Series([b"abcdefghijklmnopqrs", b"abc"], dtype=pl.Binary)).tolist()

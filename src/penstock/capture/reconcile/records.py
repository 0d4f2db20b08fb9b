"""The records of a topic, by columns: of each the hash of its key and of its row, and which transaction wrote it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.capture.port import Flags, Places
from penstock.capture.reconcile.hashing import Canonical, Hashes, hashes_of
from penstock.core.columns import KEY, VALUE
from penstock.errors import Damaged
from penstock.log.port import Topic

BLOCK_ROWS, BLOCK_BYTES = 1 << 17, 64 << 20  # of records that are looked at together
# The words around the parts of an envelope. Rows hold no objects and their texts escape quotes, so each of these stands once.
_NO_BEFORE, _AFTER, _SOURCE, _OP = '{"before":null,"after":', '},"after":', ',"source":{', '},"op":"'
_XID, _LSN = r'"txId":"?([0-9]+)', r'"lsn":([0-9]+)'


@dataclass(frozen=True)
class Block:
    """Records of one partition that follow each other."""

    partition: int
    offsets: Places
    keys: pl.Series  # of bytes
    values: pl.Series  # of bytes; null: a tombstone


@dataclass(frozen=True)
class Records:
    """What the records of a block say."""

    offsets: Places
    keys: pl.Series  # of bytes
    rows: pl.Series  # of bytes; null: the key is gone
    xid: Places  # -1: no transaction, or nobody knows which
    lsn: Places  # of its commit; -1: nobody knows

    @property
    def alive(self) -> Flags:
        return self.rows.is_not_null().to_numpy()

    def key_hashes(self) -> Hashes:
        return hashes_of(self.keys)

    def row_hashes(self, canonical: Canonical | None) -> Hashes:
        return hashes_of(canonical.rows(self.rows) if canonical else self.rows)


def blocks_of(topic: Topic, ends: Sequence[int]) -> Iterator[Block]:
    """The records before these ends, partition by partition."""
    for partition, end in enumerate(ends):
        first = topic.ends()[partition].first
        parts: list[tuple[Places, pa.RecordBatch]] = []
        rows = size = 0
        for chunk in topic.read(partition, first, end) if end > first else ():
            parts.append((chunk.offsets, chunk.rows.select([KEY, VALUE])))
            rows, size = rows + chunk.rows.num_rows, size + chunk.rows.nbytes
            if rows >= BLOCK_ROWS or size >= BLOCK_BYTES:
                yield _block(partition, parts, end)
                parts, rows, size = [], 0, 0
        if parts:
            yield _block(partition, parts, end)


def _block(partition: int, parts: Sequence[tuple[Places, pa.RecordBatch]], end: int) -> Block:
    offsets = np.concatenate([offsets for offsets, _ in parts])
    table = pa.Table.from_batches([rows for _, rows in parts])
    keys, values = (pl.Series(table[name]) for name in (KEY, VALUE))
    count = int(np.searchsorted(offsets, end))  # the last frame may go on behind the end
    return Block(partition, offsets[:count], keys.head(count), values.head(count))


def flat_records(block: Block) -> Records:
    """Of a topic that holds rows alone."""
    unknown = np.full(len(block.keys), -1, np.int64)
    return Records(block.offsets, block.keys, block.values, unknown, unknown)


def enveloped_records(block: Block) -> Records:
    """Of a topic of changes. A tombstone belongs to the transaction of the delete before it."""
    texts = block.values.cast(pl.String, strict=False)
    value, there = pl.col("value"), texts.is_not_null().to_numpy()
    found = pl.DataFrame({"text": texts, "value": block.values}).with_columns(
        start=pl.when(pl.col("text").str.starts_with(_NO_BEFORE))
        .then(pl.lit(len(_NO_BEFORE), pl.UInt32))
        .otherwise(pl.col("text").str.find(_AFTER, literal=True) + len(_AFTER)),
        stop=pl.col("text").str.find(_SOURCE, literal=True),
        op=pl.col("text").str.find(_OP, literal=True),
    )
    if (found.select((pl.col("start") + pl.col("stop") + pl.col("op")).is_null()).to_series().to_numpy() & there).any():
        raise Damaged("a record of a capture's topic is no change", hint="was it written by another version, or by hand?")
    parts = found.select(
        row=value.bin.slice(pl.col("start"), pl.col("stop") - pl.col("start")),
        gone=value.bin.slice(pl.col("op") + len(_OP), 1) == b"d",
        source=value.bin.slice(pl.col("stop"), pl.col("op") - pl.col("stop")).cast(pl.String),
    ).with_columns(
        xid=pl.col("source").str.extract(_XID).cast(pl.Int64).fill_null(-1),
        lsn=pl.col("source").str.extract(_LSN).cast(pl.Int64).fill_null(-1),
    )
    gone = parts["gone"].fill_null(True)
    rows = pl.DataFrame({"row": parts["row"], "gone": gone}).select(pl.when(~pl.col("gone")).then(pl.col("row"))).to_series()
    xid, lsn = (_with_tombstones(block.keys, parts[name].to_numpy(), ~there) for name in ("xid", "lsn"))
    return Records(block.offsets, block.keys, rows, xid, lsn)


def _with_tombstones(keys: pl.Series, numbers: Places, tombstone: Flags) -> Places:
    if not tombstone.any():
        return numbers
    behind_own: npt.NDArray[np.bool_] = (keys == keys.shift(1)).fill_null(False).to_numpy()
    return np.where(tombstone & behind_own, np.r_[-1, numbers[:-1]], numbers)

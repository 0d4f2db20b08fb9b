"""The last record of keys in a topic, found through an index that is built by one look at all keys, when it is first asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.capture.port import Places, Table
from penstock.capture.writing.envelopes import flat_key
from penstock.capture.writing.key_index import KeyIndex
from penstock.core.arrow import values_in
from penstock.core.columns import KEY, VALUE
from penstock.errors import OffsetGone
from penstock.log.intake.partitioning import partitions_by_key
from penstock.log.port import Chunk, Topic


@dataclass(frozen=True)
class Written:
    """What a table's topic has: up to these offsets, and, since this one, rows with the columns that the table has now."""

    topic: Topic
    ends: Sequence[int]
    since: Sequence[int]


class LoggedRows:
    """The last records of the rows of a capture's tables. flat: the records are rows without an envelope."""

    def __init__(self, flat: bool) -> None:
        self._flat = flat
        self._tables: dict[Table, LastRecords] = {}

    def values(self, table: Table, keys: pa.Array, written: Written) -> list[bytes | None]:
        """The value of each key's last record; None where there is none, it is a tombstone, or its columns are older ones."""
        last = self._tables.setdefault(table, LastRecords(written.topic))
        last.follow(written.ends)
        return last.values((flat_key(keys) if self._flat else keys).cast(pa.binary()), written.since)

    def wrote(self, table: Table, partition: int, records: pa.RecordBatch, end: int) -> None:
        """These records, of which the last one stands before `end`, were added to the table's topic."""
        if table in self._tables:
            self._tables[table].wrote(partition, records.column(KEY), end)


class LastRecords:
    """Reads a topic that one writer writes."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._indexes = {partition: KeyIndex() for partition in topic.ends()}
        self._upto = dict.fromkeys(self._indexes, 0)

    def follow(self, ends: Sequence[int]) -> None:
        """Takes in what stands before these offsets, one for each partition."""
        for partition, end in enumerate(ends):
            first = max(self._upto[partition], self._topic.ends()[partition].first)
            for chunk in self._topic.read(partition, first, end, [KEY]) if end > first else ():
                offsets = chunk.offsets
                within = (offsets >= first) & (offsets < end)
                self._indexes[partition].add(chunk.rows.column(KEY).filter(pa.array(within)), offsets[within])
            self._upto[partition] = max(self._upto[partition], end)

    def wrote(self, partition: int, keys: pa.Array, end: int) -> None:
        """Records of these keys were added up to this offset: they need not be read, unless offsets were left out."""
        start = self._upto[partition]
        if end - start == len(keys):
            self._indexes[partition].add(keys, np.arange(start, end))
            self._upto[partition] = end

    def values(self, keys: pa.Array, since: Sequence[int]) -> list[bytes | None]:
        """The value of each key's last record; None where there is none, it is a tombstone, or it stands before `since`."""
        found: list[bytes | None] = [None] * len(keys)
        homes = partitions_by_key(keys, len(self._indexes)) if len(self._indexes) > 1 else np.zeros(len(keys), np.int64)
        for partition, index in self._indexes.items():
            mine = np.flatnonzero(homes == partition)
            offsets = index.find(keys.take(mine))
            known = offsets >= max(0, since[partition] if partition < len(since) else 0)
            records = self._records(partition, np.unique(offsets[known]))
            for place, offset in zip(mine[known].tolist(), offsets[known].tolist(), strict=True):
                key, value = records.get(offset, (None, None))
                found[place] = value if key == keys[place].as_py() else None
        return found

    def _records(self, partition: int, offsets: Places) -> Mapping[int, tuple[bytes, bytes | None]]:
        """Key and value at these offsets, without those that are gone; each frame is read once."""
        return {offset: record for chunk in self._frames(partition, offsets) for offset, record in _taken(chunk, offsets)}

    def _frames(self, partition: int, offsets: Places) -> Iterator[Chunk]:
        at = 0
        while at < len(offsets):
            behind = int(offsets[at]) + 1
            try:
                for chunk in self._topic.read(partition, int(offsets[at]), behind):
                    behind = max(behind, chunk.frame.end)
                    yield chunk
            except OffsetGone:
                behind = max(behind, self._topic.ends()[partition].first)
            at = int(np.searchsorted(offsets, behind))


def _taken(chunk: Chunk, offsets: Places) -> Iterator[tuple[int, tuple[bytes, bytes | None]]]:
    there = chunk.offsets
    places = np.flatnonzero(np.isin(there, offsets))
    rows = chunk.rows.take(places)
    keys, values = values_in(rows.column(KEY), bytes), rows.column(VALUE).to_pylist()
    yield from zip(there[places].tolist(), zip(keys, values, strict=True), strict=True)

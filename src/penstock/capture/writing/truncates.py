"""Truncates, as deletes of the keys that topics have: what stands behind need not know of truncates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa

from penstock.capture.port import DELETE, Changes, Table, Truncate
from penstock.core.arrow import values_in
from penstock.core.columns import KEY, VALUE
from penstock.log.port import Topic

Keys = dict[str, None]


def without_truncates(
    changes: Mapping[Table, Changes], truncates: Sequence[Truncate], live: Callable[[Table], Keys]
) -> dict[Table, list[Changes]]:
    """The changes of each table, with a delete for each key that is there where the table was truncated. live: the keys that were
    there before these changes."""
    found: dict[Table, list[Changes]] = {table: [each] for table, each in changes.items()}
    for table in {truncate.table for truncate in truncates}:
        keys, events = live(table), _events(changes.get(table))
        for truncate in truncates:
            if truncate.table == table:
                _take(keys, events, (truncate.transaction, truncate.index))
                found.setdefault(table, []).append(_deletes(truncate, list(keys)))
                keys.clear()
    return found


def live_keys(topic: Topic, ends: Sequence[int]) -> Keys:
    """The keys of rows that a topic has up to these ends, in the order in which they came. A delete has a tombstone behind it."""
    live: Keys = {}
    for partition, end in enumerate(ends):
        first = topic.ends()[partition].first
        for chunk in topic.read(partition, first, end) if end > first else ():
            gone = chunk.rows.column(VALUE).is_null().to_pylist()
            for offset, key, dead in zip(chunk.offsets.tolist(), values_in(chunk.rows.column(KEY), bytes), gone, strict=True):
                if offset < end:
                    _put(live, key.decode(), bool(dead))
    return live


def _events(changes: Changes | None) -> list[tuple[int, int, int, str]]:
    """Transaction, index, op and key of each change; the last one first."""
    if changes is None:
        return []
    columns = changes.transaction.tolist(), changes.index.tolist(), changes.op.tolist(), values_in(changes.key, str)
    return sorted(zip(*columns, strict=True), key=itemgetter(0, 1), reverse=True)


def _take(keys: Keys, events: list[tuple[int, int, int, str]], place: tuple[int, int]) -> None:
    """What the changes before this place leave; they are taken off the events."""
    while events and events[-1][:2] < place:
        _, _, op, key = events.pop()
        _put(keys, key, op == DELETE)


def _put(keys: Keys, key: str, gone: bool) -> None:
    if gone:
        keys.pop(key, None)
    else:
        keys[key] = None


def _deletes(truncate: Truncate, keys: Iterable[str]) -> Changes:
    texts = pa.array(keys, pa.utf8())
    count = len(texts)
    where = np.full(count, truncate.transaction, np.int64), np.full(count, truncate.index, np.int64)
    source = None if truncate.source is None else pa.array([truncate.source] * count, pa.utf8())
    return Changes(truncate.table, np.full(count, DELETE, np.uint8), texts, texts, pa.nulls(count, pa.utf8()), *where, source)

"""A run: the index of a stretch of a partition, as one immutable file. From stream to the offsets of its events, from id to offset.

Streams are named by a hash of 128 bits. Ids have one of 64 bits: whoever finds one looks into the log whether it is meant.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.arrow import numbers_in
from penstock.events.on_log.recent import Head, Recent

_MAGIC = b"PNSe"
_FORMAT = 1
_HEADER = struct.Struct("<4sIqqqqQq")  # magic, format, base, next, streams, events, key and offset of the last event

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


def stream_key(stream: str) -> tuple[int, int]:
    first, second = struct.unpack("<QQ", blake2b(stream.encode(), digest_size=16).digest())
    return first, second


def id_key(stream: str, id: str) -> int:
    return int.from_bytes(blake2b(f"{stream}\0{id}".encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Run:
    """Events of the offsets from `base` up to `next`: streams sorted by their keys, the events of each by version, ids by key."""

    base: int
    next: int
    last: tuple[int, int]  # key and offset of the last event: a log that does not hold it is another one
    keys: Keys
    more_keys: Keys  # the second half of each
    ats: Numbers  # when the last event of each happened
    starts: Numbers  # where the events of each begin, and where all end
    versions: Numbers
    offsets: Numbers
    id_keys: Keys
    id_offsets: Numbers

    def __len__(self) -> int:
        return len(self.offsets)

    def head(self, key: tuple[int, int]) -> Head | None:
        place = self._place(key)
        if place < 0:
            return None
        end = int(self.starts[place + 1]) - 1
        return Head(int(self.versions[end]), int(self.ats[place]), int(self.offsets[end]))

    def events(self, key: tuple[int, int]) -> tuple[Numbers, Numbers]:
        """Versions and offsets of a stream's events."""
        place = self._place(key)
        part = slice(int(self.starts[place]), int(self.starts[place + 1])) if place >= 0 else slice(0, 0)
        return self.versions[part], self.offsets[part]

    def offsets_of(self, key: int) -> list[int]:
        """Where events stand whose ids have this key."""
        first = int(np.searchsorted(self.id_keys, np.uint64(key)))
        end = first
        while end < len(self.id_keys) and self.id_keys[end] == key:
            end += 1
        return [int(offset) for offset in self.id_offsets[first:end]]

    def _place(self, key: tuple[int, int]) -> int:
        place = int(np.searchsorted(self.keys, np.uint64(key[0])))
        while place < len(self.keys) and self.keys[place] == key[0]:
            if self.more_keys[place] == key[1]:
                return place
            place += 1
        return -1


def of_recent(recent: Recent) -> Run:
    """What is in memory, as a run."""
    lines = [(*stream_key(stream), line) for stream, line in recent.lines.items()]
    counts = [len(line.offsets) for _, _, line in lines]
    versions = [version for _, _, line in lines for version in line.versions]
    offsets = [offset for _, _, line in lines for offset in line.offsets]
    keys, more = (np.repeat(np.array([line[i] for line in lines], np.uint64), counts) for i in (0, 1))
    ats = np.repeat(np.array([line.at for _, _, line in lines], np.int64), counts)
    ids = np.array([id_key(*named) for named in recent.ids], np.uint64)
    where = np.array(list(recent.ids.values()), np.int64)
    return _sorted(recent.base, recent.next, keys, more, ats, np.array(versions, np.int64), np.array(offsets, np.int64), ids, where)


def merged(runs: Sequence[Run]) -> Run:
    """Runs that follow each other, as one."""
    counts = [np.diff(run.starts) for run in runs]
    keys, more, ats = (
        np.concatenate([np.repeat(getattr(run, name), count) for run, count in zip(runs, counts, strict=True)])
        for name in ("keys", "more_keys", "ats")
    )
    rest = (np.concatenate([getattr(run, name) for run in runs]) for name in ("versions", "offsets", "id_keys", "id_offsets"))
    return _sorted(runs[0].base, runs[-1].next, keys, more, ats, *rest)


def _sorted(
    base: int, end: int, keys: Keys, more: Keys, ats: Numbers, versions: Numbers, offsets: Numbers, ids: Keys, where: Numbers
) -> Run:
    """A run of columns that have a line for each event, in any order; the time of a stream is that of its newest line."""
    order = np.lexsort((offsets, more, keys))
    keys, more = keys[order], more[order]
    ats, versions, offsets = ats[order], versions[order], offsets[order]
    changes = np.flatnonzero((np.diff(keys) != 0) | (np.diff(more) != 0)) + 1
    starts = np.concatenate([np.zeros(min(len(keys), 1), np.int64), changes, np.array([len(keys)], np.int64)])
    by_id, newest = np.argsort(ids, kind="stable"), int(np.argmax(where)) if len(where) else -1
    last = (int(ids[newest]), int(where[newest])) if newest >= 0 else (0, -1)
    firsts, ends = starts[:-1], starts[1:] - 1
    return Run(base, end, last, keys[firsts], more[firsts], ats[ends], starts, versions, offsets, ids[by_id], where[by_id])


def encode(run: Run) -> pa.Buffer:
    columns = (run.keys, run.more_keys, run.ats, run.starts, run.versions, run.offsets, run.id_keys, run.id_offsets)
    header = _HEADER.pack(_MAGIC, _FORMAT, run.base, run.next, len(run.keys), len(run), *run.last)
    return pa.py_buffer(b"".join((header, *(np.ascontiguousarray(column).tobytes() for column in columns))))


def decode(data: pa.Buffer) -> Run:
    """What `encode` wrote, without a copy; ValueError or struct.error if it is something else."""
    magic, form, base, end, streams, events, key, offset = _HEADER.unpack_from(data)
    if magic != _MAGIC or form != _FORMAT:
        raise ValueError("it is no index of this format")
    at, columns = _HEADER.size, list[npt.NDArray[np.int64]]()
    for count in (streams, streams, streams, streams + 1, events, events, events, events):
        columns.append(numbers_in(data, np.int64, count, at))
        at += 8 * count
    keys, more, ats, starts, versions, offsets, ids, where = columns
    first, second, by_id = keys.view(np.uint64), more.view(np.uint64), ids.view(np.uint64)
    return Run(base, end, (key, offset), first, second, ats, starts, versions, offsets, by_id, where)

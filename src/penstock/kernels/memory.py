"""Runs one kernel in memory, without Spark and files: its state in buckets, epoch by epoch."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.core.columns import HASH
from penstock.core.hashing import bucket_of
from penstock.core.time import NEVER
from penstock.kernels.columns import numbers
from penstock.kernels.port import Changes, Fates, Kernel, State

Levels = list[list[pa.Table]]  # of one slot: runs by level, oldest first within a level; higher levels are older
Bucket = dict[str, dict[int, Levels]]


@dataclass
class Ran:
    """What an epoch made. Nothing of it counts before `commit`."""

    rows: pa.Table
    late: list[pa.Table | None]  # per port
    changes: list[Changes]  # per bucket
    frontiers: tuple[int, ...]
    fates: Fates = field(default_factory=Counter)
    answered: int = NEVER  # the mark that the answers of this epoch leave on the table of the step


class MemoryRunner:
    """The state of one kernel in so many buckets; `fanout` runs of a level are merged into one of the next."""

    def __init__(self, kernel: Kernel, buckets: int = 1, fanout: int = 8) -> None:
        self._kernel, self._fanout = kernel, fanout
        self._buckets: list[Bucket] = [{} for _ in range(buckets)]
        self._frontiers: tuple[int, ...] = ()
        self._answered = NEVER

    def epoch(self, rows: Sequence[Sequence[pa.Table]], frontiers: Sequence[int]) -> Ran:
        """Runs and commits one epoch; rows: per port any number of slices."""
        ran = self.run(rows, frontiers)
        self.commit(ran)
        return ran

    def run(self, rows: Sequence[Sequence[pa.Table]], frontiers: Sequence[int], mark: int = NEVER) -> Ran:
        """One epoch over the state as it is, which stays as it is. mark: put on the table of the step before it is read."""
        fates: Fates = Counter()
        late: list[pa.Table | None] = []
        ports: list[list[pa.Table | None]] = []
        for port, slices in enumerate(rows):
            prepared = [self._kernel.prepare(port, part) for part in slices]
            for p in prepared:
                fates.update(p.fates)
            diverted = [p.late for p in prepared if p.late is not None]
            late.append(pa.concat_tables(diverted) if diverted else None)
            ports.append(self._by_bucket([p.rows for p in prepared]))
        states = [self.state(b, mark) for b in range(len(self._buckets))]
        stepped = [self._kernel.step(state, [p[b] for p in ports], frontiers) for b, state in enumerate(states)]
        for s in stepped:
            fates.update(s.fates)
        out = pa.concat_tables([table for s in stepped for table in (s.rows, *s.more)], promote_options="default")
        answered = max(mark, *(s.answered for s in stepped))
        return Ran(out, late, [s.changes for s in stepped], tuple(frontiers), fates, answered)

    def commit(self, ran: Ran) -> None:
        for bucket, changes in zip(self._buckets, ran.changes, strict=True):
            for (table, slot), run in changes.add.items():
                self._add(bucket.setdefault(table, {}).setdefault(slot, []), table, run, 0)
            for table, slot in changes.drop:
                bucket.get(table, {}).pop(slot, None)
        self._frontiers, self._answered = ran.frontiers, max(self._answered, ran.answered)

    def state(self, bucket: int, mark: int = NEVER) -> State:
        return State(
            {
                table: {slot: [_opened(run) for run in _oldest_first(levels)] for slot, levels in slots.items()}
                for table, slots in self._buckets[bucket].items()
            },
            self._frontiers,
            answered=max(self._answered, mark),
        )

    def open_rows(self) -> pa.Table | None:
        """What is not yet complete, over all buckets."""
        parts = [self._kernel.open_rows(self.state(b)) for b in range(len(self._buckets))]
        some = [part for part in parts if part is not None]
        return pa.concat_tables(some) if some else None

    def rebucket(self, buckets: int) -> None:
        """Cuts the state anew into so many buckets, as a flow does that changes their number."""
        if buckets == len(self._buckets):
            return
        old, self._buckets = self._buckets, [{} for _ in range(buckets)]
        for bucket in old:
            for table, slots in bucket.items():
                for slot, levels in slots.items():
                    for run in _oldest_first(levels):
                        self._spread(table, slot, run)

    def _spread(self, table: str, slot: int, run: pa.Table) -> None:
        for bucket, part in zip(self._buckets, self._by_bucket([run]), strict=True):
            if part is not None and part.num_rows:
                self._add(bucket.setdefault(table, {}).setdefault(slot, []), table, part, 0)

    def _by_bucket(self, pieces: Sequence[pa.Table]) -> list[pa.Table | None]:
        if not pieces:
            return [None] * len(self._buckets)
        rows = pa.concat_tables(pieces)
        if len(self._buckets) == 1:
            return [rows]
        buckets = bucket_of(numbers(rows, HASH), len(self._buckets))
        return [rows.filter(pa.array(np.equal(buckets, b))) for b in range(len(self._buckets))]

    def _add(self, levels: Levels, table: str, run: pa.Table, level: int) -> None:
        if level == len(levels):
            levels.append([])
        levels[level].append(run)
        if len(levels[level]) == self._fanout:
            merged = self._kernel.merge(table, levels[level])
            levels[level] = []
            self._add(levels, table, merged, level + 1)


def _oldest_first(levels: Levels) -> list[pa.Table]:
    return [run for level in reversed(levels) for run in level]


def _opened(run: pa.Table) -> Callable[[], pa.Table]:
    return lambda: run

"""Rows of one side of a join that have met nobody yet: kept until nobody can come for them any more, then sent alone, once.

State, in narrow slots of time: one table holds rows that met nobody in their first epoch, another the positions of those that
have met somebody since. A row is due when F of the other side > t + reach; F of the epoch before tells what was due then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import HASH, POSITION, TIME
from penstock.kernels.columns import by_slot, column, numbers, sorted_by_hash
from penstock.kernels.joins.probe import spread
from penstock.kernels.port import Changes, State

WAITING = ("waiting", "waiting_right")  # by side
MATCHED = ("matched", "matched_right")


@dataclass(frozen=True)
class Due:
    """Rows with before <= t + reach < now."""

    reach: int
    before: int  # F of the other side in the epoch before
    now: int

    def rows(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.asarray((times + self.reach >= self.before) & (times + self.reach < self.now))

    def overdue(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Rows that are due as soon as they come."""
        return np.asarray(times + self.reach < self.now)

    def begun(self, slot: int) -> bool:
        return slot + self.reach < self.now

    def over(self, slot: int, width: int) -> bool:
        return slot + width - 1 + self.reach < self.now


class Waiting:
    """The rows of one side that wait, and which of them were matched."""

    def __init__(self, port: int, reach: int, width: int) -> None:
        """port: whose rows wait. reach: the other side has nobody for time t any more when its frontier > t + reach."""
        self._other, self.reach, self._width = 1 - port, reach, width
        self._waiting, self._matched = WAITING[port], MATCHED[port]

    def due(self, state: State, now: int) -> Due:
        """now: F of the other side."""
        return Due(self.reach, state.before(self._other), now)

    def fall_due(self, state: State, due: Due, matched_now: pa.Table | None) -> list[pa.Table]:
        """The waiting rows that are due and have met nobody, in this epoch neither."""
        alone = []
        for slot in filter(due.begun, state.slots(self._waiting)):
            matched = state.runs(self._matched, slot) + ([matched_now] if matched_now is not None else [])
            for run in state.runs(self._waiting, slot):
                alone.append(_without(run.filter(pa.array(due.rows(numbers(run, TIME)))), matched))
        return [rows for rows in alone if rows.num_rows]

    def keep(self, changes: Changes, due: Due, fresh: pa.Table | None, matched_now: pa.Table | None) -> None:
        """Adds new rows that wait and rows that were matched (both sorted by HASH) to their slots, but for slots that are over."""
        for table, rows in ((self._waiting, fresh), (self._matched, matched_now)):
            for slot, part in by_slot(rows, self._width).items() if rows is not None else ():
                if not due.over(slot, self._width):
                    changes.add[table, slot] = part

    def drop(self, state: State, changes: Changes, due: Due) -> None:
        """The slots in which every row is due."""
        tables = (self._waiting, self._matched)
        changes.drop |= {(table, slot) for table in tables for slot in state.slots(table) if due.over(slot, self._width)}

    def first_met(self, state: State, met: pa.Table) -> pa.Table:
        """Those of the rows met now that nobody had met before."""
        slots = by_slot(met, self._width)
        return pa.concat_tables([met.slice(0, 0), *(_without(rows, state.runs(self._matched, s)) for s, rows in slots.items())])


def matched(met: pa.Table) -> pa.Table:
    """What is remembered of rows that met somebody, sorted by HASH."""
    return sorted_by_hash(met.select([HASH, TIME, POSITION]))


def matched_once(runs: Sequence[pa.Table]) -> pa.Table:
    """Several runs of matched rows with every row named once."""
    together = pa.concat_tables(runs)
    once = together.group_by(POSITION).aggregate([(HASH, "min"), (TIME, "min")])
    named = once.rename_columns({f"{HASH}_min": HASH, f"{TIME}_min": TIME}).select(together.column_names)
    return sorted_by_hash(named)


def _without(rows: pa.Table, matched: Sequence[pa.Table]) -> pa.Table:
    """Rows that stand in none of these tables, which are sorted by HASH."""
    alone = np.ones(rows.num_rows, np.bool_)
    for table in matched:
        hashes = numbers(table, HASH)
        start, end = (np.searchsorted(hashes, numbers(rows, HASH), side) for side in ("left", "right"))
        who, where = np.repeat(np.arange(rows.num_rows), end - start), spread(start, end - start)
        same = pc.equal(column(rows, POSITION).take(who), column(table, POSITION).take(where))
        alone[who[same.to_numpy(zero_copy_only=False)]] = False
    return rows.filter(pa.array(alone))

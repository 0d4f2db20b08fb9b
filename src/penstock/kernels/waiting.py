"""Left rows of a left join that have met nobody yet: kept until nobody can come for them any more, then sent alone, once.

State, in narrow slots of time: "waiting" holds rows that met nobody in their first epoch, "matched" the positions of those that
have met somebody since. A row is due when F of the right side > t + hi; the frontier of the epoch before tells what was due then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.change import HASH, POSITION, TIME
from penstock.kernels.port import Changes, State
from penstock.kernels.probe import spread
from penstock.kernels.tables import by_slot, column, numbers, sorted_by_hash

WAITING, MATCHED = "waiting", "matched"


@dataclass(frozen=True)
class Due:
    """Left rows with before <= t + hi < now."""

    hi: int
    before: int  # F of the right side in the epoch before
    now: int

    def rows(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.asarray((times + self.hi >= self.before) & (times + self.hi < self.now))

    def begun(self, slot: int) -> bool:
        return slot + self.hi < self.now

    def over(self, slot: int, width: int) -> bool:
        return slot + width - 1 + self.hi < self.now


def fall_due(state: State, due: Due, matched_now: pa.Table | None) -> list[pa.Table]:
    """The waiting rows that are due and have met nobody, in this epoch neither."""
    alone = []
    for slot in filter(due.begun, state.slots(WAITING)):
        matched = state.runs(MATCHED, slot) + ([matched_now] if matched_now is not None else [])
        for run in state.runs(WAITING, slot):
            rows = run.filter(pa.array(due.rows(numbers(run, TIME))))
            alone.append(_without(rows, matched))
    return [rows for rows in alone if rows.num_rows]


def keep(changes: Changes, due: Due, width: int, fresh: pa.Table | None, matched_now: pa.Table | None) -> None:
    """Adds new rows that wait and rows that were matched (both sorted by HASH) to their slots, but for slots that are over."""
    for table, rows in ((WAITING, fresh), (MATCHED, matched_now)):
        for slot, part in by_slot(rows, width).items() if rows is not None else ():
            if not due.over(slot, width):
                changes.add[table, slot] = part


def over(state: State, due: Due, width: int) -> set[tuple[str, int]]:
    """The slots in which every row is due."""
    return {(table, slot) for table in (WAITING, MATCHED) for slot in state.slots(table) if due.over(slot, width)}


def matched_once(runs: Sequence[pa.Table]) -> pa.Table:
    """Several runs of "matched" with every row named once."""
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
        same = pc.equal(column(rows, POSITION).take(pa.array(who)), column(table, POSITION).take(pa.array(where)))
        alone[who[same.to_numpy(zero_copy_only=False)]] = False
    return rows.filter(pa.array(alone))

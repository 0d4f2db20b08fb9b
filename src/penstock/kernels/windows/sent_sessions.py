"""What a step with sessions has sent, filed by the ends of the sessions, so that it goes when they are over.

Table "sent" (see changes) in slots of time; END says where the session ends as it is now, which may be further on than what was
sent says. A row lies in the slot of that end; where the end moves to another slot, it goes along and stands as gone in the old one.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.kernels.aggregates.partials import joinable
from penstock.kernels.changes import SENT, net_changes, newest, newest_of_all, touched
from penstock.kernels.column_names import GONE, ROW
from penstock.kernels.columns import numbers
from penstock.kernels.port import Changes, State
from penstock.kernels.windows.corrections import revisions
from penstock.kernels.windows.final import by_start
from penstock.kernels.windows.session_state import END

Hashes = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]

_NOW = "__now"


class SentSessions:
    def __init__(self, key: Sequence[str], values: Sequence[str], width: int, allowed: int) -> None:
        """key: the columns that name a row; values: those that make a difference worth sending."""
        self._key, self._values, self._width, self._allowed = list(key), list(values), width, allowed

    def of(self, state: State, hashes: Hashes, before: int) -> pa.Table | None:
        """What was last sent for these keys, without what was over before."""
        parts = [newest(touched(state.runs(SENT, slot), hashes), self._key) for slot in state.slots(SENT)]
        some = [part for part in parts if part is not None and part.num_rows]
        if not some:
            return None
        sent = pa.concat_tables(some)
        return sent.filter(pa.array(numbers(sent, END) + self._allowed > before))

    def change(
        self,
        changes: Changes,
        sent: pa.Table | None,
        wanted: pa.Table,
        there: pa.Table | None,
        now: int,
        failed: pa.Table | None = None,
    ) -> pa.Table:
        """What to send so that what was sent becomes what is wanted; `changes` files it. Rows of `wanted` have END and HASH.

        there: names and ends (key, END) of what is, wanted or not, and may stay as it was sent, unless it failed; None: only what
        is wanted stays."""
        if there is not None and failed is not None:
            names = joinable(there, self._key).with_row_index(ROW)
            there = there.take(names.join(joinable(failed, self._key), on=self._key, how="anti", nulls_equal=True)[ROW].to_arrow())
        compared = sent if sent is None or there is None else self._to_compare(sent, wanted, there)
        out, run = net_changes(compared, wanted, self._key, self._values)
        kept = run
        if sent is not None:
            kept = pa.concat_tables([run, *self.moved(sent, wanted if there is None else there, run)])
        kept = kept.filter(pa.array(numbers(kept, END) + self._allowed > now))
        changes.add |= by_start(SENT, kept, self._slots(numbers(kept, END)))
        return out.drop_columns([END])

    def drop(self, state: State, now: int) -> set[tuple[str, int]]:
        return {(SENT, slot) for slot in state.slots(SENT) if slot + self._width + self._allowed <= now}

    def merge(self, runs: Sequence[pa.Table]) -> pa.Table:
        return newest_of_all(runs, self._key)

    def revisions(self, sent: pa.Table | None, wanted: pa.Table) -> Longs:
        """The revision of each wanted row as it was last sent; -1 where it was not."""
        return revisions(sent, wanted, self._key)

    def _to_compare(self, sent: pa.Table, wanted: pa.Table, there: pa.Table) -> pa.Table:
        """Without what is there, but not wanted."""
        key = self._key
        names = joinable(sent, key).with_row_index(ROW)
        idle = joinable(there, key).join(joinable(wanted, key), on=key, how="anti", nulls_equal=True)
        return sent.take(names.join(idle, on=key, how="anti", nulls_equal=True)[ROW].to_arrow())

    def moved(self, sent: pa.Table, there: pa.Table, run: pa.Table) -> list[pa.Table]:
        """What was sent of sessions that end elsewhere now: gone where it was, and (unless sent anew) to be found where it is."""
        names, ends = joinable(sent, self._key, END).with_row_index(ROW), joinable(there, self._key, END)
        moved = names.join(ends.rename({END: _NOW}), on=self._key, how="inner", nulls_equal=True).filter(
            pl.col(END) != pl.col(_NOW)
        )
        if moved.is_empty():
            return []
        away = self._slots(moved[END].to_numpy()) != self._slots(moved[_NOW].to_numpy())
        left = _marked(sent.take(moved.filter(away)[ROW].to_arrow()), gone=True)
        anew = joinable(run.filter(pa.array(~run[GONE].to_numpy())), self._key)
        as_sent = moved.join(anew, on=self._key, how="anti", nulls_equal=True)
        found = _marked(sent.take(as_sent[ROW].to_arrow()), gone=False)
        found = found.set_column(found.column_names.index(END), END, pa.array(as_sent[_NOW].to_numpy()))
        return [table.select(run.column_names) for table in (left, found)]

    def _slots(self, ends: Longs) -> Longs:
        return ends // np.int64(self._width) * np.int64(self._width)


def _marked(rows: pa.Table, *, gone: bool) -> pa.Table:
    return rows.set_column(rows.column_names.index(GONE), GONE, pa.array(np.full(rows.num_rows, gone)))

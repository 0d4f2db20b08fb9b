"""Versions of the rows of a table, kept so that any row finds the one that it sees.

A version is seen by rows from some time on (SEEN); of those that a row sees the greatest (time, position) counts, and a delete is a
version too. State, in one slot: table "versions", every version that a row may still see.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.arrow import schema_of
from penstock.core.change import Op
from penstock.core.columns import APPEND_TIME, HASH, OP, POSITION, TIME
from penstock.core.hashing import Hashes, hash64
from penstock.core.time import NEVER
from penstock.kernels.changes import once, stretches, touched
from penstock.kernels.column_names import GONE
from penstock.kernels.columns import column, numbers, sorted_by_hash
from penstock.kernels.joins.probe import spread
from penstock.kernels.keyed import Longs, codes, key_numbers
from penstock.kernels.port import State

VERSIONS = "versions"
SEEN = "__seen"  # int64: the time from which rows see it
HORIZON = "__horizon"  # int64: no row that was still to be answered when its run was written is older

Mask = npt.NDArray[np.bool_]


class Versions:
    """What is known of a table whose rows are named by `key`. clock: the column that says the time of a version."""

    def __init__(self, key: Sequence[str], columns: Sequence[str], schema: pa.Schema, clock: str = TIME) -> None:
        self._key, self._clock = list(key), clock
        names = list(dict.fromkeys([*key, *columns]))
        own = [(APPEND_TIME, pa.int64())] if clock == APPEND_TIME else []
        fields = [schema.field(name).with_nullable(True) for name in names]
        system = schema_of([(TIME, pa.int64()), *own, (POSITION, pa.binary()), (GONE, pa.bool_()), (HASH, pa.uint64())])
        self._came = pa.schema([*fields, *system])
        self.schema = schema_of([*self._came, (SEEN, pa.int64()), (HORIZON, pa.int64())])

    def prepare(self, rows: pa.Table) -> pa.Table:
        """Versions on their way to the bucket of their key. Nobody finds one with null in its key."""
        keyed = without_null(rows, self._key)
        rows = rows if keyed.all() else rows.filter(pa.array(keyed))
        taken = rows.select(self._came.names[:-2]).append_column(GONE, pa.array(_deletes(rows)))
        hashes = hash64([taken[name] for name in self._key], taken.num_rows)
        return taken.append_column(HASH, pa.array(hashes)).cast(self._came)

    def came(self, rows: pa.Table | None, seen_from: int, horizon: int) -> pa.Table:
        """Versions that rows before `seen_from` do not see; after this epoch no row older than the horizon is answered."""
        if rows is None or not rows.num_rows:
            return self.schema.empty_table()
        rows = rows.append_column(SEEN, pa.array(np.maximum(numbers(rows, self._clock), np.int64(seen_from))))
        return rows.append_column(HORIZON, pa.array(np.full(rows.num_rows, horizon))).cast(self.schema)

    def known(self, state: State, hashes: Sequence[Hashes]) -> pa.Table:
        """The versions in state of keys with these hashes."""
        found = touched(state.runs(VERSIONS, 0), once(np.concatenate(hashes)))
        return pa.concat_tables([self.schema.empty_table(), *found]).combine_chunks()

    def first_seen(self, versions: pa.Table) -> int:
        """The earliest time at which a row may see one of them."""
        return int(numbers(versions, SEEN).min())

    def merge(self, runs: Sequence[pa.Table]) -> pa.Table:
        """One run, sorted by hash, of the versions that a row at or after the latest horizon may see."""
        rows = pa.concat_tables(runs).combine_chunks()
        horizon = numbers(rows, HORIZON).max(initial=NEVER)
        early = numbers(rows, SEEN) <= horizon
        if early.any() and rows.num_rows > 1:
            rows = rows.filter(pa.array(~self._beaten(rows, early)))
        horizons = pa.array(np.full(rows.num_rows, horizon))
        return sorted_by_hash(rows.set_column(self.schema.names.index(HORIZON), HORIZON, horizons))

    def look_up(self, versions: pa.Table, rows: pa.Table, on: Sequence[str], times: Longs) -> Longs:
        """For each row, with HASH and null in none of `on`, the number of the version it sees at its time; -1: there is none."""
        found = np.full(rows.num_rows, -1)
        if not versions.num_rows or not rows.num_rows:
            return found
        keys = self._numbered(versions)
        looking, wanted = self._keys_of(rows, on, versions, keys)
        code, _ = codes(np.concatenate([keys, wanted]), np.concatenate([numbers(versions, SEEN), times[looking]]))
        known, sought = code[: len(keys)], code[len(keys) :]
        order, by_seen = self._in_order(versions, keys), np.argsort(known)
        best = np.maximum.accumulate(_places(order)[by_seen])  # places go by key first: those of the key before never win
        at = np.searchsorted(known[by_seen], sought, "right") - 1
        newest = order[best[np.maximum(at, 0)]]
        gone = column(versions, GONE).to_numpy(zero_copy_only=False)
        found[looking] = np.where((at < 0) | (keys[newest] != wanted) | gone[newest], -1, newest)
        return found

    def _keys_of(self, rows: pa.Table, on: Sequence[str], versions: pa.Table, keys: Longs) -> tuple[Longs, Longs]:
        """The rows of whose key there are versions, neighbours together; and the number of the key of each."""
        one = np.empty(int(keys.max()) + 1, np.int64)
        one[keys] = np.arange(len(keys))  # a version of each key, and so in the order of their hashes
        hashes, mine = numbers(versions, HASH)[one], numbers(rows, HASH)
        order = np.argsort(mine)
        begin, count = stretches(hashes, mine[order])
        looking, wanted = np.repeat(order, count), spread(begin, count)
        equal = _same(rows, on, looking, versions, self._key, one[wanted])
        return (looking, wanted) if equal.all() else (looking[equal], wanted[equal])

    def _numbered(self, versions: pa.Table) -> Longs:
        """A number for the key of each version, from 0 on, in the order of HASH. Where a hash comes twice, keys are compared."""
        hashes = numbers(versions, HASH)
        order = np.argsort(hashes)
        ordered = hashes[order]
        new = ordered[1:] != ordered[:-1]
        twice = np.flatnonzero(~new)
        if not _same(versions, self._key, order[twice], versions, self._key, order[twice + 1]).all():
            return key_numbers(versions, self._key)
        keys = np.empty(len(order), np.int64)
        keys[order] = np.concatenate([[0], np.cumsum(new)])
        return keys

    def _beaten(self, rows: pa.Table, early: Mask) -> Mask:
        """Which versions are less than an early one of their key: who may see them sees that one."""
        keys = self._numbered(rows)
        order = self._in_order(rows, keys)
        last = np.full(int(keys.max()) + 1, -1)
        at = np.flatnonzero(early[order])
        last[keys[order][at]] = at  # of several the last is kept
        beaten = np.empty(len(order), np.bool_)
        beaten[order] = np.arange(len(order)) < last[keys[order]]
        return beaten

    def _in_order(self, versions: pa.Table, keys: Longs) -> Longs:
        """The versions by key, then clock; of one instant by time and position."""
        code, _ = codes(keys, numbers(versions, self._clock))
        order = np.argsort(code)
        ordered = code[order]
        same = ordered[1:] == ordered[:-1]
        if not same.any():
            return order
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        ties = versions.select([TIME, POSITION]).take(order[tied])
        frame = pl.DataFrame(pl.from_arrow(ties)).with_columns(code=ordered[tied], i=order[tied])
        order[tied] = frame.sort("code", TIME, POSITION)["i"].to_numpy()
        return order


def _same(mine: pa.Table, ours: Sequence[str], at: Longs, others: pa.Table, theirs: Sequence[str], where: Longs) -> Mask:
    """Whether the columns of rows of two tables are equal, row by row; NaN is NaN, and 0.0 is -0.0."""
    equal = np.ones(len(at), np.bool_)
    for one, other in zip(ours, theirs, strict=True):
        left, right = (pl.Series(pl.from_arrow(column(t, n))) for t, n in ((mine, one), (others, other)))
        equal &= left.gather(at).eq_missing(right.gather(where)).to_numpy()
    return equal


def _places(order: Longs) -> Longs:
    """Where in this order each stands."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def without_null(rows: pa.Table, names: Sequence[str]) -> Mask:
    """The rows with null in none of these columns."""
    whole = np.ones(rows.num_rows, np.bool_)
    for name in names:
        if rows[name].null_count:
            whole &= column(rows, name).is_valid().to_numpy(zero_copy_only=False)
    return whole


def _deletes(rows: pa.Table) -> Mask:
    if OP not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    return np.asarray(numbers(rows, OP) == Op.DELETE)

"""Rows of one key in the order of their time."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.core.arrow import array_of
from penstock.core.columns import HASH, INDEX, POSITION, TIME
from penstock.core.hashing import Hashes, hash64
from penstock.kernels.aggregates.partials import frame_of
from penstock.kernels.column_names import NUMBER
from penstock.kernels.columns import column, numbers, with_plain
from penstock.kernels.judging import behind_their_watermark
from penstock.kernels.port import Prepared
from penstock.plan import Late

Longs = npt.NDArray[np.int64]


def placed(fields: Iterable[pa.Field]) -> pa.Schema:
    """A schema of rows in state: these columns, where they are from, and the hash of their key."""
    kept = {f.name: f.with_nullable(True) for f in fields}
    return pa.schema([*kept.values(), pa.field(TIME, pa.int64()), pa.field(POSITION, pa.binary()), pa.field(HASH, pa.uint64())])


def judge_instants(rows: pa.Table, schema: pa.Schema, by: Sequence[str], late: Late) -> Prepared:
    """Rows with t >= W, in this schema, on their way to the bucket of their key; the others have their fate."""
    behind = behind_their_watermark(rows)
    count = int(np.count_nonzero(behind))
    fates = Counter({"on time": rows.num_rows - count, "diverted" if late == "divert" else "ignored": count})
    taken = rows.select(schema.names[:-1])
    taken = taken.filter(pa.array(~behind)) if count else taken
    hashes = hash64([taken[name] for name in by], taken.num_rows)
    diverted = rows.filter(pa.array(behind)) if count and late == "divert" else None
    return Prepared(taken.append_column(HASH, pa.array(hashes)).cast(schema), diverted, +fates)


def key_numbers(rows: pa.Table, by: Sequence[str]) -> Longs:
    """A number for the key of each row, from 0 on, in the order of HASH; null and NaN are keys like any other."""
    known, keys = ranks(numbers(rows, HASH))
    if not by or _one_key_each(frame_of(rows.select(list(by))), keys, len(known)):
        return keys
    return _told_apart(rows.select([*by, HASH]), by)


def ranks(hashes: Hashes) -> tuple[Hashes, Longs]:
    """The hashes, sorted, each once; and for each its place among them."""
    coded = array_of(hashes).dictionary_encode()
    known: Hashes = coded.dictionary.to_numpy()
    order = np.argsort(known)
    place: Longs = np.empty(len(known), np.int64)
    place[order] = np.arange(len(known))
    return known[order], place[coded.indices.to_numpy()]


def _one_key_each(frame: pl.DataFrame, keys: Longs, count: int) -> bool:
    """Whether rows of one number are of one key: all are compared with one of them."""
    one = np.empty(count, np.int64)
    one[keys] = np.arange(len(keys))
    who = pl.Series(one[keys])
    return all(frame[name].eq_missing(frame[name].gather(who)).all() for name in frame.columns)


def _told_apart(rows: pa.Table, by: Sequence[str]) -> Longs:
    """Different keys share a hash."""
    frame = frame_of(with_plain(rows, by))
    groups = frame.with_row_index(INDEX).group_by(*by, HASH).agg(pl.col(INDEX)).sort(HASH)
    numbered = groups.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(NUMBER)).explode(INDEX)
    keys = np.empty(rows.num_rows, np.int64)
    keys[numbered[INDEX].to_numpy()] = numbered[NUMBER].to_numpy()
    return keys


def codes(keys: Longs, times: Longs, back: int = 0) -> tuple[Longs, Longs]:
    """A number that orders by key, then time; and the one of the instant `back` before, of the same key or before all its rows."""
    if not len(times):
        return times, times
    least = int(times.min())
    span = int(times.max()) - least + 2
    if span * (int(keys.max()) + 1) < 2**63:
        since = times - (least - 1)
        return keys * span + since, keys * span + np.maximum(since - back, 0)
    known = np.unique(times)  # too far apart: their ranks will do
    base = keys * (len(known) + 1)
    return base + np.searchsorted(known, times, "right"), base + np.searchsorted(known, times - np.int64(back), "right")


def in_order(rows: pa.Table, keys: Longs) -> Longs:
    """The rows by key, time, position."""
    code, _ = codes(keys, numbers(rows, TIME))
    order = np.argsort(code)
    ordered = code[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return order
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    positions = column(rows, POSITION).take(order[tied])
    frame = pl.DataFrame({"code": ordered[tied], "i": order[tied]}).with_columns(pl.Series("position", pl.from_arrow(positions)))
    order[tied] = frame.sort("code", "position")["i"].to_numpy()
    return order

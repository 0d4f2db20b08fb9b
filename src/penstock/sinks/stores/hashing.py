"""Hashes of rows, equal for what a flow has made and what a store gives back of it; checksums of ranges of their keys."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl
import pyarrow as pa

from penstock.core.arrow import Column, array_of, filled, one_array
from penstock.core.checksums import Hashes, mixed
from penstock.sinks.port import SinkSpec
from penstock.sinks.stores.keys import keys_of, plain_bytes
from penstock.sinks.stores.texts import json_texts

RANGES = 256  # of keys, by the first byte of their hashes
_SEED = 17
_DOUBLE, _SINGLE = 20, 36  # bits at the end of a double that are not compared, of what was a double or a float
_TOLERATED, _TOLERATED_SINGLE = 1e-9, 1e-5  # of doubles; of floats, of which MySQL shows six digits


@dataclass(frozen=True)
class RowHashes:
    """How rows of a sink are hashed. columns: those that count. named: whether a key or a position tells rows apart; else a row is
    its own key. by_key: nothing but the key counts."""

    spec: SinkSpec
    columns: tuple[str, ...]
    named: bool
    by_key: bool = False

    def of(self, rows: pa.Table) -> tuple[Hashes, Hashes]:
        """Of the keys, and of the rows. They mean something within one process alone."""
        if self.by_key and self.named:
            keys = hashes_of(keys_of(rows, self.spec.key))
            return keys, np.zeros(len(keys), np.uint64)
        columns = [_hashed(rows[name], self.spec.schema.type(name)) for name in self.columns]
        frame = pl.DataFrame({str(i): pl.Series(column) for i, column in enumerate(columns)})
        whole = frame.hash_rows(_SEED).to_numpy()
        return hashes_of(keys_of(rows, self.spec.key)) if self.named else whole, whole

    def alike(self, ours: pa.Table, theirs: pa.Table) -> npt.NDArray[np.bool_]:
        """Which of these rows say the same, one by one."""
        same = np.ones(ours.num_rows, np.bool_)
        for name in self.columns:
            declared = self.spec.schema.type(name)
            if pa.types.is_floating(declared):
                single = pa.types.is_float32(declared)
                same &= close(ours[name], theirs[name], _TOLERATED_SINGLE if single else _TOLERATED)
            else:
                here, there = (pl.Series(comparable(rows[name], declared)) for rows in (ours, theirs))
                same &= here.eq_missing(there).to_numpy()
        return same


def hashes_of(keys: pa.Array) -> Hashes:
    return pl.Series(keys).cast(pl.Binary).hash(_SEED).to_numpy()


def checksums(hashed: Iterable[tuple[Hashes, Hashes]]) -> Hashes:
    """One for each range of keys; it does not depend on the order of rows, and one row more, less or other gives another one."""
    out = np.zeros(RANGES, np.uint64)
    for keys, rows in hashed:
        np.add.at(out, (keys >> np.uint64(56)).astype(np.int64), mixed(keys, rows))
    return out


def _hashed(column: Column, declared: pa.DataType) -> pa.Array:
    """The last digits of doubles are not promised: they are left out, at about the tenth."""
    if not pa.types.is_floating(declared):
        return comparable(column, declared)
    values = one_array(column).cast(pa.float64())
    numbers = filled(values, 0.0).to_numpy() + 0.0
    digits = _SINGLE if pa.types.is_float32(declared) else _DOUBLE
    bits = (np.where(np.isnan(numbers), np.nan, numbers).view(np.int64) + (1 << digits - 1)) >> digits
    return array_of(bits, absent=values.is_null().to_numpy(zero_copy_only=False))


def close(ours: Column, theirs: Column, tolerated: float = _TOLERATED) -> npt.NDArray[np.bool_]:
    """Which floating-point numbers are the same up to their last digits; two nulls are, and two NaN."""
    left, right = one_array(ours).cast(pa.float64()), one_array(theirs).cast(pa.float64())
    absent = [each.is_null().to_numpy(zero_copy_only=False) for each in (left, right)]
    here, there = (filled(each, 0.0).to_numpy() for each in (left, right))
    same: npt.NDArray[np.bool_] = np.isclose(here, there, rtol=tolerated, atol=0.0, equal_nan=True) & (absent[0] == absent[1])
    return same


def comparable(column: Column, declared: pa.DataType) -> pa.Array:
    """Values as bytes that are equal where the values are; nested ones may be given as texts of JSON."""
    if pa.types.is_nested(declared):
        texts = one_array(column) if pa.types.is_string(column.type) else json_texts(column)
        return pa.array([None if text is None else _canonical(text) for text in texts.to_pylist()], pa.binary())
    return plain_bytes(one_array(column).cast(declared))


def _canonical(text: str) -> bytes:
    return orjson.dumps(_plain(orjson.loads(text)), option=orjson.OPT_SORT_KEYS)


def _plain(value: Any) -> Any:
    """Databases may write a whole number without its point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value

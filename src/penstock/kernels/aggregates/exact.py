"""Sums of integers and decimals that never round and never wrap.

A sum is kept as limbs of 32 bits, the last one signed and 64 bits wide: Σ limb[i] · 2**(32 i). Limbs are added like any other
column, in any order; a result that does not fit its type is null, so what overflows does not depend on the cut.
"""

from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import array_of, buffer_of, chosen, numbers_in

Longs = npt.NDArray[np.int64]

_BITS = np.int64(32)
_LOW = np.int64(0xFFFFFFFF)
_LONG_DIGITS = 18  # decimals of so many digits fit into a long
_DIGITS = Context(prec=80)
SQUARE_LIMBS = 5  # of a sum of squares of longs


def limb_count(t: pa.DataType) -> int:
    """How many limbs a sum over this type has."""
    return 4 if pa.types.is_decimal(t) and t.precision > _LONG_DIGITS else 2


def addends(column: pa.Array) -> list[Longs]:
    """What is added up per row: one column where no sum over these rows can leave a long, else one for each limb."""
    words = _words(column)
    if len(words) == 1:
        least, greatest = (int(words[0].min()), int(words[0].max())) if len(column) else (0, 0)
        return words if max(-least, greatest) * len(column) < 2**63 else split(words[0])
    low, high = words
    return [low & _LOW, (low >> _BITS) & _LOW, *split(high)]


def square_addends(column: pa.Array) -> list[Longs]:
    """The same for the squares of the rows, which must be longs or decimals that fit into one."""
    (values,) = _words(column)
    least, greatest = (int(values.min()), int(values.max())) if len(column) else (0, 0)
    if max(-least, greatest) ** 2 * len(column) < 2**63:
        return [values * values]
    low, high = values & _LOW, values >> _BITS
    below, across, above = low.view(np.uint64) * low.view(np.uint64), low * high, high * high
    return [
        (below & np.uint64(_LOW)).view(np.int64),
        (below >> np.uint64(_BITS)).view(np.int64) + 2 * (across & _LOW),
        2 * (across >> _BITS) + (above & _LOW),
        above >> _BITS,
        np.zeros_like(values),
    ]


def fits_a_long(t: pa.DataType) -> bool:
    """Whether all values of this type, an integer or a decimal, are longs (of their own scale)."""
    return limb_count(t) == 2


def split(sums: Longs, limbs: int = 2) -> list[Longs]:
    """Whole longs as so many limbs."""
    return carried([sums & _LOW, sums >> _BITS, *(np.zeros_like(sums) for _ in range(limbs - 2))])


def carried(limbs: Sequence[Longs]) -> list[Longs]:
    """The same sums with every limb but the last brought back below 2**32."""
    out: list[Longs] = []
    carry: Longs | np.int64 = np.int64(0)
    for limb in limbs[:-1]:
        whole = limb + carry
        out.append(whole & _LOW)
        carry = whole >> _BITS
    return [*out, limbs[-1] + carry]


def integers(limbs: Sequence[Longs]) -> list[int]:
    """The sums as Python's integers."""
    total = [int(x) for x in limbs[-1]]
    for limb in reversed(limbs[:-1]):
        total = [(t << 32) + int(x) for t, x in zip(total, limb, strict=True)]
    return total


def divided(total: int, count: int, scale: int, wanted: int) -> int:
    """total / count, rounded once, half up (away from 0), as in Spark: the total is in units of 10**-scale, the quotient in units
    of 10**-wanted."""
    above, below = abs(total) * _ten(wanted - scale), count * _ten(scale - wanted)
    size = (2 * above + below) // (2 * below)
    return size if total >= 0 else -size


def _ten(places: int) -> int:
    """10**places; 1 where it would be a fraction."""
    return int(10 ** max(0, places))


def variances(counts: Longs, sums: Sequence[Longs], squares: Sequence[Longs], off: int, scale: int) -> npt.NDArray[np.float64]:
    """(Σx² - (Σx)²/n) / (n - off), rounded once, of n values in units of 10**-scale; 0 where n <= off."""
    n = [max(int(count), off + 1) for count in counts]
    spreads = [m * q - s * s for m, s, q in zip(n, integers(sums), integers(squares), strict=True)]
    unit = 10 ** (2 * scale)
    return np.array([d / (m * (m - off) * unit) for d, m in zip(spreads, n, strict=True)], np.float64)


def longs(limbs: Sequence[Longs]) -> pa.Array:
    """The sums as longs; null where one does not fit."""
    low, high = carried(limbs)
    return array_of((high << _BITS) | low, absent=_beyond(high))


def decimals(limbs: Sequence[Longs], t: pa.DataType) -> pa.Array:
    """The sums as decimals; null where one does not fit."""
    assert pa.types.is_decimal(t)
    parts = carried(limbs)
    beyond = np.zeros(len(parts[0]), np.bool_)
    if len(parts) == 2:
        low, high = (parts[1] << _BITS) | parts[0], parts[1] >> _BITS
    else:
        beyond = _beyond(parts[3])
        low, high = (parts[1] << _BITS) | parts[0], (parts[3] << _BITS) | parts[2]
    buffer = buffer_of(np.stack([low, high], axis=1))
    wide = pa.Array.from_buffers(pa.decimal128(38, t.scale), len(low), [None, buffer])
    fits = pc.and_(pa.array(~beyond), _fit(wide, t.precision, t.scale))
    return chosen(fits, wide, pa.scalar(None, wide.type)).cast(t)


def _beyond(high: Longs) -> npt.NDArray[np.bool_]:
    """Which sums need more than the bits of their limbs, the last one counting as 32."""
    return np.asarray((high < -(2**31)) | (high >= 2**31))


def _fit(values: pa.Array, precision: int, scale: int) -> pa.Array:
    """Which values have no more digits than this."""
    greatest = pa.scalar(Decimal(10**precision - 1).scaleb(-scale, _DIGITS), pa.decimal128(38, scale))
    least = pa.scalar(Decimal(1 - 10**precision).scaleb(-scale, _DIGITS), pa.decimal128(38, scale))
    return pc.and_(pc.less_equal(values, greatest), pc.greater_equal(values, least))


def _words(column: pa.Array) -> list[Longs]:
    """The rows as one long each, or as a low and a high one; null is 0."""
    if not pa.types.is_decimal(column.type):
        return [np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))]
    pairs = numbers_in(column.buffers()[1], np.int64, 2 * len(column), column.offset * 16).reshape(-1, 2)
    if column.null_count:
        pairs = np.where(column.is_valid().to_numpy(zero_copy_only=False)[:, None], pairs, 0)
    width = 1 if limb_count(column.type) == 2 else 2
    return [np.ascontiguousarray(pairs[:, i]) for i in range(width)]

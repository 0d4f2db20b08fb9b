"""How many different values there are: exactly, or estimated by HyperLogLog from little state, whatever order the rows come in."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import numbers_in, table_of
from penstock.core.hashing import hash64
from penstock.kernels.aggregates.bags import LOW, Bag, Longs, codes, ends, firsts
from penstock.kernels.aggregates.function import AggregateFunction, Folded, Input, Taken
from penstock.kernels.column_names import GROUP
from penstock.kernels.columns import as_type, column, numbers, plain

Doubles = npt.NDArray[np.float64]

VALUE = "value"
REGISTER, RANK = "register", "rank"

_BLOCK = 2**14


@dataclass(frozen=True)
class Distinct(AggregateFunction):
    """Exact without an error; else estimated with that standard error at most."""

    name = "distinct"
    nullable = False

    error: float | None = None

    @property
    def options(self) -> tuple[Any, ...]:
        return () if self.error is None else (self.error,)

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        if pa.types.is_nested(inputs[0].type):
            self.refuse(inputs[0], "its values cannot be told apart", "take a part that can")
        return pa.int64()

    def keeps(self, of: Taken) -> "Counted":
        return Different(of.column, of.input) if self.error is None else Registers(of.column, self.error)

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        bag = self.keeps(of)
        return as_type(pa.array(bag.counted(folded.items(bag), folded.groups)), of.type)


class Counted(Bag):
    """A bag that tells how many different values went into it."""

    @abstractmethod
    def counted(self, items: pa.Table, groups: int) -> Longs: ...


class Different(Counted):
    """The different values of a column, without null."""

    def __init__(self, name: str, t: pa.DataType) -> None:
        self.name, self.columns, self.fields = f"__distinct_{name}", (name,), [pa.field(VALUE, t)]

    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        items = table_of({GROUP: pa.array(groups), VALUE: plain(column(rows, self.columns[0]))})
        return items.filter(pc.is_valid(items[VALUE])) if items[VALUE].null_count else items

    def reduced(self, items: pa.Table) -> pa.Table:
        coded = column(items, VALUE).dictionary_encode()
        found = np.sort(codes(numbers(items, GROUP), coded.indices.to_numpy().astype(np.int64)))
        found = found[firsts(found)]
        return table_of({GROUP: found >> np.int64(32), VALUE: coded.dictionary.take(found & LOW)})

    def counted(self, items: pa.Table, groups: int) -> Longs:
        return np.bincount(numbers(items, GROUP), minlength=groups)


class Registers(Counted):
    """HyperLogLog with 2**precision registers: in each the longest run of zeros that any hash began with. The standard error of
    the estimate is 1.04 / sqrt(2**precision)."""

    def __init__(self, name: str, error: float) -> None:
        self._precision = precision_for(error)
        self.name, self.columns = f"__registers{self._precision}_{name}", (name,)
        self.fields = [pa.field(REGISTER, pa.int32()), pa.field(RANK, pa.int8())]

    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        values = column(rows, self.columns[0])
        if values.null_count:
            known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            values, groups = values.take(known), groups[known]
        hashes, rest = hash64(_hashed(values), len(values)), 64 - self._precision
        low = (hashes & np.uint64(2**rest - 1)).astype(np.float64)  # at most 53 bits: exact
        lengths = np.frexp(low)[1]
        registers = (hashes >> np.uint64(rest)).astype(np.int32)
        return table_of({GROUP: pa.array(groups), REGISTER: registers, RANK: (rest + 1 - lengths).astype(np.int8)})

    def reduced(self, items: pa.Table) -> pa.Table:
        highest = (numbers(items, REGISTER).astype(np.int64) << np.int64(8)) | numbers(items, RANK)
        found = np.sort(codes(numbers(items, GROUP), highest))
        found = found[firsts(found[::-1] >> np.int64(8))[::-1]]  # the last of each register
        registers = (found & LOW) >> np.int64(8)
        return table_of(
            {GROUP: found >> np.int64(32), REGISTER: registers.astype(np.int32), RANK: (found & np.int64(0xFF)).astype(np.int8)}
        )

    def counted(self, items: pa.Table, groups: int) -> Longs:
        starts = ends(numbers(items, GROUP), groups).to_numpy()
        blocks = range(0, groups, _BLOCK)  # every group takes a row of counts: not all at once
        found = [self._estimates(items.slice(starts[i], starts[min(i + _BLOCK, groups)] - starts[i]), i, groups) for i in blocks]
        return np.concatenate([np.empty(0, np.int64), *found])

    def _estimates(self, items: pa.Table, first: int, groups: int) -> Longs:
        """Of the block of groups that begins with the first."""
        ranks = np.zeros((min(_BLOCK, groups - first), 64 - self._precision + 2))
        np.add.at(ranks, (numbers(items, GROUP) - first, numbers(items, RANK)), 1)
        ranks[:, 0] = 2**self._precision - ranks.sum(axis=1)
        return np.rint(_estimated(ranks)).astype(np.int64)


def precision_for(error: float) -> int:
    """The least precision, from 11 to 18, whose standard error is at most this."""
    return max(11, math.ceil(2 * math.log2(1.04 / error)))


def _hashed(values: pa.Array) -> list[pa.Array]:
    """What is hashed of a column: itself; of decimals the two longs they are made of, which is faster."""
    if not pa.types.is_decimal(values.type):
        return [values]
    words = numbers_in(values.buffers()[1], np.int64, 2 * len(values), values.offset * 16).reshape(-1, 2)
    return [pa.array(words[:, 0]), pa.array(words[:, 1])]


def _estimated(ranks: Doubles) -> Doubles:
    """How many different hashes left so many registers (of each row) at each rank; Ertl's estimator, good over the whole range."""
    registers = ranks.sum(axis=1)
    z = registers * _tau(1 - ranks[:, -1] / registers)
    for k in range(ranks.shape[1] - 2, 0, -1):
        z = 0.5 * (z + ranks[:, k])
    z += registers * _sigma(ranks[:, 0] / registers)
    return np.asarray(registers**2 / (2 * math.log(2) * z))


def _sigma(x: Doubles) -> Doubles:
    """x + Σ x**(2**k) · 2**(k-1); infinite at 1, where all registers are empty."""
    total, power, weight = x.copy(), np.where(x < 1, x, 0.0), 1.0
    while np.any(power > 0):
        power = power * power
        total, weight = total + power * weight, weight * 2
    return np.where(x < 1, total, np.inf)


def _tau(x: Doubles) -> Doubles:
    """(1 - x - Σ (1 - x**(2**-k))**2 · 2**-k) / 3."""
    total, root, weight = 1 - x, np.where((x > 0) & (x < 1), x, 1.0), 1.0
    while np.any(root < 1):
        root, weight = np.sqrt(root), weight * 0.5
        total = total - (1 - root) ** 2 * weight
    return np.where((x > 0) & (x < 1), total / 3, 0.0)

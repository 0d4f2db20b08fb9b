"""The least and the greatest value."""

from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from penstock.kernels.aggregates.function import AggregateFunction, Folded, Input, Taken
from penstock.kernels.aggregates.parts import Greatest, Least, Part
from penstock.kernels.columns import as_type


class _Extreme(AggregateFunction):
    @abstractmethod
    def keeps(self, of: Taken) -> Sequence[Part]: ...

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.ordered(inputs[0])
        return inputs[0].type

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        (part,) = self.keeps(of)
        return as_type(folded.array(part), of.type)


class Min(_Extreme):
    """NaN counts as the greatest."""

    name = "min"

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Least(of.column, of.input)]


class Max(_Extreme):
    """NaN counts as the greatest."""

    name = "max"

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Greatest(of.column, of.input)]

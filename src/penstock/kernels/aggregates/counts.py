"""Counts, shares and rates of rows."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import BadFlow
from penstock.kernels.aggregates.function import AggregateFunction, Folded, Input, Taken
from penstock.kernels.aggregates.parts import Part, Rows, Trues, Values
from penstock.kernels.columns import as_type


class Count(AggregateFunction):
    """The number of rows, or of values that are not null."""

    name = "count"
    nullable = False

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        return pa.int64()

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Values(of.column, of.input) if of.columns else Rows()]

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        (counted,) = self.keeps(of)
        return as_type(folded.array(counted), of.type)


class _OfCondition(AggregateFunction):
    nullable = False

    def condition(self, given: Input) -> None:
        if not pa.types.is_boolean(given.type):
            self.refuse(given, "it takes a condition", f'write what is true or false, e.g. agg.{self.name}("amount > 100")')


class CountIf(_OfCondition):
    """The number of rows for which a condition is true."""

    name = "count_if"

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.condition(inputs[0])
        return pa.int64()

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Trues(of.column, of.input)]

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        (true,) = self.keeps(of)
        return as_type(folded.array(true), of.type)


class Ratio(_OfCondition):
    """The share of the rows for which a condition is true."""

    name = "ratio"

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        self.condition(inputs[0])
        return pa.float64()

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Trues(of.column, of.input), Rows()]

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        true, rows = self.keeps(of)
        return as_type(pa.array(folded.numbers(true) / folded.numbers(rows)), of.type)


class Rate(AggregateFunction):
    """Rows per second."""

    name = "rate"
    nullable = False
    per_time = True

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        return pa.float64()

    def keeps(self, of: Taken) -> Sequence[Part]:
        return [Rows()]

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        if folded.seconds is None:
            raise BadFlow(f"cannot tell {of.name}, a rate per second, where there is no stretch of time")
        return as_type(pa.array(folded.numbers(Rows()) / folded.seconds), of.type)

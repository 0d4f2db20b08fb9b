"""The user's own aggregate: a state per group, rows added to it as an Arrow table, states merged, a result read off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import BadFlow, BadRow, PenstockError
from penstock.kernels.aggregates.bags import Bag, Longs, by_group, ends, order_of
from penstock.kernels.aggregates.function import AggregateFunction, Folded, Input, Taken
from penstock.kernels.aggregates.unanswered import NoResult
from penstock.kernels.column_names import GROUP
from penstock.kernels.columns import column, numbers
from penstock.plan import Aggregate

STATE = "state"


@dataclass(frozen=True)
class Functions(AggregateFunction):
    """What the user gave. States are Python values that `state` can hold; rows are tables with the columns `names`."""

    name = "own"

    names: tuple[str, ...]
    state: pa.DataType
    init: Callable[[], Any]
    add: Callable[[Any, pa.Table], Any]
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any] | None  # what the user calls result
    tolerant: bool = False  # rows that cannot be added are passed over

    def type_of(self, inputs: Sequence[Input]) -> pa.DataType:
        raise BadFlow("an aggregate of your own states its type", hint='say it, e.g. agg.own("amount", …, type="double")')

    def keeps(self, of: Taken) -> "Own":
        return Own(of.name, of.columns, self)

    def result(self, of: Taken, folded: Folded) -> pa.Array:
        bag = self.keeps(of)
        return bag.results(folded.items(bag), folded.groups, of.type)


def own_of(aggregates: Sequence[Aggregate]) -> "tuple[Own, ...]":
    """The user's own among these: functions that may fail on a row."""
    return tuple(Own(a.name, a.columns, Functions(*a.options)) for a in aggregates if a.function == Functions.name)


def tolerant(aggregates: Sequence[Aggregate]) -> tuple[Aggregate, ...]:
    """The same, where the user's own pass over rows that they cannot add."""
    return tuple(replace(a, options=(*a.options, True)) if a.function == Functions.name else a for a in aggregates)


class GroupFailed(Exception):
    """A state cannot be worked out; group: its number."""

    def __init__(self, group: int, error: BadRow) -> None:
        super().__init__(group, error)
        self.group, self.error = group, error


class Own(Bag):
    """One state per group."""

    def __init__(self, called: str, columns: Sequence[str], functions: Functions) -> None:
        self.name, self.columns, self._called, self._its = f"__own_{called}", tuple(columns), called, functions
        self.fields = [pa.field(STATE, functions.state)]

    def items(self, rows: pa.Table, groups: Longs) -> pa.Table:
        order = order_of(groups)
        sorted_ = rows.select(list(self.columns)).take(order).rename_columns(list(self._its.names))
        known, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
        pieces = zip(known.tolist(), starts.tolist(), counts.tolist(), strict=True)
        return self._items(known, [self._of_group(g, self._added, sorted_.slice(a, n)) for g, a, n in pieces])

    def reduced(self, items: pa.Table) -> pa.Table:
        items = by_group(items)
        groups = numbers(items, GROUP)
        known, starts, counts = np.unique(groups, return_index=True, return_counts=True)
        if len(known) == len(groups):
            return items
        values = column(items, STATE).to_pylist()
        pieces = zip(known.tolist(), starts.tolist(), counts.tolist(), strict=True)
        return self._items(known, [self._of_group(g, self._merged, values[a : a + n]) for g, a, n in pieces])

    def results(self, items: pa.Table, groups: int, t: pa.DataType) -> pa.Array:
        starts = ends(numbers(items, GROUP), groups).to_numpy()
        values = column(items, STATE).to_pylist()
        states = [values[a] if a < b else self._call("init") for a, b in pairwise(starts.tolist())]
        return self._results(states, t) if self._its.finish else self._array(states, t, "merge")

    def _results(self, states: Sequence[Any], t: pa.DataType) -> pa.Array:
        """NoResult where some states have none; null for these where that is wanted."""
        answers = [self._answer(state, t) for state in states]
        values = self._array([value for value, _ in answers], t, "result")
        causes = {i: cause for i, (_, cause) in enumerate(answers) if cause is not None}
        if causes and not self._its.tolerant:
            raise NoResult(self.called, values, causes)
        return values

    def _answer(self, state: Any, t: pa.DataType) -> tuple[Any, str | None]:
        """The result, or why there is none."""
        try:
            value = self._call("result", state)
            self._array([value], t, "result")
        except BadRow as error:
            return None, "; ".join([error.what, *error.detail])
        return value, None

    def added(self, rows: pa.Table) -> None:
        """BadRow if these rows cannot be added, or give what is no state."""
        table = rows.select(list(self.columns)).rename_columns(list(self._its.names))
        self._array([self._call("add", self._call("init"), table)], self._its.state, "add")

    def _of_group(self, group: int, function: Callable[[Any], Any], given: Any) -> Any:
        """What a function makes of a group. If it fails the error knows which group it was."""
        try:
            state = function(given)
            self._array([state], self._its.state, "add or merge")
        except BadRow as error:
            raise GroupFailed(group, error) from error
        return state

    def _added(self, rows: pa.Table) -> Any:
        state = self._call("init")
        try:
            added = self._call("add", state, rows)
            if self._its.tolerant:
                self._array([added], self._its.state, "add")
            return added
        except BadRow:
            if not self._its.tolerant:
                raise
        if rows.num_rows == 1:
            return self._call("init")
        half = rows.num_rows // 2
        return self._merged([self._added(rows.slice(0, half)), self._added(rows.slice(half))])

    def _merged(self, states: Sequence[Any]) -> Any:
        merged = states[0]
        for state in states[1:]:
            merged = self._call("merge", merged, state)
        return merged

    def _items(self, groups: Longs, states: Sequence[Any]) -> pa.Table:
        return pa.table({GROUP: pa.array(groups, pa.int64()), STATE: self._array(states, self._its.state, "add or merge")})

    def _array(self, values: Sequence[Any], t: pa.DataType, made_by: str) -> pa.Array:
        plain = [v.as_py() if isinstance(v, pa.Scalar) else v for v in values]
        try:
            return pa.array(plain, t)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise BadRow(
                f"aggregate {self._called}: {made_by} gave a value that is no {t}",
                str(error),
                hint="give a value of the type that you stated, or state another",
            ) from error

    def _call(self, which: str, *given: Any) -> Any:
        try:
            return getattr(self._its, "finish" if which == "result" else which)(*given)
        except (PenstockError, MemoryError):  # too little memory is not the row's fault: elsewhere it may do
            raise
        except Exception as error:
            raise BadRow(f"aggregate {self._called}: {which} failed", f"{type(error).__name__}: {error}") from error

    @property
    def has_result(self) -> bool:
        return self._its.finish is not None

    @property
    def called(self) -> str:
        return f"agg.own {self._called}"

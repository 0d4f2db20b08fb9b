"""Aggregates: what a group says about its rows. Types are those of Spark, where Spark has the function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock import plan
from penstock.core.columns import HIDDEN
from penstock.core.expression import Column, Expression
from penstock.core.schema import Schema
from penstock.flow import arguments
from penstock.flow.place import At

if TYPE_CHECKING:
    from penstock.kernels.aggregates.function import AggregateFunction


@dataclass(frozen=True)
class Agg:
    """An aggregate before it has a name: `agg.sum("amount")`. Columns may be any Spark SQL expressions."""

    function: str
    column: str | None = None  # None: of rows
    others: tuple[str, ...] = ()  # further columns it reads
    options: tuple[Any, ...] = ()  # what else it was given, as the function wants it
    type: pa.DataType | None = None  # of the result, where the user states it
    implementation: "AggregateFunction | None" = None  # of one from outside; Penstock's own are found by name

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions it reads, in its own order."""
        return (self.column, *self.others) if self.column is not None else self.others


class agg:
    """The aggregates that windows, sessions and groups offer.

    `orders.window(Tumbling("1 minute"), by="shop").agg(n=agg.count(), total=agg.sum("amount"), p95=agg.quantile("ms", 0.95))`

    Whatever is called a column may be a Spark SQL expression: `agg.sum("price * pieces")`. Nulls are left out unless it says
    otherwise, and without any value the result is null (of `count`, `count_if` and `distinct` 0, of `collect` and `top` an empty
    array). NaN is greater than every number; -0.0 is 0.0. Sums of integers and decimals are exact, and one that does not fit its
    type is null, as `try_sum` of Spark is."""

    @staticmethod
    def count(column: str | None = None) -> Agg:
        """The number of rows, or of rows in which the column is not null."""
        return Agg("count") if column is None else Agg("count", _column(column, "count"))

    @staticmethod
    def count_if(condition: str) -> Agg:
        """The number of rows for which the condition is true: `agg.count_if("status >= 500")`."""
        return Agg("count_if", _column(condition, "count_if"))

    @staticmethod
    def ratio(condition: str) -> Agg:
        """The share of the rows, from 0.0 to 1.0, for which the condition is true: `agg.ratio("status >= 500")`.

        A row for which it is null counts as one for which it is not true: all rows are divided by, as in
        `avg(case when … then 1.0 else 0.0 end)`. `stream.where("… is not null")` before it leaves such rows out."""
        return Agg("ratio", _column(condition, "ratio"))

    @staticmethod
    def rate() -> Agg:
        """Rows per second of the window or session, a double; refused where there is no stretch of time to divide by."""
        return Agg("rate")

    @staticmethod
    def sum(column: str) -> Agg:
        """The sum: of integers a long, of floats a double, of decimals one with ten more digits; null where it does not fit."""
        return Agg("sum", _column(column, "sum"))

    @staticmethod
    def avg(column: str) -> Agg:
        """The mean, a double; of decimals a decimal with four more digits after the point, as in Spark: of decimal(10, 2) a
        decimal(14, 6), of more than 38 digits none. The sum is exact and what it is divided to is rounded half up; a mean that does
        not fit its type is null, as `try_avg` of Spark is."""
        return Agg("avg", _column(column, "avg"))

    @staticmethod
    def var(column: str, *, population: bool = False) -> Agg:
        """The variance, a double: of a sample (divided by n - 1, null below two values) or of the whole population (by n).

        Of integers, and of decimals of up to 18 digits, it is rounded only once, at the end."""
        return Agg("var", _column(column, "var"), options=(0 if arguments.flag(population, "population") else 1,))

    @staticmethod
    def stddev(column: str, *, population: bool = False) -> Agg:
        """The standard deviation: the square root of `var`."""
        return Agg("stddev", _column(column, "stddev"), options=(0 if arguments.flag(population, "population") else 1,))

    @staticmethod
    def min(column: str) -> Agg:
        """The least value; NaN counts as the greatest."""
        return Agg("min", _column(column, "min"))

    @staticmethod
    def max(column: str) -> Agg:
        """The greatest value; NaN counts as the greatest."""
        return Agg("max", _column(column, "max"))

    @staticmethod
    def first(column: str, *, skip_nulls: bool = False) -> Agg:
        """The value of the earliest row by event time, of equal ones by position in the log; null if it is null there.

        `skip_nulls=True` takes the earliest row in which the column is not null."""
        return Agg("first", _column(column, "first"), options=(not arguments.flag(skip_nulls, "skip_nulls"),))

    @staticmethod
    def last(column: str, *, skip_nulls: bool = False) -> Agg:
        """The value of the latest row by event time, of equal ones by position in the log; null if it is null there.

        `skip_nulls=True` takes the latest row in which the column is not null."""
        return Agg("last", _column(column, "last"), options=(not arguments.flag(skip_nulls, "skip_nulls"),))

    @staticmethod
    def collect(column: str) -> Agg:
        """All values that are not null, as an array in the order of event time, of equal ones of position in the log.

        Every value is kept as long as its window is: prefer `top`, `distinct` or `quantile` where they tell enough."""
        return Agg("collect", _column(column, "collect"))

    @staticmethod
    def top(n: int, column: str, *, by: str | None = None) -> Agg:
        """The values of the column in the n rows with the greatest `by`, greatest first, as an array:
        `agg.top(3, "product", by="amount")`. Without `by`, the n greatest values themselves.

        Rows whose `by` is null are left out; of equal ones the earlier by event time, then position, comes first. It takes rows,
        not groups of them: one product may stand there twice. Without any such row the array is empty."""
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST:
            arguments.refuse(
                f"cannot take the top {n!r}", f'give a number from 1 to {_MOST}, e.g. agg.top(3, "product", by="amount")'
            )
        column = _column(column, "top")
        return Agg("top", column, (column if by is None else _column(by, "top"),), (n,))

    @staticmethod
    def distinct(column: str, *, approx: bool = False, error: float | None = None) -> Agg:
        """How many different values there are. NaN is one value, and 0.0 and -0.0 are the same.

        Exact, it keeps every different value. `approx=True` keeps at most some thousands of bytes (HyperLogLog) and has a standard
        error of at most 2 %; `error=` sets it, from 0.0021 to 0.5. The estimate does not depend on the order of the rows."""
        if not arguments.flag(approx, "approx"):
            if error is not None:
                arguments.refuse("cannot count exactly with an error", "add approx=True, or leave error out")
            return Agg("distinct", _column(column, "distinct"))
        wanted = 0.02 if error is None else arguments.number(error, 0.0021, 0.5, "error")
        return Agg("distinct", _column(column, "distinct"), options=(wanted,))

    @staticmethod
    def quantile(column: str, q: float, *, error: float = 0.01) -> Agg:
        """The least value that a share q of all values does not exceed, a double: q=0.5 is the median, q=0.95 the 95th percentile.

        That is the value of rank ceil(q · n), the first for q=0: no mean of two neighbours is taken. SQL calls it percentile_disc
        (DuckDB's quantile_disc, Spark's percentile_approx), not percentile_cont (Spark's percentile and median).

        It is a value within the relative error (1 % unless said otherwise, from 0.00001 to 0.5) of the true one, however many
        values there are and whatever order they came in (DDSketch). Negative numbers, 0, infinities and NaN are told apart."""
        share = arguments.number(q, 0.0, 1.0, "q")
        return Agg("quantile", _column(column, "quantile"), options=(share, arguments.number(error, 1e-5, 0.5, "error")))

    @staticmethod
    def own(
        columns: str | Sequence[str],
        *,
        init: Callable[[], Any],
        add: Callable[[Any, pa.Table], Any],
        merge: Callable[[Any, Any], Any],
        type: "str | pa.DataType",
        result: Callable[[Any], Any] | None = None,
        state: "str | pa.DataType | None" = None,
    ) -> Agg:
        """An aggregate of your own. Here the product of all factors:

            agg.own("factor", init=lambda: 1.0, merge=lambda a, b: a * b, type="double",
                    add=lambda state, rows: state * pc.product(rows["factor"]).as_py())

        `init()` gives the state of no rows. `add(state, rows)` gives the state with some rows of one group added: an Arrow table,
        whose columns are called as they were given here, with at least one row. `merge(a, b)` puts two states together.
        `result(state)` reads the answer off; without it the state is the answer. `type` is the type of the answer, as a schema
        writes it or as Arrow has it; `state` is that of states, which are plain Python values of it (left out, it is `type`).

        Rows are added in pieces that nobody promises, and states are merged in any order. So the answer is well defined only if
        merge is associative and commutative, `init()` changes nothing, and adding rows at once or in pieces comes to the same.
        The functions must neither look at clocks nor change anything outside. A row that cannot be added and a result that
        cannot be given are set aside as `agg(on_error=…)` says; if `merge` fails, the flow stops."""
        given = (columns,) if isinstance(columns, str) else tuple(columns)
        if not given:
            arguments.refuse("cannot make an aggregate of no column", 'name what it reads, e.g. agg.own("amount", …)')
        functions = [arguments.function(f, name) for name, f in (("init", init), ("add", add), ("merge", merge))]
        functions.append(None if result is None else arguments.function(result, "result"))
        column, *others = (_column(c, "own") for c in given)
        if len(set(given)) < len(given):
            arguments.refuse("cannot make an aggregate that reads a column twice", "name each column once")
        answer = arguments.type_of(type, "type")
        kept = answer if state is None else arguments.type_of(state, "state")
        return Agg("own", column, tuple(others), (given, kept, *functions), answer)

    @staticmethod
    def of(function: "AggregateFunction", *columns: str) -> Agg:
        """An aggregate that a class of yours answers for, of these columns: see CONTRIBUTING. `agg.own` takes plain functions."""
        from penstock.kernels.aggregates.function import AggregateFunction

        if not isinstance(function, AggregateFunction):
            arguments.refuse(f"cannot aggregate by {function!r}", "give an instance of a class made from AggregateFunction")
        given = [_column(c, function.name) for c in columns]
        column, others = (given[0], tuple(given[1:])) if given else (None, ())
        return Agg(function.name, column, others, function.options, implementation=function)


def resolve(
    name: str, given: Agg, schema: Schema, at: At, *, lasting: bool = True
) -> tuple[plan.Aggregate, list[tuple[str, Expression]]]:
    """The aggregate as kernels take it, and the columns that have to be made for it: a name and what it holds.

    lasting: whether a result stands for a stretch of time, by which a rate is divided."""
    from penstock.kernels.aggregates.function import Input  # Polars is loaded when a flow is checked, not when it is written
    from penstock.kernels.aggregates.functions import FUNCTIONS

    if given.implementation and given.function in FUNCTIONS:
        at.refuse(f"cannot tell {name}: Penstock has an aggregate {given.function!r} of its own", hint="choose another name")
    function = given.implementation or FUNCTIONS[given.function](*given.options)
    if function.per_time and not lasting:
        at.refuse(f"cannot tell {name}: there is no stretch of time to divide by", hint="take a rate of windows or sessions")
    read = {text: at.expression(text, schema) for text in given.texts}
    named = {text: _column_of(e) or f"{HIDDEN}{i or ''}_{name}" for i, (text, e) in enumerate(read.items())}
    with at.located():
        t = given.type or function.type_of([Input(text, read[text].type) for text in given.texts])
    columns = [named[text] for text in given.texts]
    column, others = (columns[0], tuple(columns[1:])) if columns else (None, ())
    made = plan.Aggregate(at.new_name(name), given.function, column, t, others, given.options, given.implementation)
    return made, [(named[text], e) for text, e in read.items() if not _column_of(e)]


def resolve_all(
    named: Sequence[tuple[str, Agg]], schema: Schema, at: At, *, lasting: bool = True
) -> tuple[tuple[plan.Aggregate, ...], list[tuple[str, Expression]]]:
    """The same for all aggregates of a step. Equal expressions are worked out once, so that what is kept of them is shared."""
    aggregates: list[plan.Aggregate] = []
    hidden: dict[str, tuple[str, Expression]] = {}  # by text
    for name, given in named:
        a, made = resolve(name, given, schema, at, lasting=lasting)
        same = {column: hidden.setdefault(e.text, (column, e))[0] for column, e in made}
        column = None if a.column is None else same.get(a.column, a.column)
        aggregates.append(replace(a, column=column, others=tuple(same.get(c, c) for c in a.others)))
    return tuple(aggregates), list(hidden.values())


def output_field(aggregate: plan.Aggregate) -> pa.Field:
    """The column of a result; results stand for one row at least."""
    from penstock.kernels.aggregates.functions import function_of

    return pa.field(aggregate.name, aggregate.type, nullable=function_of(aggregate).nullable)


_MOST = 10_000  # of top


def _column_of(e: Expression) -> str | None:
    """The column that an expression is, if it is nothing else."""
    return e.tree.name if isinstance(e.tree, Column) else None


def _column(given: Any, function: str) -> str:
    hint = f'name a column or write an expression, e.g. agg.{function}({"3, " if function == "top" else ""}"amount")'
    return arguments.text(given, f"cannot take {function} of", hint)

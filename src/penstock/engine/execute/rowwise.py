"""Steps that look at each row alone, inside a task, as far as no JVM is needed for them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl
import pyarrow as pa

from penstock.core.arrow import table_of
from penstock.core.columns import ADDRESS, APPEND_TIME, OP, POSITION, TIME, WATERMARK
from penstock.engine.execute.failing import Failure, Refused, cause_of, in_order, isolated
from penstock.engine.lookup.rows import look_up
from penstock.errors import BadFlow, BadRow, PenstockError
from penstock.kernels.aggregates.own import Own
from penstock.kernels.expressions import compile as polars_of
from penstock.kernels.port import Fates
from penstock.kernels.rowwise import as_input, hide_where_not, keep_where
from penstock.plan import Hidden, Lookup, MapArrow, Node, Select, Step, Union, Where

SYSTEM = (TIME, WATERMARK, POSITION, ADDRESS, OP, APPEND_TIME)
Function = Callable[[pa.Table], pa.Table]


@dataclass
class Applied:
    """What a step made of rows: what it gives, what became of those it got, and those on which it failed."""

    rows: pa.Table
    fates: Fates
    failures: list[Failure] = field(default_factory=list)


class RowStep(Protocol):
    """A step that looks at each row alone. Time, watermark and position stay with the row."""

    @property
    def positioned(self) -> bool:
        """The rows that it gets must carry POSITION."""
        ...

    def apply(self, rows: pa.Table, port: int) -> Applied:
        """port: the input that the rows came in by."""
        ...


Maker = Callable[[Step, bool], RowStep]
_MAKERS: dict[type[Node], Maker] = {}


def register(node: type[Node], make: Maker) -> None:
    """Runs steps of this kind with what `make` gives for a step, and whether its rows are to keep the order of the log."""
    _MAKERS[node] = make


def row_step(step: Step, ordered: bool = False) -> RowStep | None:
    """What runs a step inside a task; None where it has state, or only Spark SQL can evaluate it."""
    make = None if step.node.needs_sql else _MAKERS.get(type(step.node))
    return make(step, ordered) if make else None


@dataclass(frozen=True)
class PerTable:
    """A step that is a function of tables, and fails on no row."""

    function: Function
    filters: bool = False  # rows may be left out
    positioned: bool = False

    def apply(self, rows: pa.Table, port: int) -> Applied:
        out = self.function(rows)
        filtered = {"filtered": rows.num_rows - out.num_rows} if self.filters else {}
        return Applied(out, Counter({"in": rows.num_rows, "passed": out.num_rows} | filtered))


def _where(step: Step, ordered: bool) -> RowStep:
    assert isinstance(step.node, Where)
    condition = polars_of(step.node.condition.tree)  # type: ignore[arg-type]
    return PerTable(lambda rows: keep_where(rows, evaluate(rows, [condition])[0])[0], filters=True)


def _hidden(step: Step, ordered: bool) -> RowStep:
    assert isinstance(step.node, Hidden)
    condition = polars_of(step.node.condition.tree)  # type: ignore[arg-type]
    return PerTable(lambda rows: hide_where_not(rows, evaluate(rows, [condition])[0]))


def _select(step: Step, ordered: bool) -> RowStep:
    assert isinstance(step.node, Select)
    select = step.node
    return PerTable(lambda rows: project(select, rows))


@dataclass(frozen=True)
class Mapped:
    step: Step
    function: Function
    positioned: bool = False

    def apply(self, rows: pa.Table, port: int) -> Applied:
        out, failures = map_or_fail(self.step, self.function, rows)
        return Applied(out, Counter({"in": rows.num_rows, "passed": out.num_rows}), failures)


def _map(step: Step, ordered: bool) -> RowStep:
    assert isinstance(step.node, MapArrow)
    return Mapped(step, step.node.function)


@dataclass(frozen=True)
class LookedUp:
    step: Step
    positioned: bool = False

    def apply(self, rows: pa.Table, port: int) -> Applied:
        return Applied(*look_up(self.step, rows, SYSTEM))


@dataclass(frozen=True)
class United:
    """Rows of several inputs; those of one may stand in the order of the log, and those of another not."""

    step: Step
    ordered: bool
    positioned: bool = True

    def apply(self, rows: pa.Table, port: int) -> Applied:
        travelling = [name for name in (TIME, WATERMARK, POSITION, APPEND_TIME) if name in rows.column_names]
        if self.ordered:
            travelling.append(ADDRESS)
            if ADDRESS not in rows.column_names:
                rows = rows.append_column(ADDRESS, pa.nulls(rows.num_rows, pa.int64()))
        out = as_input(rows.select([*self.step.schema.names, *travelling]), port)
        return Applied(out, Counter({"in": out.num_rows, "passed": out.num_rows}))


register(Where, _where)
register(Hidden, _hidden)
register(Select, _select)
register(MapArrow, _map)
register(Lookup, lambda step, ordered: LookedUp(step))
register(Union, United)


def evaluate(rows: pa.Table, expressions: list[pl.Expr]) -> list[pa.Array]:
    """Polars over the columns that the expressions name."""
    wanted = dict.fromkeys(name for e in expressions for name in e.meta.root_names())
    frame = pl.DataFrame(pl.from_arrow(rows.select(list(wanted) or [TIME])))
    out = frame.select(e.alias(f"c{i}") for i, e in enumerate(expressions))
    return [out[f"c{i}"].to_arrow() for i in range(len(expressions))]


def project(select: Select, rows: pa.Table) -> pa.Table:
    """Columns that only pass through are not touched."""
    computed = {n: e for n, e in select.columns if not (len(e.columns) == 1 and e.text == e.columns[0])}
    values = dict(zip(computed, evaluate(rows, [polars_of(e.tree) for e in computed.values() if e.tree]), strict=True))
    columns = {n: values[n].cast(e.type) if n in values else rows.column(e.columns[0]) for n, e in select.columns}
    return table_of(columns | {n: rows.column(n) for n in SYSTEM if n in rows.column_names})


def map_rows(step: Step, function: Function, rows: pa.Table) -> pa.Table:
    """map_arrow: one row out for each row in, so that time and position stay with it. Refused where it cannot be worked out."""
    user = rows.select([n for n in rows.column_names if n not in SYSTEM])
    try:
        out = function(user)
    except (PenstockError, MemoryError):  # too little memory is not the row's fault: elsewhere it may do
        raise
    except Exception as error:
        raise Refused(cause_of(error)) from error
    if not isinstance(out, pa.Table) or out.num_rows != rows.num_rows:
        got = f"{out.num_rows} rows" if isinstance(out, pa.Table) else type(out).__name__
        raise BadFlow(
            f"map_arrow must give a table with one row for each row it got: {rows.num_rows} rows in, {got} out",
            f'step "{step.name}" ({step.origin})',
            hint="use where() to leave rows out",
        )
    return _fitted(step, out, rows)


def _fitted(step: Step, out: pa.Table, rows: pa.Table) -> pa.Table:
    """What a function gave in the columns of its step, beside the system columns of the rows."""
    try:
        made = out.select(step.schema.names).cast(step.schema.arrow)
    except (KeyError, pa.ArrowException) as error:
        alike = not isinstance(error, KeyError) and all(_of_a_kind(out.schema.field(f.name).type, f.type) for f in step.schema)
        if isinstance(error, pa.ArrowInvalid) and alike:
            raise Refused(f"a value does not fit its column: {error}") from error
        raise BadFlow(f"map_arrow gave other columns than its schema: {error}", f'step "{step.name}" ({step.origin})') from error
    for name in SYSTEM:
        if name in rows.column_names:
            made = made.append_column(name, rows.column(name))
    return made


def _of_a_kind(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a value of the one may or may not fit the other; else none would, and the function is wrong."""
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if given == wanted or (pa.types.is_temporal(given) and pa.types.is_temporal(wanted)):
        return True
    return any(is_a(given) for is_a in numbers) and any(is_a(wanted) for is_a in numbers)


def addable(own: Own, rows: pa.Table) -> pa.Table:
    """No rows, if the user's own aggregate can take these; else Refused."""
    try:
        own.added(rows)
    except BadRow as error:
        raise Refused("; ".join([error.what, *error.detail])) from error
    return rows.slice(0, 0)


def map_or_fail(step: Step, function: Function, rows: pa.Table) -> tuple[pa.Table, list[Failure]]:
    """map_arrow, table by table, and where it raises row by row at last: what comes of the rows, and those that are set aside."""
    out, refused = isolated(lambda part: map_rows(step, function, part), rows)
    failed = [i for i, _ in refused]
    if failed and step.on_error == "null":
        return in_order(out, nulls_of(step, rows.take(failed)), failed), []
    out = nulls_of(step, rows.slice(0, 0)) if out is None else out
    return out, [Failure(i, called(function), cause) for i, cause in refused]


def nulls_of(step: Step, failed: pa.Table) -> pa.Table:
    """What stands for rows on which a step failed: nulls, at their time and place."""
    columns = {f.name: pa.nulls(failed.num_rows, f.type) for f in step.schema}
    return pa.table(columns | {n: failed.column(n) for n in SYSTEM if n in failed.column_names})


def called(function: Function) -> str:
    """A user's function by its name."""
    return str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")

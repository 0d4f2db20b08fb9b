"""Steps that look at each row alone, inside a task: where, select and map_arrow, as far as no JVM is needed for them."""

from collections.abc import Callable

import polars as pl
import pyarrow as pa

from penstock.core.change import ADDRESS, APPENDED, OP, POSITION, TIME, WATERMARK
from penstock.engine.failing import Failure, Refused, cause_of, in_order, isolated
from penstock.errors import BadFlow, BadRow, PenstockError
from penstock.kernels.expressions import compile as polars_of
from penstock.kernels.own import Own
from penstock.kernels.rowwise import hide_where_not, keep_where
from penstock.plan import Hidden, MapArrow, Select, Step, Where

SYSTEM = (TIME, WATERMARK, POSITION, ADDRESS, OP, APPENDED)
Function = Callable[[pa.Table], pa.Table]


def row_by_row(step: Step, rows: pa.Table) -> pa.Table | None:
    """What a step that looks at each row alone makes of the rows on which it does not fail; None where it is no such step, or only
    Spark SQL can say."""
    match step.node:
        case Where(condition) if condition.tree is not None:
            return keep_where(rows, evaluate(rows, [polars_of(condition.tree)])[0])[0]
        case Hidden(condition) if condition.tree is not None:
            return hide_where_not(rows, evaluate(rows, [polars_of(condition.tree)])[0])
        case Select() if not step.node.needs_sql:
            return project(step, rows)
        case MapArrow(function):
            return map_or_fail(step, function, rows)[0]
        case _:
            return None


def evaluate(rows: pa.Table, expressions: list[pl.Expr]) -> list[pa.Array]:
    """Polars over the columns that the expressions name."""
    wanted = dict.fromkeys(name for e in expressions for name in e.meta.root_names())
    frame = pl.DataFrame(pl.from_arrow(rows.select(list(wanted) or [TIME])))
    out = frame.select(e.alias(f"c{i}") for i, e in enumerate(expressions))
    return [out[f"c{i}"].to_arrow() for i in range(len(expressions))]


def project(step: Step, rows: pa.Table) -> pa.Table:
    """select: columns that only pass through are not touched."""
    definition = step.node
    assert isinstance(definition, Select)
    computed = {n: e for n, e in definition.columns if not (len(e.columns) == 1 and e.text == e.columns[0])}
    values = dict(zip(computed, evaluate(rows, [polars_of(e.tree) for e in computed.values() if e.tree]), strict=True))
    columns = {n: values[n].cast(e.type) if n in values else rows.column(e.columns[0]) for n, e in definition.columns}
    return pa.table(columns | {n: rows.column(n) for n in SYSTEM if n in rows.column_names})


def map_rows(step: Step, function: Function, rows: pa.Table) -> pa.Table:
    """map_arrow: one row out for each row in, so that time and position stay with it. Refused where it cannot be worked out."""
    user = rows.select([n for n in rows.column_names if n not in SYSTEM])
    try:
        out = function(user)
    except PenstockError:
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

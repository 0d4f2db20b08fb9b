"""The Iceberg table that a sink writes, made to fit; and its rows found by key."""

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.arrow import one_array
from penstock.core.columns import INDEX
from penstock.core.schema import Schema
from penstock.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_MOST = 1000  # values that are listed; more are a range


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns as Iceberg has them: whole numbers have 32 or 64 bits."""
    small = (pa.int8(), pa.int16())
    return pa.schema([f.with_type(pa.int32()) if f.type in small else f for f in schema.arrow])


def fit(table: "Table", wanted: pa.Schema, called: str) -> None:
    """Adds columns that are new; SinkError if those that are there have other types."""
    there = {f.name: f for f in table.schema().as_arrow()}
    for f in wanted:
        if f.name in there:
            found = Schema.from_arrow(pa.schema([there[f.name].remove_metadata()])).arrow.field(0)
            if found.type != f.type:
                raise SinkError(
                    f"column {f.name!r} of {called} is {found.type}, not {f.type}",
                    hint="cast the column in the flow, or name another table",
                )
    new = [f.with_nullable(True) for f in wanted if f.name not in there]
    if new:
        with table.update_schema() as update:
            update.union_by_name(pa.schema(new))


def matching(keys: pa.Table) -> Any:
    """A condition that the rows of these keys meet, and others may."""
    known = _expressions()
    wanted = known.AlwaysTrue()
    for name in keys.column_names:
        wanted = known.And(wanted, _condition(name, pc.unique(one_array(keys[name]))))
    return wanted


def without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have none of the keys."""
    found = pl.DataFrame(pl.from_arrow(rows.select(keys.column_names).cast(keys.schema))).with_row_index(INDEX)
    left = found.join(pl.DataFrame(pl.from_arrow(keys)), on=keys.column_names, how="anti", nulls_equal=True)
    return rows.take(left.sort(INDEX)[INDEX].to_arrow())


def _condition(name: str, values: pa.Array) -> Any:
    """Values one by one, or from the least to the greatest where there are many."""
    known = _expressions()
    wanted = [known.IsNull(name)] if values.null_count else []
    values = values.drop_null()
    if pa.types.is_floating(values.type):
        nans = pc.is_nan(values)
        wanted += [known.IsNaN(name)] if pc.any(nans).as_py() else []
        values = values.filter(pc.invert(nans))
    if 0 < len(values) <= _MOST:
        wanted.append(known.In(name, [_literal(value) for value in values]))
    elif len(values):
        ordered = values.take(pc.sort_indices(values))
        least, most = _literal(ordered[0]), _literal(ordered[-1])
        wanted.append(known.And(known.GreaterThanOrEqual(name, least), known.LessThanOrEqual(name, most)))
    return wanted[0] if len(wanted) == 1 else known.Or(*wanted)


def _literal(value: pa.Scalar) -> Any:
    """Times as texts, which PyIceberg reads to the microsecond."""
    found = value.as_py()
    return found.isoformat() if pa.types.is_temporal(value.type) else found


def _expressions() -> Any:
    import pyiceberg.expressions

    return pyiceberg.expressions

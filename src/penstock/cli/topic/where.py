"""Conditions that a user writes for single rows, like `amount > 100 and at >= '2024-01-15'`: read by sqlglot, run by Polars."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.core.time import instant
from penstock.errors import BadInput, BadTime

if TYPE_CHECKING:
    import polars as pl

_HINT = "write it like amount > 100 and country = 'DE'"


class Condition:
    """A condition on rows. Times are compared with texts like '2024-01-15T10:30:00Z'."""

    def __init__(self, text: str, times: Sequence[str]) -> None:
        """times: the columns that hold timestamps."""
        self.text = text
        self.expression = _expression(text, set(times))
        self.columns = tuple(dict.fromkeys(self.expression.meta.root_names()))

    def places(self, rows: pa.Table) -> pa.Array:
        """The places of the rows that meet it. Columns that the table lacks are null."""
        import polars as pl

        frame = pl.from_arrow(rows)
        assert isinstance(frame, pl.DataFrame)
        frame = frame.with_columns(pl.col(pl.Datetime("us", "UTC")).dt.replace_time_zone(None))
        frame = frame.with_columns(pl.lit(None).alias(name) for name in self.columns if name not in frame.columns)
        try:
            found = frame.select(self.expression.alias("keep")).to_series()
        except pl.exceptions.PolarsError as wrong:
            raise BadInput(f"cannot use the condition {self.text!r}", str(wrong).splitlines()[0], hint=_HINT) from wrong
        if found.dtype not in (pl.Boolean, pl.Null):
            raise BadInput(f"the condition {self.text!r} is neither true nor false", f"it gives {found.dtype}", hint=_HINT)
        keep = found.cast(pl.Boolean).fill_null(False)  # one value, where the condition has no column
        return pa.array(
            (keep if len(keep) == rows.num_rows else pl.repeat(keep[0], rows.num_rows, eager=True)).arg_true().to_list(), pa.int64()
        )


def _expression(text: str, times: set[str]) -> "pl.Expr":
    import polars as pl
    import sqlglot
    from sqlglot import exp

    try:
        tree = exp.condition(text, dialect="spark")
        expression: pl.Expr = pl.sql_expr(_with_times(tree, times).sql(dialect="postgres", identify=True))
    except (sqlglot.errors.SqlglotError, pl.exceptions.PolarsError, RecursionError) as wrong:
        reason = "it is nested too deeply" if isinstance(wrong, RecursionError) else "it is not one condition in SQL"
        raise BadInput(f"cannot read the condition {text[:200]!r}", reason, hint=_HINT) from wrong
    return expression


def _with_times(tree: Any, times: set[str]) -> Any:
    """Texts that are compared with a time column become times: Polars compares like with like only."""
    from sqlglot import exp

    for node in list(tree.find_all(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)):
        columns = [c.name for c in node.iter_expressions() if isinstance(c, exp.Column)]
        if not times.isdisjoint(columns):
            for literal in [c for c in node.iter_expressions() if isinstance(c, exp.Literal) and c.is_string]:
                literal.replace(exp.cast(exp.Literal.string(_naive(literal.name)), "timestamp"))
    return tree


def _naive(text: str) -> str:
    try:
        return instant(text).replace(tzinfo=None).isoformat(" ", "microseconds")
    except BadTime as wrong:
        raise BadInput(wrong.what, hint=wrong.hint) from wrong

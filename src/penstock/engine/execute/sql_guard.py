"""Spark SQL over rows of which some fail: one job in which every expression is tried, and why single rows fail.

Spark's own wrapper for `try_add` and its like gives null where any expression raises. Around a struct with the expression in it, a
null says that it raised, and nothing else does.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.core.columns import TRIED
from penstock.core.expression import Expression
from penstock.core.schema import type_text
from penstock.engine.spark.analyze import first_line
from penstock.plan import Step

MOST_CAUSES = 64  # different rows of a step and epoch whose cause is asked for: each is a small query of its own
UNKNOWN = "not looked up: more than {} different rows failed in one epoch"
_KEPT = 10_000  # causes that a process remembers
_CLASS = re.compile(r"^\[([A-Z_.0-9]+)\]")


def tried_expressions(step: Step) -> list[tuple[str, Expression]]:
    """The expressions of a step that may fail, by the name of what they give."""
    return list(step.node.computed())


class Guard:
    """A session of its own: Spark works out what several expressions have in common beforehand, outside of what catches it."""

    def __init__(self, session: Any) -> None:
        self.session = session.newSession()
        for name, value in session.conf.getAll.items():
            if name.startswith("spark.sql.") and session.conf.isModifiable(name):
                self.session.conf.set(name, value)
        self.session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
        self._causes: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = threading.Lock()  # flows side by side share the session

    def tried(self, step: Step, rows: Any) -> Any:
        """The rows with all their columns, and a column for every expression that may fail."""
        return rows.select("*", *(self._tried(e, i) for i, (_, e) in enumerate(tried_expressions(step))))

    def _tried(self, expression: Expression, number: int) -> Any:
        from pyspark.sql.classic.column import Column as SparkColumn
        from pyspark.sql.functions import expr

        jvm = self.session._jvm
        bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
        inner = bridge.expression(expr(f"named_struct('v', {expression.text})")._jc)
        tried = bridge.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inner))
        return SparkColumn(tried).alias(f"{TRIED}{number}")

    def causes(self, expression: Expression, rows: pa.Table) -> list[str]:
        """Why the expression fails on each of these rows, as Spark says it for the row alone."""
        with self._lock:
            return self._causes_of(expression, rows)

    def _causes_of(self, expression: Expression, rows: pa.Table) -> list[str]:
        asked, out = 0, []
        for i, key in enumerate(_keys(expression, rows)):
            if key not in self._causes:
                asked += 1
                if asked > MOST_CAUSES:
                    out.append(UNKNOWN.format(MOST_CAUSES))
                    continue
                self._causes[key] = self._cause(expression, rows.slice(i, 1))
            self._causes.move_to_end(key)
            out.append(self._causes[key])
        while len(self._causes) > _KEPT:
            self._causes.popitem(last=False)
        return out

    def _cause(self, expression: Expression, row: pa.Table) -> str:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            self._alone(expression, row).selectExpr(f"named_struct('v', {expression.text}) as v").collect()
        except (Py4JError, PySparkException) as error:
            return cause_text(str(error))
        return "it did not fail again"

    def _alone(self, expression: Expression, row: pa.Table) -> Any:
        """One row as a DataFrame: of literals, which needs no task, unless a value is of a kind that has none."""
        columns = list(expression.columns)
        if not columns:
            return self.session.range(1)
        if any(pa.types.is_nested(row.schema.field(name).type) for name in columns):
            return self.session.createDataFrame(row.select(columns))
        typed = (f"cast(:v{i} as {type_text(row.schema.field(name).type)}) as `{name}`" for i, name in enumerate(columns))
        values = {f"v{i}": row.column(name)[0].as_py() for i, name in enumerate(columns)}
        return self.session.sql(f"select {', '.join(typed)}", values)


def cause_text(message: str) -> str:
    """The condition that Spark names, and its first line."""
    condition = _CLASS.match(message.strip())
    return (f"{condition[1]}: " if condition else "") + first_line(message)


def _keys(expression: Expression, rows: pa.Table) -> Sequence[tuple[str, str]]:
    """What the cause depends on: the expression and the values that it reads."""
    if not expression.columns:
        return [(expression.text, "")] * rows.num_rows
    read = rows.select(list(expression.columns))
    return [(expression.text, repr(values)) for values in zip(*(c.to_pylist() for c in read.columns), strict=True)]

"""Spark's own analysis of expressions: their types, and whether they are of the kind a step may use."""

import re
from typing import Any

import pyarrow as pa

from penstock.core.schema import Schema, type_text
from penstock.errors import BadFlow, BadSchema

# Spark's messages: "[CLASS.SUBCLASS] what is wrong. SQLSTATE: 42703; line 1 pos 0;" and then the plan.
_CLASS = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*$")
# Arrow would show Spark's own encoding of these.
_NO_COLUMN = re.compile(r"\b(variant|geometry|geography)\b")


class SparkAnalyzer:
    """Asks a Spark session; nothing is computed."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._empty: dict[str, Any] = {}

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        """The type of a scalar expression over these columns; BadFlow with Spark's words if it is none."""
        from pyspark.errors import AnalysisException

        rows = self._rows(schema)
        try:
            found = rows.selectExpr(f"named_struct('v', {sql}) as v").schema["v"].dataType.fields
            # A filter takes no aggregates, generators or window functions; a join condition must be deterministic.
            rows.where(f"({sql}) is null")
            rows.join(self._session.range(0).toDF("__other"), on=_expression(f"({sql}) is null"))
        except AnalysisException as error:
            raise BadFlow(f"Spark cannot use {sql!r}", first_line(str(error))) from error
        if len(found) != 1:
            raise BadFlow(f"{sql!r} is not one expression", hint="separate columns are separate arguments")
        return self._arrow_type(sql, found[0].dataType)

    def _arrow_type(self, sql: str, spark_type: Any) -> pa.DataType:
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import to_arrow_type

        name = spark_type.simpleString()
        try:
            if _NO_COLUMN.search(name):
                raise TypeError(name)
            return Schema.of(pa.schema([("v", to_arrow_type(spark_type, timezone="UTC"))])).type("v")
        except (TypeError, BadSchema, PySparkException) as error:
            raise BadFlow(f"{sql!r} has the type {name}, which a column cannot hold") from error

    def _rows(self, schema: Schema) -> Any:
        """An empty DataFrame with these columns."""
        ddl = schema.ddl()
        if ddl not in self._empty:
            columns = [f"cast(null as {type_text(field.type)}) as `{field.name}`" for field in schema]
            self._empty[ddl] = self._session.range(0).selectExpr(*columns)
        return self._empty[ddl]


def _expression(sql: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(sql)


def first_line(message: str) -> str:
    """What Spark has to say, without its codes and plans."""
    line = next((line for line in message.splitlines() if line.strip()), "no reason given")
    return _STATE.sub("", _CLASS.sub("", line.strip())).rstrip(".") or line.strip()

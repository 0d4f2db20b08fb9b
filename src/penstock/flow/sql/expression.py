"""Spark SQL text as a checked expression: what it reads, its type, and its tree where Polars means the same."""

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token

from penstock.core.expression import Expression
from penstock.core.schema import Schema, type_text
from penstock.errors import BadSchema
from penstock.flow.place import Place
from penstock.flow.sql.analyzer import Analyzer
from penstock.flow.sql.forbidden import check_meaning, check_text
from penstock.flow.sql.whitelist import reads_alike, tree_of

_DIALECT = "spark"


def read(sql: str, schema: Schema, at: Place, analyzer: Analyzer) -> Expression:
    """The expression, or BadFlow. The analyzer is asked only for the type of what must be left to Spark."""
    if not isinstance(sql, str):
        at.refuse(f"cannot read {sql!r} as an expression: it is no text", hint='write Spark SQL, e.g. "amount > 100"')
    tokens, parsed = _parsed(sql, at)
    check_meaning(sql, parsed, tokens, at)
    columns = _columns(sql, parsed, schema, at)
    # Spark and sqlglot read some escapes in strings differently; what has one is Spark's.
    tree = tree_of(parsed, schema) if "\\" not in sql and reads_alike(parsed, tokens) else None
    if tree is not None:
        return Expression(sql, tree.type, columns, tree)
    with at.located():
        return Expression(sql, _storable(sql, analyzer.type_of(sql, schema), at), columns)


def _parsed(sql: str, at: Place) -> tuple[list[Token], exp.Expression]:
    try:
        tokens = sqlglot.tokenize(sql, read=_DIALECT)
        check_text(sql, tokens, at)
        return tokens, sqlglot.parse_one(sql, read=_DIALECT, into=exp.Condition)
    except SqlglotError as error:
        found = getattr(error, "errors", None) or [{}]
        cause = found[-1]
        near = f"; it stops making sense at {cause['highlight']!r}" if cause.get("highlight") else ""
        at.refuse(
            f"cannot read {sql!r}: it is no expression of Spark SQL{near}", hint="write it like \"amount > 100 and country = 'DE'\""
        )


def _columns(sql: str, parsed: exp.Expression, schema: Schema, at: Place) -> tuple[str, ...]:
    """The columns that are read, as they were declared, in the order of the schema."""
    read = {at.column(node.parts[0].name, schema, f"evaluate {sql!r}") for node in parsed.find_all(exp.Column)}
    return tuple(name for name in schema.names if name in read)


def _storable(sql: str, t: pa.DataType, at: Place) -> pa.DataType:
    """The type, if a column can have it."""
    try:
        type_text(t)
    except BadSchema:
        at.refuse(f"cannot use {sql!r}: no column can hold a value of type {t}", hint=f'give it a type: "cast({sql} as string)"')
    return t

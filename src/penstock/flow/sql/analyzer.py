"""Who knows the type of an expression that only Spark can evaluate."""

from typing import Protocol

import pyarrow as pa

from penstock.core.schema import Schema
from penstock.errors import BadFlow


class Analyzer(Protocol):
    """Spark's own analysis of an expression."""

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        """The type of a scalar expression over these columns. BadFlow with Spark's message if it is none, or if Spark itself
        knows it to be an aggregate, a generator or not deterministic."""
        ...


class NoAnalyzer:
    """Stands where there is no Spark: knows nothing."""

    def type_of(self, sql: str, schema: Schema) -> pa.DataType:
        raise BadFlow(
            f"cannot find the type of {sql!r}: it needs Spark",
            hint="comparisons, and, or, not, is null, in, between and arithmetic of doubles do without; the rest needs Java",
        )
